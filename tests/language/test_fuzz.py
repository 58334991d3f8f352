"""The front end under random edits of valid files and random text: `DmlcError` or success, soon.

10,000 cases from fixed seeds, in shares that can run side by side.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from dmlc.language.check import check_text
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import DmlcError, Source

DATA = Path(__file__).parents[1] / "data" / "language"
SEEDS = [path.read_text() for path in sorted(DATA.glob("*.dml"))]
SMALL = [
    "function f(x, y) = max(x, y) + 1\nenum E { A = 0 }\n",
    'operator R {\n "d"\n tensors {\n | Tensor | Kind |\n | X | Input |\n | Y | Output |\n }\n'
    " constraints { X and Y must have the same Sizes. require X.Sizes[0] > 1 }\n"
    " compute { Y = X > 0 ? X : 0 }\n example \"e\" { X = [1, -1] expect Y = [1, 0] }\n}\n",
    "operator P { attributes { | Attribute | Type | Default |\n | k | UINT[2] | [1, 2] | }\n"
    " tensors { | Tensor | Kind | Types |\n | A | Input | f32, s8 |\n | B | Output | f32 | }\n"
    " compute { B[i...] = sum[j : k[0], l... : A.Sizes where j < 1](A[l...] else 0) } }\n",
    "graph g[N](x: FLOAT32[N, 2]) { y = directml.R(X: x) output z = y + 1 }\n",
    "operator F { tensors { | Tensor | Kind |\n | x | Input |\n | y | Output |\n }\n"
    " compute { y = x * x } }\noperator G { tensors { | Tensor | Kind |\n | x | Input |\n"
    " | d | Input |\n | dx | Output |\n }\n gradient of F { d = gradient of y x = x } }\n"
    "operator H { tensors { | Tensor | Kind |\n | x | Input |\n | d_y | Input |\n"
    " | d_x | Output |\n }\n gradient of F with respect to x }\n",
    "graph g(x: FLOAT32[1, 2], d: FLOAT32[1, 2]) { y = exp(x)\n"
    " output a, b = gradient of y, x with respect to x, y from d, d\n"
    " output c = gradient(sum(y, axes: [0, 1]), wrt: x) }\n",
]  # fmt: skip
_PIECES = (
    '{ } ( ) [ ] | || & && = == ! != < <= > >= + - * / % ? : , . ... " // /* */ \\ ` ~ @ # $ ^ \n '
    "\t \r \0 é 漢 \u2028 \ud800 operator tensors compute constraints attributes types example "
    "function graph enum import module require must have the same as be a scalar broadcastable to "
    "and else where inf nan true 0 1 1.5 1e9 99999999999999999999 sum( mean[ max( X Y InputTensor "
    "FLOAT32 .Sizes .DataType i... [k : 3] | Tensor | Kind | Input | Output | --- | gradient of "
    "with respect to from gradient(x, wrt:"
)
PIECES = _PIECES.split(" ")
CASES, SHARES = 10_000, 10
LIMIT = 1.0
"""Seconds of processor time that one case may take."""


def mutate(random_source: random.Random) -> str:
    """A valid file with a few random edits, or text that was never valid."""
    kind = random_source.random()
    if kind < 0.1:
        return " ".join(random_source.choices(PIECES, k=random_source.randrange(1, 60)))
    if kind < 0.15:
        return "".join(chr(random_source.randrange(1, 0x3000)) for _ in range(40))
    text = random_source.choice(SEEDS if random_source.random() < 0.08 else SMALL)
    for _ in range(random_source.choice((1, 1, 1, 2, 3, 8))):
        place = random_source.randrange(len(text) + 1)
        length = random_source.choice((0, 1, 1, 3, 10, 80))
        match random_source.randrange(5):
            case 0:
                text = text[:place] + text[place + length :]
            case 1:
                text = text[:place] + random_source.choice(PIECES) + text[place:]
            case 2:
                text = text[:place] + random_source.choice(PIECES) + text[place + length :]
            case 3:
                other = random_source.randrange(len(text) + 1)
                text = text[:place] + text[other : other + length] + text[place:]
            case _:
                text = text[:place] + text[place : place + length] * 3 + text[place + length :]
    return text


def run_front_end(text: str) -> list[str]:
    """Everything a file goes through before it is bound; what was said of it."""
    try:
        tree = parse(Source("fuzz.dml", text))
    except DmlcError as error:
        return [str(error)]
    formatted = format_file(tree)
    again = parse(Source("formatted.dml", formatted))
    assert again == tree
    assert format_file(again) == formatted
    assert [c.text for c in again.comments] == [c.text for c in tree.comments]
    try:
        check_text(text, "fuzz.dml")
    except DmlcError as error:
        return [str(error)]
    return []


@pytest.mark.grid(4)
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("share", range(SHARES))
def test_only_diagnostics_come_out(share: int) -> None:
    random_source = random.Random(share)
    run_front_end("")  # The parser is made at its first use.
    slowest, slow_text = 0.0, ""
    for _ in range(CASES // SHARES):
        text = mutate(random_source)
        start = time.process_time()
        try:
            assert all(run_front_end(text))
        except Exception as error:
            raise AssertionError(f"{error!r} on:\n{text!r}") from error
        took = time.process_time() - start
        if took > slowest:
            slowest, slow_text = took, text
    assert slowest < LIMIT, f"{slowest:.2f} s on:\n{slow_text!r}"
