"""Plays the listings of a page: files are written, commands run, and what they print is shown.

    python docs/listings.py docs/tutorial/index.md            play it in a new folder
    python docs/listings.py docs/tutorial/index.md --script   print it as a shell script

A mark stands on the line above a fenced block and says what the block is:

    <!-- write: NAME -->    the file NAME, in the folder in which the page is played
    <!-- run -->            commands of the shell, which must succeed
    <!-- run: 1 -->         commands of which the last must exit with that status
    <!-- prints -->         what the last commands printed, both streams; `docs/build.py` writes it
    <!-- prints like -->    the same, but for its numbers, and for what `...` stands for in a line
    <!-- setup -->          commands that a machine needs once; a script has them, and no test does
    <!-- part of: FILE -->  lines of a file that a test runs
    <!-- editor: FILE -->   settings of an editor, which a test of the language server reads
    <!-- elsewhere: WHY --> what runs on another machine, or in another program: never run here
    <!-- shown: WHY -->     nothing that runs: a drawing, a form
    <!-- tested: WHERE -->  what a test of its own runs

This needs nothing but Python's own library, so that a machine without anything can print scripts.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?"
    r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


class ListingError(Exception):
    """A command of a page that did not do what the page says."""


@dataclass(frozen=True)
class Listing:
    """A fenced block, and where its text begins and ends."""

    mark: str
    language: str
    body: str
    line: int
    begin: int
    end: int

    @property
    def kind(self) -> str:
        """The mark's word before what it is given: `write` of `write: relu.dml`."""
        return self.mark.partition(":")[0]

    @property
    def given(self) -> str:
        """What the mark is given: `relu.dml` of `write: relu.dml`."""
        return self.mark.partition(":")[2].strip()


def list_listings(page: str) -> Iterator[Listing]:
    """The fenced blocks of a page, in its order."""
    for match in _FENCE.finditer(page):
        begin, end = match.span("body")
        line = page.count("\n", 0, begin)
        yield Listing(match["mark"] or "", match["language"], match["body"], line, begin, end)


def is_played(page: str) -> bool:
    """Whether a page has commands to play."""
    return any(listing.kind == "run" for listing in list_listings(page))


def play(page: str, folder: Path) -> str:
    """Plays a page in an empty folder, and gives the page with what its commands printed.

    `dmlc` and `python` are those at hand. Raises `ListingError` where a command fails.
    """
    environment = _make_environment(folder)
    work = folder / "work"
    work.mkdir()
    parts: list[str] = []
    end, printed = 0, ""
    for listing in list_listings(page):
        if listing.kind == "write":
            path = work / listing.given
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(listing.body, encoding="utf-8")
        elif listing.kind == "run":
            printed = _run(listing, work, environment)
        elif listing.kind in ("prints", "prints like"):
            alike = listing.kind == "prints like" and is_like(listing.body, printed)
            parts += [page[end : listing.begin], listing.body if alike else printed]
            end = listing.end
    return "".join([*parts, page[end:]])


def is_like(shown: str, printed: str) -> bool:
    """Whether a text is what a page shows, but for numbers and for what `...` stands for."""
    lines, found = shown.splitlines(), printed.splitlines()
    return len(lines) == len(found) and all(map(_is_like, lines, found))


def _is_like(shown: str, printed: str) -> bool:
    pieces = (re.escape(_NUMBER.sub("0", piece)) for piece in re.sub(" +", " ", shown).split("..."))
    text = _NUMBER.sub("0", re.sub(" +", " ", printed))
    return re.fullmatch(".*".join(pieces), text) is not None


def _make_environment(folder: Path) -> dict[str, str]:
    """The environment of commands: this interpreter, and the dmlc beside this file."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, command in (("python", python), ("dmlc", f"{python} -m dmlc")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def _run(listing: Listing, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", listing.body], cwd=folder, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode != int(listing.given or 0):
        raise ListingError(
            f"line {listing.line}: exit status {done.returncode} of\n{listing.body}\n{done.stdout}"
        )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def write_script(page: str) -> str:
    """A page as a shell script: what a reader types, from nothing to the end."""
    lines = ["#!/bin/sh", "set -eux"]
    for listing in list_listings(page):
        if listing.kind == "write":
            lines.append(f"mkdir -p {shlex.quote(os.path.dirname(listing.given) or '.')}")
            lines.append(f"cat > {shlex.quote(listing.given)} <<'END OF FILE'")
            lines.append(f"{listing.body}END OF FILE")
        elif listing.kind in ("run", "setup"):
            body = listing.body.rstrip("\n")
            if listing.given:
                body = f"status=0; ( {body} ) || status=$?; [ $status = {listing.given} ]"
            lines.append(body)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    page = Path(arguments[0]).read_text(encoding="utf-8")
    if arguments[1:] == ["--script"]:
        print(write_script(page), end="")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        print(play(page, Path(folder)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
