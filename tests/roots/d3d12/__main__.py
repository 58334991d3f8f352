"""Runs the library's tests and the C++ example on Direct3D 12: `make d3d12`.

A root of Debian sid is made anew, with vkd3d, Mesa's lavapipe and a clean clone of the present
commit. In it the device `d3d12` tests the library, or the operators that are named, a program in
C++ runs the headers of `--host cpp`, ONNX Runtime runs operators of `--to ort-plugin`, which MinGW
builds for Windows too, and lavapipe multiplies by matrix instructions. With --qualify, the device
is qualified besides. What the commands said is kept beside the root. Exits
with 1 where anything failed. Needs root, debootstrap, git and a network.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.roots.__main__ import Done, try_command
from tests.roots.bare_root import CLONE, REPOSITORY, BareRoot

RELEASE = "sid"
PACKAGES = (
    "cmake", "g++", "g++-mingw-w64-x86-64-posix", "gcc", "libc6-dev", "libvkd3d-dev",
    "mesa-vulkan-drivers", "python3-venv", "spirv-tools", "vulkan-validationlayers",
)  # fmt: skip
SHOWN = ("libvkd3d1", "mesa-vulkan-drivers", "python3")
DEVICE = "d3d12"
SETUP = (
    "python3 -m venv .venv && .venv/bin/python -m pip install -q --disable-pip-version-check "
    "--root-user-action=ignore -e '.[d3d12,vulkan]' onnx onnxruntime"
)
RESULTS = "out/tests.json"
REPORT = "out/report"
_PLACE = re.compile(r"^(?:\S+?:\d+:\d+: )?(?:error: )?|'[^']*' is | \[E\d{4}\]$")


def list_commands(operators: Sequence[str], qualify: bool) -> Iterator[tuple[str, str]]:
    """The commands that run in the root, each by its name."""
    dmlc = ".venv/bin/python -m dmlc"
    words = " ".join(map(shlex.quote, operators))
    yield "setup", SETUP
    yield "devices", f"{dmlc} devices"
    yield "host", "sh tests/roots/d3d12/host.sh"
    yield "plugin", "sh tests/roots/d3d12/plugin.sh"
    yield "matrices", ".venv/bin/python -m tests.roots.d3d12.matrices"
    yield (
        "library",
        (
            f"{dmlc} test --device {DEVICE} --cases 1 --variants 0 --json -o out/failures {words} "
            f"> {RESULTS}"
        ),
    )
    if qualify:
        yield "qualify", f"{dmlc} qualify --device {DEVICE} --cases 1 -o {REPORT} {words}"


def describe_results(results: Mapping[str, Any]) -> list[str]:
    """The counts of `dmlc test --json`, what failed, and why what was kept apart cannot be run."""
    rows: list[Mapping[str, Any]] = results["operators"]
    sums = {k: sum(row[k] for row in rows) for k in ("cases", "passed", "failed", "unsupported")}
    whole = sum(not (row["failed"] or row["unsupported"]) for row in rows)
    lines = [
        f"{len(rows)} operators, {whole} of them whole: {sums['cases']:,} cases, "
        f"{sums['passed']:,} passed, {sums['failed']:,} failed, "
        f"{sums['unsupported']:,} cannot be run there"
    ]
    reasons = Counter(_find_reason(outcome["message"]) for outcome in results["unsupported"])
    lines += [f"  {count:5,} {reason}" for reason, count in reasons.most_common()]
    failures = Counter((o["operator"], o["cause"]) for o in results["failures"])
    return lines + [f"  failed: {count:,} of {n}: {why}" for (n, why), count in failures.items()]


def _find_reason(message: str) -> str:
    """An error's first line, without its place and what it says it of."""
    return _PLACE.sub("", message.partition("\n")[0])


def try_root(
    root: BareRoot, operators: Sequence[str], qualify: bool
) -> Iterator[tuple[str, Done, list[str]]]:
    """What came of each command, and what is to be said of it; none after a setup that failed."""
    for name, command in list_commands(operators, qualify):
        log = root.folder.parent / f"{RELEASE}.{name}.log"
        done = try_command(root, command, log, {})
        lines = done.said.splitlines()
        results = Path(f"{root.folder}{CLONE}") / RESULTS
        if name == "library" and results.is_file() and results.stat().st_size:
            lines = describe_results(json.loads(results.read_text("utf-8")))
        elif name == "devices":
            lines = [line for line in lines if line.startswith(DEVICE)]
        yield name, done, lines
        if name == "setup" and done.status:
            return


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.roots.d3d12", description=__doc__)
    parser.add_argument("operators", nargs="*", help="what to test, as dmlc test takes it")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "out/roots")
    parser.add_argument("--qualify", action="store_true", help="qualify the device besides")
    options = parser.parse_args()
    root = BareRoot(options.folder / RELEASE, RELEASE, PACKAGES)
    root.make()
    print(", ".join(f"{package} {root.find_version(package)}" for package in SHOWN), flush=True)
    passed = True
    for name, done, lines in try_root(root, options.operators, options.qualify):
        passed = passed and done.status == 0
        result = "passed" if done.status == 0 else f"exit status {done.status}"
        print(f"{name}: {result}, {done.seconds:.0f} s", *lines, sep="\n  ", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
