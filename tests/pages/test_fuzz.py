"""Random edits of pages: whatever comes of them checks, or is refused in words."""

from __future__ import annotations

import random

import dmlc
from dmlc import pages
from tests.pages.corpus import KEPT, list_pages

EDITS = 200
MARKS = [*"|`*_{}[]()<>\\$#:;.,-=+/ \n\t\x00\u00a0é059aZ\"'&%!?^"]
WORDS = [
    "InputTensor", "Sizes", "must have the same", "FLOAT32", "1 to 8", "Required", "\\f[",
    "\\frac{", "$$", "```", '<span data-ttu-id="1">', "</span>", "| --- |", "## Members", "nan",
    "operator", "DML_FEATURE_LEVEL_9_9", "\n\n    ", "::\n\n", ".. math::\n\n",
]  # fmt: skip


def edit(text: str, others: list[str], source: random.Random) -> str:
    """A text with a few edits: marks and words put in, parts left out, repeated and exchanged."""
    for _ in range(source.choice([1, 1, 2, 5, 20])):
        start = source.randrange(len(text) + 1)
        end = min(len(text), start + source.choice([1, 5, 20, 200]))
        other = source.choice(others)
        place = source.randrange(len(other))
        new = source.choice([
            "", "".join(source.choices(MARKS, k=source.choice([1, 3, 10]))), text[start:end] * 2,
            source.choice(WORDS), other[place : place + source.choice([10, 100, 500])],
        ])  # fmt: skip
        text = text[:start] + new + text[source.choice([start, end]) :]
        lines = text.split("\n")
        one, two = source.randrange(len(lines)), source.randrange(len(lines))
        lines[one], lines[two] = lines[two], lines[one]
        text = "\n".join(lines)
    return text


def test_edited_pages_check_or_are_refused() -> None:
    source = random.Random(20)
    corpus = {path.name: path.read_text("utf-8") for path in list_pages(KEPT)}
    texts = list(corpus.values())
    passed = 0
    for _ in range(EDITS):
        name, text = source.choice(list(corpus.items()))
        try:
            made = pages.import_text(edit(text, texts, source), name)
        except dmlc.DmlcError:
            continue
        passed += 1
        if passed % 4 == 0:
            assert dmlc.parse(made.text, filename="page.dml").operators
    assert EDITS // 3 < passed < EDITS
