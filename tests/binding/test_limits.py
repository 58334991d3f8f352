"""Sizes beyond what a tensor may have, wherever they come from."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.binding import Graph
from dmlc.language.check import check_text
from dmlc.source import DmlcError
from tests.binding.declare import declare, f32, refusals

SAME = "X and Y must have the same DimensionCount and Sizes."
ROWS = ("X | Input | | FLOAT32 |", "Y | Output | | FLOAT32 |")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((2, 2**63), "sizes are at most 9223372036854775807, but along axis 1 it is "
         "9223372036854775808"),
        ((2, np.uint64(2**63)), "sizes are at most 9223372036854775807, but along axis 1 it is "
         "9223372036854775808"),
        ((2**62, 4), "sizes [4611686018427387904, 4] are 18446744073709551616 elements, and "
         "9223372036854775807 is the most"),
        ((1,) * 9, "a tensor has 1 to 8 dimensions, but sizes has 9"),
    ],
)  # fmt: skip
def test_sizes_that_are_given(sizes: tuple[Any, ...], message: str) -> None:
    op = declare("Y = X", *ROWS, constraints=SAME)
    (diagnostic,) = refusals(lambda: op.bind({"X": sizes}))
    assert diagnostic.message == f"tensor 'X': {message}"
    with pytest.raises(DmlcError) as caught:
        dmlc.run(op, {"X": np.ones(3, np.float32)}, outputs={"Y": sizes})
    assert caught.value.diagnostics[0].message == f"tensor 'Y': {message}"
    graph = check_text("graph G[N](X: FLOAT32[N, 2]) { output Z = X }", "g.dml").graphs["G"]
    with pytest.raises(DmlcError) as caught:
        Graph(graph).bind({"X": sizes})
    assert caught.value.diagnostics[0].message == f"tensor 'X': {message}"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, -1), "tensor 'X': sizes must not be negative, but along axis 1 it is -1"),
        ((True,), "each size of tensors['X'] must be a whole number, not True"),
        ((1.0,), "each size of tensors['X'] must be a whole number, not 1.0"),
    ],
)
def test_sizes_that_are_none(sizes: tuple[Any, ...], message: str) -> None:
    op = declare("Y = X", *ROWS, constraints=SAME)
    (diagnostic,) = refusals(lambda: op.bind({"X": sizes}))
    assert diagnostic.message == message
    with pytest.raises(DmlcError) as caught:
        dmlc.run(op, {"X": np.ones(3, np.float32)}, outputs={"Y": sizes})
    assert caught.value.diagnostics[0].message == (
        f"the output Y takes an array to write into or a tuple of sizes, and {sizes} is given"
    )


def test_the_largest_sizes_and_those_of_numpy_are_bound() -> None:
    op = declare("Y = X", *ROWS, constraints=SAME)
    for sizes in ((2**63 - 1,), (2**31, 2**32 - 1), (np.int64(3), np.uint8(2)), (0, 2**62)):
        assert op.bind({"X": sizes}).stages[0].extents == sizes


_LONG = "i : 2147483647, j : 2147483647, k : 2147483647"
_MANY = (
    "sizes [2147483647, 2147483647, 2147483647] are 9903520300447984150353281023 elements, and "
    "9223372036854775807 is the most"
)


@pytest.mark.parametrize(
    ("text", "constraints", "place", "message"),
    [
        (f"t[{_LONG}] = 1\nY = X * t[0, 0, 0]", SAME, "t[", f"'t' is too large: {_MANY}"),
        (f"Y[n : 2] = sum[{_LONG}](X[0])", "", "Y[", f"this reduction is too large: {_MANY}"),
        (f"Y[{_LONG}] = X[0]", "", "Y", f"output 'Y' is too large: {_MANY}"),
        ("Y[i...] = X[0]", "require Y.Sizes == X.Sizes * 4611686018427387904", "X.Sizes",
         "output 'Y' is too large: sizes [13835058055282163712] are 13835058055282163712 elements, "
         "and 9223372036854775807 is the most"),
    ],
)  # fmt: skip
def test_sizes_that_follow(text: str, constraints: str, place: str, message: str) -> None:
    op = declare(text, *ROWS, constraints=constraints)
    (diagnostic,) = refusals(lambda: op.bind({"X": f32(3)}))
    assert diagnostic.message == message
    assert diagnostic.span is not None
    assert diagnostic.span.text.startswith(place)


OUTER = (
    "A | Input | | FLOAT32 | { N }",
    "B | Input | | FLOAT32 | { P }",
    "C | Input | | FLOAT32 | { Q }",
    "D | Input | | FLOAT32 | { R }",
    "Y | Output | | FLOAT32 | { N, P, Q, R }",
)


def test_sizes_of_an_output_that_its_row_names() -> None:
    """Refused before anything is made of the call, as those of an input are."""
    op = declare("Y[n, p, q, r] = A[n] * B[p] * C[q] * D[r]", *OUTER)
    given = dict.fromkeys("ABCD", (2**16,))
    (diagnostic,) = refusals(lambda: op.resolve(given))
    assert diagnostic.message == (
        "tensor 'Y' is too large: sizes [65536, 65536, 65536, 65536] are 18446744073709551616 "
        "elements, and 9223372036854775807 is the most"
    )
    assert diagnostic.span is not None
    assert diagnostic.span.text.startswith("Y")
    assert op.resolve(given | {"D": (2**14,)}).tensors["Y"].sizes == (2**16, 2**16, 2**16, 2**14)


def test_an_output_that_no_memory_holds() -> None:
    op = declare("Y[n, p, q, r] = A[n] * B[p] * C[q] * D[r]", *OUTER)
    ones = np.ones(2**15, np.float32)
    with pytest.raises(dmlc.UnsupportedError) as caught:
        dmlc.run(op, dict.fromkeys("ABCD", ones), device="opencl")
    assert caught.value.diagnostics[0].message == (
        "the output Y has the sizes [32768, 32768, 32768, 32768], and there is no memory for its "
        "4611686018427387904 bytes"
    )


@pytest.mark.parametrize(
    ("inputs", "body", "place", "message"),
    [
        ("X: FLOAT32[N, N, N]", "output Z = X", "FLOAT32[", f"'FLOAT32[N, N, N]' is too large: "
         f"{_MANY}"),
        ("X: FLOAT32[N, 1, 1], Y: FLOAT32[1, N, 1], W: FLOAT32[1, 1, N]",
         "t = X * Y * W\noutput Z = sum(t, axes: [0, 1, 2])", "t = ", f"'t' is too large: {_MANY}"),
    ],
)  # fmt: skip
def test_sizes_of_graphs(inputs: str, body: str, place: str, message: str) -> None:
    text = f"graph G[N]({inputs}) {{\n{body}\n}}"
    graph = Graph(check_text(text, "g.dml").graphs["G"])
    (diagnostic,) = refusals(lambda: graph.bind({}, {"N": 2**31 - 1}))
    assert diagnostic.message == message
    assert diagnostic.span is not None
    assert diagnostic.span.text.startswith(place)
    for size in (2**63, 2**31, -1):
        dims: dict[str, Any] = {"N": size}
        (diagnostic,) = refusals(functools.partial(graph.bind, {}, dims))
        assert diagnostic.message == (
            f"the size of symbol 'N' must be a whole number of 0 to 2147483647, but is {size!r}"
        )
    for size in (True, 1.0):
        dims = {"N": size}
        (diagnostic,) = refusals(functools.partial(graph.bind, {}, dims))
        assert diagnostic.message == f"dims['N'] must be a whole number, not {size}"


def test_an_operator_with_an_optional_output_alone_is_called() -> None:
    text = """operator TWICE { tensors {
        | Tensor | Kind            |
        | X      | Input           |
        | Y      | Optional output |
    } constraints { X and Y must have the same DataType, DimensionCount, and Sizes. }
    compute { Y = X * 2 } }
    graph G[N](x: FLOAT32[N]) { a = TWICE(X: x)  output z = a + TWICE(X: a) }"""
    graph = Graph(check_text(text, "g.dml").graphs["G"])
    found = dmlc.run(graph, {"x": np.array([1, 2], np.float32)}, device="reference")["z"]
    assert found.tolist() == [6, 12]
