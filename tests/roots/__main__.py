"""Runs the README's two commands on bare Debians: `make roots RELEASES="bookworm trixie"`.

For each release a root is made anew, in a folder of its own, and `make demo` and `make test` run in
it, in a clean clone of the present commit. A table says what came of it; what the commands said is
kept beside the roots. With --page, a page is played there instead, as a reader plays it: every
command of it, installing included. Exits with 1 where anything failed. Needs root, debootstrap, git
and a network.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.roots.bare_root import CLONE, REPOSITORY, BareRoot

RELEASES = ("bookworm", "trixie")
PACKAGES = {"Python": "python3", "PoCL": "pocl-opencl-icd", "Mesa": "mesa-vulkan-drivers"}
_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)")


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    seconds: float
    said: str

    def __str__(self) -> str:
        """As the table has it: with pytest's last line in short, where there is one."""
        result = self.summary or ("passed" if self.status == 0 else f"exit status {self.status}")
        return f"{result}, {self.seconds:.0f} s"

    @property
    def summary(self) -> str:
        """The counts of pytest's last line, as `12 passed, 1 failed`; empty without one."""
        lines = [line for line in self.said.splitlines() if re.match(r"=+ .* in [\d.]+s", line)]
        counts = _COUNTS.findall(lines[-1]) if lines else []
        found = {kind: count for count, kind in counts}
        return ", ".join(f"{count} {kind}" for kind, count in found.items())


def try_command(root: BareRoot, command: str, log: Path, variables: dict[str, str]) -> Done:
    """Runs a command in a root; what it says goes into a file, which is read when it ended."""
    print(f"{command}: {log}", file=sys.stderr)
    start = time.monotonic()
    with log.open("w") as file:
        status = root.run(command, file, variables)
    return Done(status, time.monotonic() - start, log.read_text(errors="replace"))


def play(root: BareRoot, page: Path, folder: Path) -> Done:
    """Plays a page in a root, in a folder beside the clone."""
    listings = [sys.executable, str(REPOSITORY / "docs/listings.py"), str(page), "--script"]
    script = subprocess.run(listings, check=True, stdout=subprocess.PIPE, text=True).stdout
    (root.folder / "page").mkdir()
    (root.folder / "page/page.sh").write_text(script)
    command = "apt-get update -q && cd /page && sh page.sh"
    variables = {"DMLC": CLONE, "DEBIAN_FRONTEND": "noninteractive"}
    return try_command(root, command, folder / f"{root.release}.page.log", variables)


def try_release(
    release: str, folder: Path, tests: str, page: Path | None
) -> tuple[list[str], bool]:
    """What the table says of a release, and whether all went well there."""
    root = BareRoot(folder / release, release)
    root.make()
    if page is not None:
        done = [play(root, page, folder)]
    else:
        commands = {"demo": "make demo", "test": f"make test TESTS={shlex.quote(tests)}"}
        done = [
            try_command(root, command, folder / f"{release}.{name}.log", {})
            for name, command in commands.items()
        ]
    versions = [root.find_version(package) or "none" for package in PACKAGES.values()]
    return [release, *versions, *map(str, done)], all(one.status == 0 for one in done)


def render(rows: list[list[str]]) -> str:
    """Rows as a table of Markdown, its first the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.roots", description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, help=f"{' and '.join(RELEASES)}")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "out/roots")
    parser.add_argument("--tests", default="tests", help="what of the tests `make test` runs")
    parser.add_argument("--page", type=Path, help="a page to play instead, such as the tutorial")
    options = parser.parse_args()
    commands = ["page"] if options.page else ["make demo", "make test"]
    rows, passed = [["release", *PACKAGES, *commands]], True
    for release in options.releases or RELEASES:
        row, well = try_release(release, options.folder, options.tests, options.page)
        rows.append(row)
        passed = passed and well
    print(render(rows))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
