"""Writes what the documentation takes from the program itself.

    python docs/build.py            write
    python docs/build.py --check    exit with 1 where a page is not what would be written

A fenced block below `<!-- file: PATH -->` holds that file, and one below
`<!-- output: dmlc ... -->` what that command prints, run at the top of the repository.
`docs/operators/` has a page for every operator of the library.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import dmlc
from dmlc.language.format import format_operator

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/language.md", "docs/ir.md", "docs/generated-code.md",
         "docs/manifest.md", "docs/errors.md")  # fmt: skip

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>file|output): (?P<what>[^\n]*) -->\n```\w*\n)"
    r"(?P<body>.*?)(?P<tail>^```$)",
    re.DOTALL | re.MULTILINE,
)


def build() -> dict[Path, str]:
    """Every page that holds something of the program, as it should be."""
    pages = {ROOT / name: refresh((ROOT / name).read_text(encoding="utf-8")) for name in PAGES}
    return pages | _operator_pages()


def refresh(text: str) -> str:
    return _BLOCK.sub(lambda m: f"{m['head']}{_content(m['kind'], m['what'])}{m['tail']}", text)


def _content(kind: str, what: str) -> str:
    if kind == "file":
        return (ROOT / what).read_text(encoding="utf-8")
    program, *arguments = shlex.split(what)
    if program != "dmlc":
        raise ValueError(f"'{what}' is no dmlc command")
    done = subprocess.run(
        [sys.executable, "-m", "dmlc", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def _operator_pages() -> dict[Path, str]:
    folder = ROOT / "docs" / "operators"
    pages: dict[Path, str] = {}
    rows = ["| operator | |", "| --- | --- |"]
    for name, operator in dmlc.operators().items():
        doc = (operator.doc or "").partition(". ")[0].rstrip(".")
        rows.append(f"| [{name}]({name}.md) | {doc} |")
        text = format_operator(operator.definition.syntax)
        formulas = [s.span.text for s in operator.definition.compute or ()]
        pages[folder / f"{name}.md"] = "\n".join(
            [f"# {name}", "", operator.doc or "", "", "```", *formulas, "```", "",
             "As the library has it:", "", f"```dml\n{text}```", ""]
        )  # fmt: skip
    pages[folder / "index.md"] = "\n".join(
        ["# Operators", "", "Written by `make docs` from `dmlc/library/`.", "", *rows, ""]
    )
    return pages


def main(arguments: list[str]) -> int:
    pages = build()
    stale = [
        path for path, text in pages.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]  # fmt: skip
    for path in stale:
        print(path.relative_to(ROOT))
        if arguments != ["--check"]:
            path.write_text(pages[path], encoding="utf-8")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
