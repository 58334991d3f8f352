"""How kernels of reductions that depend on positions are shaped, and what is tested where."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.opencl import OPENCL
from dmlc.index.affine import Affine
from dmlc.ir.index import find_affine, find_part
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, both, guard, index, operate
from dmlc.kernel.target import RUN_TIME_COUNT
from dmlc.loops.access import join_digits, read_positions
from dmlc.loops.element import Gather, Read, collect_elements
from dmlc.lowering.assemble import IndexType, find_index
from dmlc.pipeline import compile
from tests import positions
from tests.goldens import read_case


def source(name: str, target: str = "opencl", profile: str | None = None) -> str:
    program = compile(positions.read(name), target, profile)
    lines = [line for kernel in program.kernels for line in kernel.source.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("//"))


def test_even_reads_are_strides() -> None:
    elements = collect_elements(positions.read("slice"), ("Output",))
    (value,) = (v for v in elements.values if isinstance(v, Read))
    assert (value.view.strides, value.view.offset) == ((9, 2), 10)
    assert not elements.has_positions


DIGITS = """func @f(%X: f32[4, 50, 3]{strides}, %P: s32[7]) -> (%Y) {{
  %Y: f32[i0 < 7] = {{
    v0 = min(max(cast(%P[i0], index), 0), 599)
    %X[{places}]
  }}
}}"""
WHOLE = "div(v0, 150), mod(div(v0, 3), 50), mod(v0, 3)"


@pytest.mark.parametrize(
    ("strides", "places", "steps"),
    [
        ("", WHOLE, [1]),
        ("{160, 3, 1}", WHOLE, [160, 3, 1]),
        ("{300, 6, 2}", WHOLE, [2]),
        ("{1, 4, 200}", WHOLE, [1, 4, 200]),
        ("", "div(v0, 150), mod(div(v0, 3), 49), mod(v0, 3)", [150, 3, 1]),
        ("", "div(v0, 200), mod(div(v0, 3), 50), mod(v0, 3)", [150, 3, 1]),
        ("", "mod(v0, 4), mod(div(v0, 4), 50), mod(v0, 3)", [150, 3, 1]),
    ],
)
def test_digits_of_a_number_are_put_together(strides: str, places: str, steps: list[int]) -> None:
    """As far as the strides let them be one number times a step."""
    function = ir.parse(DIGITS.format(strides=strides, places=places))
    elements = collect_elements(function, ("Y",))
    (value,) = (v for v in elements.values if isinstance(v, Gather) and v.view.tensor == "X")
    assert [step for _, step in value.terms] == steps
    divides = [v.operation.name for v in elements.values if isinstance(v, ir.Apply)]
    assert ("div" in divides) == (len(steps) > 1)


def test_other_reads_take_values() -> None:
    elements = collect_elements(positions.read("flip"), ("Output",))
    (value,) = (v for v in elements.values if isinstance(v, Gather))
    assert value.view.strides == (7, 0)
    assert [step for _, step in value.terms] == [1]
    assert not value.guarded
    assert elements.has_positions


def test_sums_of_positions() -> None:
    function = ir.parse(
        "func @f(%x: f32[99]) -> (%y) { %y: f32[i0 < 5, i1 < 4] = "
        "%x[add(sub(mul(3, i0), neg(mul(i1, 2))), 7)] }"
    )
    (stage,) = function.stages
    load = stage.body.loads()[0]
    form = find_affine(stage.body)[load.indices[0]]
    assert form == Affine(7, ((ir.Index(0), 3), (ir.Index(1), 2)))
    assert read_positions(stage, function).list_forms(load) == (form,)


@pytest.mark.parametrize(
    ("high", "low", "size", "whole"),
    [
        ("div(i0, 4)", "mod(i0, 4)", 4, "i0"),
        ("div(i0, 12)", "mod(div(i0, 3), 4)", 4, "div(i0, 3)"),
        ("mod(div(i0, 4), 3)", "mod(mod(i0, 12), 4)", 4, "mod(i0, 12)"),
        ("div(mod(i0, 5), 3)", "mod(mod(i0, 5), 3)", 3, "mod(i0, 5)"),
        ("mod(div(i0, 4), 5)", "mod(i0, 4)", 4, None),
        ("div(i0, 3)", "mod(i0, 4)", 4, None),
    ],
)
def test_the_digits_of_a_number_are_put_together(
    high: str, low: str, size: int, whole: str | None
) -> None:
    function = ir.parse(f"""func @f(%x: f32[99]) -> (%y) {{
      %y: f32[i0 < 99] = add(%x[{high}], add(%x[{low}], %x[{whole or "i0"}]))
    }}""")
    stage = ir.BodyBuilder().remake(function.stages[0])  # Equal values are one.
    first, second, third = (load.indices[0] for load in stage.body.loads())
    joined = join_digits(stage.body, [(first, 2 * size), (second, 2)])
    if whole is None:
        assert joined == [(first, 2 * size), (second, 2)]
    else:
        ((number, step),) = joined
        assert (find_part(stage.body, number), step) == (find_part(stage.body, third), 2)
    assert len(join_digits(stage.body, [(first, size), (second, 2)])) == 2


@pytest.mark.parametrize(
    ("largest", "reach", "index"),
    [
        (100, (0, 0), IndexType(32, signed=False)),
        (100, (-1, 50), IndexType(32, signed=True)),
        (RUN_TIME_COUNT + 1, (0, 5), IndexType(64, signed=False)),
        (100, (0, RUN_TIME_COUNT + 1), IndexType(64, signed=True)),
        (100, (float("-inf"), float("inf")), IndexType(64, signed=True)),
    ],
)
def test_index_types(largest: int, reach: tuple[float, float], index: IndexType) -> None:
    assert find_index(largest, reach, OPENCL.limits) == index


def test_conditions_stand_before_the_reads_they_protect() -> None:
    text = source("first_above", "hlsl")
    bounds = text.index("Bounds[")
    test, read, compared = text.index(">= 2"), text.index("Input[position"), text.index("> bounds")
    assert bounds < text.index("for (") < test < read < compared


def test_a_condition_on_outer_axes_is_tested_outside() -> None:
    (kernel,) = compile(read_case("resample_grad_linear"), "opencl", "gpu").kernels
    _, text = kernel.source.split("for (int k = 0")
    assert text.index(">= 0") < text.index("for (int k1 = 0") < text.index("dY[")


def test_what_derives_from_a_fold_is_in_its_kernel() -> None:
    program = compile(positions.read("prologue"), "opencl")
    assert len(program.kernels) == 1
    assert "Input[" in program.kernels[0].source


def test_folds_under_different_guards_are_apart() -> None:
    assert len(compile(positions.read("two_guards"), "opencl").kernels) == 2


def test_a_fold_read_elsewhere_is_stored_first() -> None:
    first, second = compile(positions.read("two_steps"), "opencl", "gpu").kernels
    assert (first.after, second.after) == ((), (0,))


def test_unsigned_where_nothing_is_negative() -> None:
    assert "int i0" not in source("space_to_depth").replace("uint i0", "")
    assert "const int " in source("pad")


def test_positions_of_64_bits() -> None:
    assert "const long position" in source("gather_wrapped")
    assert "(int64_t)indices_" in source("gather_wrapped", "hlsl")


@pytest.mark.parametrize("name", ["gather_unsigned", "gather_fraction", "fraction_at_unknown"])
def test_clamped_positions_of_32_bits(name: str) -> None:
    assert "long" not in source(name)
    assert "int64" not in source(name, "hlsl")


def test_walks() -> None:
    function = positions.read("average_pool")
    (gpu,), (cpu,) = compile(function, "hlsl").kernels, compile(function, "opencl").kernels
    assert "each computes 4 neighbouring outputs" in gpu.source
    assert (gpu.dispatch.count, gpu.dispatch.per_group) == (30, 256)
    assert (cpu.dispatch.count, cpu.dispatch.per_group, cpu.dispatch.group_size) == (30, 2, 1)


def test_conditions_with_indices_between_them_are_one() -> None:
    row, column, read = (k.Local(name, k.INDEX) for name in ("row", "column", "read"))
    rows, columns = (operate("lt", place, index(9)) for place in (row, column))
    inner = k.If(columns, (k.Barrier(),))
    named = k.Let(column, add(row, index(3)))
    assert guard([rows], [named, inner]) == [named, k.If(both(rows, columns), inner.then)]
    # An element is loaded under its condition, and a rare condition stays one.
    loaded = k.Let(read, k.Load("X", row, k.INDEX))
    assert guard([rows], [loaded, inner]) == [k.If(rows, (loaded, inner))]
    rare = k.If(columns, (k.Barrier(),), rare=True)
    assert guard([rows], [named, rare]) == [k.If(rows, (named, rare))]


def test_a_tile_at_two_edges_has_one_condition() -> None:
    product = ir.parse("""func @f(%A: f32[72, 64], %B: f32[64, 72]) -> (%Y) {
      %Y: f32[i0 < 72, i1 < 72] = sum[r0 < 64] mul(%A[i0, r0], %B[r0, i1])
    }""")
    (kernel,) = compile(product, "hlsl").kernels
    assert "if (i0 < 72 && i1 < 72) {" in kernel.source
