"""Fuzzes for as long as told: `python -m tests.fuzz --kind formulas --minutes 30`.

Cases run in processes of their own, a few batches each: one that a driver kills, or that hangs,
is a finding as any other is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

from tests.fuzz.devices import BACKENDS, find_missing
from tests.fuzz.hostile import READERS
from tests.fuzz.run import KINDS, run
from tests.quick_builds import building_quickly

CHUNK = 40
"""Batches to a process."""
HANGS = 900.0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    add = parser.add_argument
    add("--kind", action="append", choices=[*KINDS, *READERS], help="all, if not given")
    add("--seed", type=int, default=0, help="of the first process; the next follow")
    add("--batches", type=int, help="of cases, of each kind; 100 where no time is given")
    add("--minutes", type=float, help="to go on for")
    add("--jobs", type=int, default=1, help="processes at a time")
    add("--backend", action="append", choices=list(BACKENDS), help="all, if not given")
    add("--thorough", action="store_true", help="each case on all devices, not one in its turn")
    add("--known", action="append", default=[], metavar="REGEX", help="failures only to count")
    add("--shrink", type=float, default=60.0, metavar="SECONDS", help="to cut a failing case down")
    add("--log", help="a file for totals and findings, as JSON lines")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def work(options: argparse.Namespace) -> None:
    """One process's share: its totals and findings as a line of JSON."""
    kind = options.kind[0]
    with building_quickly():
        tally = run(kind, options.seed, options.batches, options.backend, options.known,
                    options.shrink, not options.thorough)  # fmt: skip
    print("RESULT " + json.dumps({
        "kind": kind, "seed": options.seed, "batches": tally.batches, "ran": tally.ran,
        "known": tally.known, "findings": [[f.kind, str(f)] for f in tally.findings],
    }))  # fmt: skip


class Totals:
    """What all processes came to, so far."""

    def __init__(self, log: str | None) -> None:
        self.lock = threading.Lock()
        self.log = log
        self.begun = time.monotonic()
        self.ran: dict[str, Counter[str]] = {}
        self.known: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, found: dict) -> None:
        with self.lock:
            if self.log:
                with open(self.log, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"at": time.time(), **found}) + "\n")
            ran = self.ran.setdefault(found["kind"], Counter())
            ran.update(found["ran"])
            ran["batches"] += found["batches"]
            self.known.update(found["known"])
            for kind, text in found["findings"]:
                self.kinds[kind] += 1
                print(f"\n=== {found['kind']}, seed {found['seed']}\n{text}", flush=True)

    def show(self) -> str:
        minutes = (time.monotonic() - self.begun) / 60
        lines = [f"after {minutes:.1f} minutes:"]
        for kind, ran in self.ran.items():
            lines.append(f"  {kind}: " + ", ".join(f"{n} {c:,}" for n, c in ran.items()))
        lines += [f"  known: {count} of {kind}" for kind, count in self.known.most_common()]
        lines += [f"  FOUND: {count} of {kind}" for kind, count in self.kinds.most_common()]
        return "\n".join(lines)


def start(options: argparse.Namespace, kind: str, seed: int, batches: int) -> dict:
    """Runs a process, and gives what it came to."""
    command = [sys.executable, "-m", "tests.fuzz", "--worker", "--kind", kind, "--seed", str(seed),
               "--batches", str(batches), "--shrink", str(options.shrink)]  # fmt: skip
    command += ["--thorough"] if options.thorough else []
    for backend in options.backend or BACKENDS:
        command += ["--backend", backend]
    for pattern in options.known:
        command += ["--known", pattern]
    empty = {"kind": kind, "seed": seed, "batches": 0, "ran": {}, "known": {}}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    except subprocess.TimeoutExpired:
        return {**empty, "findings": [["hangs", f"no end after {HANGS} s"]]}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        text = f"status {done.returncode}\n{done.stderr[-3000:]}"
        return {**empty, "findings": [["process died", text]]}
    return json.loads(lines[-1].removeprefix("RESULT "))


def choose_backends(asked: Sequence[str] | None) -> list[str]:
    """The backends that were asked for; or all that can run here, and a line for each that cannot.
    Ends the program where one was asked for and cannot run."""
    missing = find_missing(asked or BACKENDS)
    for name, why in missing.items():
        print(f"without {name}: {why}", file=sys.stderr, flush=True)
    if asked and missing:
        sys.exit(2)
    return [name for name in asked or BACKENDS if name not in missing]


def main() -> int:
    options = read_options()
    if options.worker:
        work(options)
        return 0
    kinds = options.kind or [*KINDS, *READERS]
    if any(kind in KINDS for kind in kinds):
        options.backend = choose_backends(options.backend)
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    most = options.batches if options.batches or end else 100
    counter = itertools.count(options.seed)
    totals = Totals(options.log)

    def go() -> None:
        for number in counter:
            done = (number - options.seed) // len(kinds) * CHUNK
            if (end and time.monotonic() > end) or (most and done >= most):
                return
            kind = kinds[number % len(kinds)]
            totals.add(start(options, kind, number, min(CHUNK, most - done) if most else CHUNK))
            print(totals.show(), flush=True)

    threads = [threading.Thread(target=go) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if totals.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
