"""Reductions of no point and tensors of no element, on every device."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings

import dmlc
from dmlc import ir, library
from dmlc.binding import Operator, TensorDesc
from dmlc.kernel.interpret import run_kernels
from dmlc.language.check import check_text
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import COMBINERS, TENSOR_TYPES, Array, DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.examples import read_cases
from tests import graphs, positions, reductions
from tests.library.run import DEVICES

TYPES = [t for t in TENSOR_TYPES if t is not DataType.BOOL]
PLACES = [(dtype, device) for dtype in TYPES for device in DEVICES]


def declare(compute: str, types: str, result: str) -> Operator:
    text = f"""operator OP {{
        tensors {{
            | Tensor | Kind   | Types    |
            | X      | Input  | {types}  |
            | Z      | Output | {result} | }}
        compute {{ {compute} }}
    }}"""
    return Operator(check_text(text, "op.dml").operators["OP"])


@pytest.mark.grid(3)
@pytest.mark.parametrize(("dtype", "device"), PLACES, ids=str)
@pytest.mark.parametrize("combiner", ["min", "max", "sum", "product", "argmin", "argmax"])
def test_what_folds_nothing_has_the_type_of_what_it_reads(
    combiner: str, dtype: DataType, device: str
) -> None:
    positional = COMBINERS[combiner].positional
    result = DataType.UINT32 if positional else dtype
    formula = f"Z[i : 3] = {combiner}[j : 5 where j > 3 + i](X[j + 9] else 1)"
    operator = declare(formula, dtype.name, result.name)
    found = dmlc.run(operator, {"X": np.ones(5, dtype.dtype)}, device=device)["Z"]
    nothing = COMBINERS[combiner].empty(dtype.compute)
    expected = np.array([4 if positional else 1, nothing, nothing], result.dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [(0,), (5,)])
def test_what_lies_outside_must_have_the_type_of_the_tensor(sizes: tuple[int, ...]) -> None:
    operator = declare("Z[i : 3] = X[i + 9] else 0.5", "INT32", "INT32")
    with pytest.raises(dmlc.DmlcError, match=r"0\.5 meets INT32 values"):
        operator.bind({"X": sizes})


# Tensors of no element ----------------------------------------------------------------------


COMPILED = (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"))


def run_everywhere(functions: Iterable[ir.Function]) -> None:
    """Compiles functions for every target and profile, and holds what they give on ones to the
    reference: for one target and profile on its device, the next for each function, and for the
    others in NumPy."""
    turns = itertools.cycle(COMPILED)
    for function, turn in zip(functions, turns, strict=False):
        inputs = {p.name: np.ones(sizes_of(p), p.dtype.dtype) for p in function.parameters}
        expected = evaluate(function, inputs)
        for target, profile in COMPILED:
            load = opencl.load if target == "opencl" else vulkan.load
            try:
                if (target, profile) == turn:
                    found = load(compile(function, target, profile))(inputs)
                else:
                    found = run_kernels(*make_kernels(function, target, profile), inputs)
            except UnsupportedError:
                assert target == "hlsl"
                continue
            agree(found, expected)


def agree(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        wide = values.astype(np.float64)
        np.testing.assert_allclose(found[name].astype(np.float64), wide, 1e-5, 1e-5)


def sizes_of(parameter: ir.Parameter) -> tuple[int, ...]:
    return tuple(e for e in parameter.extents if isinstance(e, int))


def empty(text: str) -> Iterator[ir.Function]:
    """The functions that come of setting an extent to 0: one, or all that are equal; those among
    them that are well formed."""
    places = list(re.finditer(r"(?<=[\[ ])\d+(?=[,\]])|(?<=< )\d+", text))
    equal = {p[0]: [q for q in places if q[0] == p[0]] for p in places}
    for chosen in (*equal.values(), *([p] for p in places)):
        changed = text
        for place in reversed(chosen):
            changed = f"{changed[: place.start()]}0{changed[place.end() :]}"
        with contextlib.suppress(DmlcError):
            yield ir.parse(changed)


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", positions.FUNCTIONS)
def test_an_extent_may_be_0_where_positions_are_computed(name: str) -> None:
    run_everywhere(empty(positions.FUNCTIONS[name]))


@pytest.mark.grid(3)
@pytest.mark.parametrize("shape", reductions.SHAPES)
def test_an_extent_may_be_0_in_a_reduction(shape: str) -> None:
    text = str(
        reductions.every_combiner(DataType.FLOAT32, reductions.SHAPES[shape], ["sum", "max"])
    )
    made = list(empty(text))
    assert made
    run_everywhere(made)


@settings(deadline=None, max_examples=8)
@given(graphs.graphs(most=6))
def test_an_extent_may_be_0_in_a_graph(function: ir.Function) -> None:
    run_everywhere(itertools.islice(empty(str(function)), 2))


def test_a_table_may_have_no_element() -> None:
    function = ir.parse("""
        func @f(%X: f32[3], %J: s32[4]) -> (%Y) {
          table %t: f32[0] = {}
          table %u: s32[2, 0] = {}
          %a: f32[i0 < 0] = mul(%t[i0], %X[1])
          %c: f32[i0 < 3] = sum[r0 < 4 where gt(r0, 5)] %X[min(max(cast(%J[r0], index), 0), 2)]
          %s: f32[i0 < 3] = sum[r0 < 0] mul(%a[r0], add(%t[r0], cast(%u[1, r0], f32)))
          %Y: f32[i0 < 3] = add(%s[i0], %c[i0])
        }""")
    # Once for each device.
    run_everywhere([function] * len(COMPILED))


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", library.names())
def test_an_extent_may_be_0_in_an_operator(name: str) -> None:
    operator = dmlc.operator(name)
    seen: dict[str, ir.Function] = {}
    for example in operator.definition.examples:
        call = next(read_cases(operator, example)).call
        given = call.tensors
        ranks = {n: len(d.sizes or ()) for n, d in given.items()}
        for axis in range(max(ranks.values())):
            for chosen in (tuple(given), *((n,) for n in given)):
                changed = {n: _empty_axis(d, axis) if n in chosen else d for n, d in given.items()}
                with contextlib.suppress(DmlcError):
                    function = operator.bind(changed, call.attributes)
                    seen.setdefault(str(function), function)
    run_everywhere(seen.values())


def _empty_axis(description: TensorDesc, axis: int) -> TensorDesc:
    sizes = list(description.sizes or ())
    sizes[axis : axis + 1] = [0] if axis < len(sizes) else []
    return TensorDesc(description.data_type, sizes)


@pytest.mark.parametrize("device", DEVICES)
def test_a_part_may_have_no_element(device: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    sizes = {"OutputTensors[0]": (2, 2, 3), "OutputTensors[1]": (2, 0, 3)}
    found = dmlc.run("directml.SPLIT", {"InputTensor": x}, {"Axis": 1}, sizes, device=device)
    np.testing.assert_array_equal(found["OutputTensors[0]"], x)
    assert found["OutputTensors[1]"].shape == (2, 0, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_may_have_no_place(device: str) -> None:
    operator = declare("Z[i : 3, j : 0] = i + j", "FLOAT32", "FLOAT32")
    assert dmlc.run(operator, {"X": np.ones(2, np.float32)}, device=device)["Z"].shape == (3, 0)
