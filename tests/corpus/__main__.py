"""`python -m tests.corpus`: compiles the corpus for every target, and names the programs that are
not as recorded, with the modelled times of both.

Sources are kept in `out/corpus/recorded`, where they are as recorded, and else in
`out/corpus/current`, with the difference to the recorded ones in `out/corpus/diff`. With `--update`
the state is recorded anew. Without, the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import difflib
import functools
import multiprocessing
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dmlc.processes import isolating_workers
from tests.corpus.state import (
    FAILED,
    KINDS,
    RECORDED,
    Compiled,
    Difference,
    compile_subject,
    find_differences,
    make_hash,
    read_state,
    write_state,
)
from tests.corpus.subjects import SUBJECTS

OUT = Path(__file__).resolve().parents[2] / "out" / "corpus"
_TOGETHER = 4
"""Subjects that a process gets at once."""


def compile_all(
    subjects: Sequence[str], kinds: Sequence[str], jobs: int
) -> Iterator[list[Compiled]]:
    """The subjects compiled, in their order, by several processes."""
    compile_one = functools.partial(compile_subject, kinds=kinds)
    if jobs == 1 or len(subjects) == 1:
        yield from map(compile_one, subjects)
        return
    # A forked process would share what this one has begun to use.
    context = multiprocessing.get_context("spawn")
    with isolating_workers(), concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        yield from pool.map(compile_one, subjects, chunksize=_TOGETHER)


def find_file(folder: str, kind: str, name: str) -> Path:
    """Where the source of a program is kept."""
    return OUT / folder / kind / re.sub(r"[^\w.+-]+", "_", name)


def keep_sources(kind: str, compiled: Iterable[Compiled], changed: Iterable[str]) -> None:
    """Writes the sources of programs: those that are as recorded in one place, and the `changed`
    ones in another."""
    changed = frozenset(changed)
    for each in compiled:
        path = find_file("current" if each.name in changed else "recorded", kind, each.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(each.text, encoding="utf-8")


def write_diff(kind: str, difference: Difference) -> Path | None:
    """Writes how the source of a program differs from the recorded one; None where that was not
    kept."""
    name = difference.name
    old, new, path = (find_file(f, kind, name) for f in ("recorded", "current", "diff"))
    path = path.with_name(f"{path.name}.diff")
    before = old.read_text(encoding="utf-8") if old.is_file() else ""
    if difference.before is None or make_hash(before) != difference.before.text:
        return None
    lines = (text.splitlines(keepends=True) for text in (before, new.read_text(encoding="utf-8")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(difflib.unified_diff(*lines, str(old), str(new))), encoding="utf-8")
    return path


def report(kind: str, differences: Sequence[Difference], count: int) -> None:
    """Names what differs, and where its sources are compared. Programs that are new, or differ in
    comments alone, are counted."""
    kinds = Counter(difference.what.partition(":")[0] for difference in differences)
    shown = f" ({', '.join(f'{n} {what}' for what, n in kinds.items())})" if kinds else ""
    print(f"{kind}: {len(differences)} of {count} differ{shown}")
    for difference in differences:
        path = None
        if difference.what in ("code", "comments"):
            path = write_diff(kind, difference) or "its recorded source is not in out/corpus"
        if difference.what not in ("new", "comments"):
            print(f"  {difference.show(kind)}", *([f"    {path}"] if path else []), sep="\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="only subjects with this in a name"
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="may repeat; all by default")
    parser.add_argument("--update", action="store_true", help="record the state")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args(arguments)
    kinds = given.kind or list(KINDS)
    subjects = [n for n in SUBJECTS if not given.parts or any(part in n for part in given.parts)]
    found: dict[str, list[Compiled]] = {kind: [] for kind in kinds}
    for number, compiled in enumerate(compile_all(subjects, kinds, given.jobs)):
        for each in compiled:
            found[each.kind].append(each)
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {len(subjects)} subjects", end="", file=sys.stderr)
    for folder in ("current", "diff"):
        shutil.rmtree(OUT / folder, ignore_errors=True)
    differing = broken = 0
    for kind, compiled in found.items():
        state = {each.name: each.entry for each in compiled}
        recorded = read_state(kind, RECORDED)
        before = recorded
        if given.parts:
            before = {name: entry for name, entry in recorded.items() if name in state}
        differences = find_differences(before, state)
        differing += len(differences)
        changed = {d.name for d in differences if d.what != "times"}
        keep_sources(kind, compiled, changed)
        report(kind, differences, len(state))
        failed = {name for name, entry in state.items() if entry.refusal.startswith(FAILED)}
        broken += len(failed)
        if given.update:
            kept = {n: e for n, e in recorded.items() if given.parts or n in failed}
            write_state(kind, kept | {n: e for n, e in state.items() if n not in failed}, RECORDED)
            keep_sources(kind, (each for each in compiled if each.name not in failed), ())
    return 1 if broken or (differing and not given.update) else 0


if __name__ == "__main__":
    sys.exit(main())
