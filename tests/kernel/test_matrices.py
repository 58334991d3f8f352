"""Products that matrix instructions make: kernels of all instructions of the table are verified and
interpreted, whatever devices there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.matrix_forms import use_matrices
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.kernel.json import kernel_from_json, kernel_to_json
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.passes import find_sizes
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import find_body, replace_body
from dmlc.kernel.verify import verify_kernel
from dmlc.loops.naive import naive
from dmlc.loops.parse import nest_from_json, nest_to_json, parse_nest
from dmlc.loops.primitives import apply
from dmlc.loops.script import ScheduleError, parse_script
from dmlc.lowering.group import collect_group
from dmlc.matrices import INSTRUCTIONS, find_instruction
from dmlc.pipeline import find_fusion, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.schedules import matrices
from dmlc.source import InternalError
from dmlc.testing.bounds import bound_errors
from tests.goldens import make_inputs
from tests.kernel.lowering import run
from tests.kernel.statements import walk
from tests.products import Product, Windows, expect_some_finite, fill_beside_infinities

NAMES = [each.name for each in INSTRUCTIONS]
HALVES = Product(33, 65, 40, dtype="f16")
MATRIX = (k.FillMatrix, k.LoadMatrix, k.StoreMatrix, k.MultiplyMatrices)


def lower(function: ir.Function, name: str) -> tuple[ir.Function, tuple[k.Kernel, ...]]:
    return make_kernels(function, "hlsl", matrix_instruction=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "product",
    [
        HALVES,
        Product(17, 130, 7, dtype="f16", a_transposed=True, after=False),
        Product(63, 64, 65, batch=2, dtype="f16", b_transposed=True, y_transposed=True),
        Product(128, 64, 64, dtype="f16", a_transposed=True, b_transposed=True, shared="a"),
        # Few outputs: their sums are made in pieces, which another kernel adds up.
        Product(32, 32, 4096, dtype="f16"),
    ],
    ids=str,
)
def test_products_of_halves_are_within_their_bounds(product: Product, name: str) -> None:
    fused, kernels = lower(product.make(), name)
    own = [kernel for kernel in kernels if kernel.matrices]
    assert len(own) == 1
    used = {(m.rows, m.columns, m.dtype) for m in own[0].matrices}
    shape = find_instruction(name).shape
    assert used == {
        (shape.m, shape.k, shape.factors),
        (shape.k, shape.n, shape.factors),
        (shape.m, shape.n, shape.sum),
    }
    assert own[0].launch.group_size % own[0].launch.subgroup == 0
    run(fused, kernels)


@pytest.mark.parametrize("name", NAMES)
def test_large_tiles_leave_no_points_out(name: str) -> None:
    """Tiles are large where there are many: ones and twos tell at once which points were added."""
    fused, kernels = lower(Product(700, 800, 3, dtype="f16", after=False).make(), name)
    random = np.random.default_rng(0)
    inputs = {
        p.name: random.integers(1, 3, tuple(map(int, p.extents))).astype(np.float16)
        for p in fused.parameters
    }
    (got,) = run_kernels(fused, kernels, inputs).values()
    wanted = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64)
    assert np.array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("side", [32, 64, 128])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "product",
    [
        Product(129, 65, 33, dtype="f16"),
        Product(63, 17, 129, batch=2, dtype="f16", a_transposed=True, y_transposed=True),
        # Points of both factors lie side by side, whose tiles leave little memory for the sums.
        Product(65, 129, 17, dtype="f16", b_transposed=True),
    ],
    ids=str,
)
def test_tiles_of_all_sides_have_edges(
    product: Product, name: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "choose_side", lambda *_: side)
    fused, kernels = lower(product.make(), name)
    (own,) = [kernel for kernel in kernels if kernel.matrices]
    assert own.launch.group_size == {32: 64, 64: 128, 128: 256}[side]
    assert any(call.startswith("pipeline") for call in own.script) is (side == 128)
    run(fused, kernels)


CONVOLUTIONS = {
    "padded": Windows(1, 16, 6, 7, 17, 3, 1, 1, dtype="FLOAT16"),
    "strided": Windows(2, 20, 12, 9, 33, 3, 2, 1, dtype="FLOAT16"),
    "in groups": Windows(1, 32, 9, 7, 64, 3, 1, 2, 2, 2, dtype="FLOAT16"),
}


@pytest.mark.parametrize(
    ("windows", "kind", "side", "name"),
    [
        (windows, kind, (32, 64, 128)[(i + j) % 3], NAMES[(i + j) % len(NAMES)])
        for i, windows in enumerate(CONVOLUTIONS)
        for j, kind in enumerate(("forward", "data", "weights"))
    ],
)
def test_convolutions_are_products_of_matrices(
    windows: str, kind: str, side: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "choose_side", lambda *_: side)
    fused, kernels = lower(CONVOLUTIONS[windows].make(kind), name)
    assert any(kernel.matrices for kernel in kernels)
    run(fused, kernels)


def test_the_points_of_weights_are_taken_in_pieces_of_rows() -> None:
    """Their order changes before matrices make the products: images are inside the pieces."""
    function = Windows(2, 2, 23, 20, 17, 3, 1, 1, dtype="FLOAT16").make("weights")
    fused, kernels = lower(function, NAMES[0])
    assert [bool(kernel.matrices) for kernel in kernels] == [True, False]
    assert "reorder k" in kernels[0].script
    run(fused, kernels)


def test_a_convolution_of_matrices_is_short_to_read() -> None:
    """What is put into tiles is read in loops that compilers write out. A strip is known by its
    number, and one sum is checked at once."""
    function = Windows(8, 64, 28, 28, 64, 3, 1, 1, dtype="FLOAT16").make("forward")
    (plain,) = dmlc.compile(function, "hlsl", matrix_instructions=["16x16x16/32"]).kernels
    (kernel,) = plain.alternatives
    lines = [line.strip() for line in kernel.source.splitlines()]
    assert len(lines) <= 180
    assert "if (column_strip == 1) {" in lines
    (flag,) = [line for line in lines if "is_lost" in line and "=" in line]
    assert flag.startswith("const bool is_lost = isnan")
    assert [line.partition("[")[0] for line in lines if line.startswith("next_")] == [
        "next_left", "next_right",
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "stride"), [("forward", 1), ("data", 1), ("data", 2)])
def test_padding_in_matrices_meets_no_infinity(kind: str, stride: int) -> None:
    function = Windows(1, 16, 9, 9, 16, 3, stride, 1, dtype="FLOAT16").make(kind)
    inputs = fill_beside_infinities(function)
    fused, kernels = lower(function, NAMES[0])
    assert any("recheck" in line for line in kernels[0].script)
    expect_some_finite(run_kernels(fused, kernels, inputs), evaluate(function, inputs))


def test_large_products_have_large_tiles_and_small_ones_small() -> None:
    for side, tile in ((2048, 128), (1024, 64), (512, 32)):
        (kernel,) = lower(Product(side, side, 64, dtype="f16", after=False).make(), NAMES[0])[1]
        assert f"tile i1 {tile} as row" in kernel.script


@pytest.mark.parametrize("name", NAMES)
def test_sizes_may_be_known_at_run_time_only(name: str) -> None:
    function = ir.parse("""
        func @f(%A: f16[N, 70], %B: f16[70, M]) -> (%C) {
          %C: f32[i0 < N, i1 < M] = sum[r0 < 70] mul(%A[i0, r0], %B[r0, i1])
        }""")
    fused, kernels = lower(function, name)
    # Versions for few rows have none.
    assert any(kernel.matrices for kernel in kernels)
    random = np.random.default_rng(0)
    for rows, columns in ((1, 1), (63, 65)):
        shapes = {"A": (rows, 70), "B": (70, columns)}
        inputs = {n: random.integers(-8, 8, s).astype(np.float16) for n, s in shapes.items()}
        got = run_kernels(fused, kernels, inputs)["C"]
        wanted = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64)
        assert np.array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    "product",
    [
        Product(33, 65, 40),
        Product(33, 65, 40, dtype="bf16"),
        # The factor is computed: it has more digits than a half.
        Product(33, 65, 40, dtype="f16", before=True),
        # Few rows are no tile.
        Product(3, 65, 40, dtype="f16"),
    ],
    ids=str,
)
def test_others_have_the_plain_kernel(product: Product) -> None:
    made = product.make()
    assert lower(made, NAMES[0])[1] == make_kernels(made, "hlsl")[1]


def test_nothing_changes_where_none_is_asked_for() -> None:
    (kernel,) = make_kernels(HALVES.make(), "hlsl")[1]
    assert not kernel.matrices
    assert not kernel.launch.subgroup
    assert not any(isinstance(s, MATRIX) for s in walk(kernel.body))


@pytest.mark.parametrize("name", NAMES)
def test_text_and_json_read_back_equal(name: str) -> None:
    (kernel,) = lower(HALVES.make(), name)[1]
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert kernel_from_json(kernel_to_json(kernel)) == kernel


# Scripts ------------------------------------------------------------------------------------


def schedule(script: str, dtype: str = "f16", name: str = "8x8x8/8") -> str:
    """The loops that a script makes of a product, from the loops of its last axes on."""
    function = Product(64, 64, 64, dtype=dtype, after=False).make()
    fusion = find_fusion(function, "hlsl")
    phases, _ = collect_group(fusion.function, fusion.groups[0])
    dialect = use_matrices(find_dialect("hlsl"), find_instruction(name))
    nest = naive(phases)
    calls = parse_script(script)
    return str(apply(nest, fusion.function, dialect.limits, *calls))


@pytest.mark.parametrize("name", NAMES)
def test_scripts_make_the_same_loops_again(name: str) -> None:
    fused, kernels = lower(HALVES.make(), name)
    (kernel,) = kernels
    fusion = find_fusion(HALVES.make(), "hlsl")
    phases, _ = collect_group(fusion.function, fusion.groups[0])
    limits = use_matrices(find_dialect("hlsl"), find_instruction(name)).limits
    nest = apply(naive(phases), fused, limits, *parse_script("\n".join(kernel.script)))
    assert tuple(nest.list_lines()) == kernel.schedule
    assert parse_nest(str(nest), nest.phases) == nest
    assert nest_from_json(nest_to_json(nest), nest.phases) == nest


def find_tiles(dtype: str = "f16") -> tuple[str, str]:
    """The calls before `tensorize`, and those after it, that the rule makes."""
    (kernel,) = lower(Product(64, 64, 64, dtype=dtype, after=False).make(), "8x8x8/8")[1]
    text = "\n".join(kernel.script)
    before, _, after = text.partition("tensorize row 8x8x8/8")
    assert after
    return before, after


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("tensorize row 4x4x4/8 1 1", "unknown matrix instruction '4x4x4/8'"),
        ("tensorize row 16x16x16/32 1 1", "target 'hlsl' is asked for another one"),
        ("tensorize row 8x8x8/8 3 1", "the tile is no whole number of 24 by 8 outputs"),
        ("tensorize row 8x8x8/8 0 1", "a subgroup has one matrix of sums at least"),
        ("tensorize column 8x8x8/8 1 1", "the tile is all that a work group has"),
        (
            "split point 4\ntensorize row 8x8x8/8 1 1",
            "its innermost loop walks a whole tile of points",
        ),
        ("unroll row\ntensorize row 8x8x8/8 1 1", "too many steps"),
        ("tensorize row 8x8x8/8 2 2\nsplit point 4", "what matrices multiply stays as it is"),
        (
            "tensorize row 8x8x8/8 2 2\ntensorize row 8x8x8/8 2 2",
            "the tile is all that a work group has",
        ),
    ],
)
def test_what_is_not_legal_is_refused_in_words(call: str, why: str) -> None:
    before, _ = find_tiles()
    with pytest.raises(Exception, match=why.replace("(", r"\(")):
        schedule(before + call)


def test_other_types_are_refused() -> None:
    before, _ = find_tiles()
    with pytest.raises(ScheduleError, match="the factors are FLOAT16 as they lie in memory"):
        schedule(before + "tensorize row 8x8x8/8 2 2", "f32")


# Kernels that are broken ----------------------------------------------------------------------


def change_each(
    statements: Sequence[k.Statement], kind: type[k.Statement]
) -> list[tuple[k.Statement, ...]]:
    """The statements without one of a kind, for each of them."""
    made: list[tuple[k.Statement, ...]] = []
    for at, statement in enumerate(statements):
        before, after = tuple(statements[:at]), tuple(statements[at + 1 :])
        if isinstance(statement, kind):
            made.append((*before, *after))
        made += [
            (*before, replace_body(statement, body), *after)
            for body in change_each(find_body(statement), kind)
        ]
    return made


def fails(function: ir.Function, kernel: k.Kernel, inputs: dict[str, Array]) -> str:
    """How a broken kernel is found out."""
    try:
        verify_kernel(kernel, "test", find_sizes(function, kernel))
        got = run_kernels(function, (kernel,), inputs)
    except KernelFault:
        return "fault"
    except InternalError:
        return "verifier"
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    off = any((np.abs(got[n] - wanted[n].astype(float)) > allowed[n]).any() for n in got)
    return "result" if off else ""


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (k.FillMatrix, {"fault"}),
        (k.LoadMatrix, {"fault"}),
        # What another strip has put there is taken for it.
        (k.StoreMatrix, {"fault", "result"}),
        (k.MultiplyMatrices, {"result"}),
        (k.Barrier, {"fault"}),
    ],
)
def test_a_missing_statement_is_found_out(kind: type[k.Statement], found: set[str]) -> None:
    fused, (kernel,) = lower(HALVES.make(), "8x8x16/8")
    inputs = make_inputs(fused, 1)
    assert fails(fused, kernel, inputs) == ""
    bodies = change_each(kernel.body, kind)
    broken = [dataclasses.replace(kernel, body=body) for body in bodies]
    assert broken
    assert {fails(fused, each, inputs) for each in broken} == found


GOOD = """
kernel product {
  launch ceil(1 / 1) groups of 16 in subgroups of 8, index u32
  buffer A: f16 read
  buffer C: f32 write
  shared array tile: f16[256]
  matrix left: f16[8, 8] left
  matrix right: f16[8, 8] right
  matrix total: f32[8, 8] sum
  for i in 0 .. 16 {
    let x: f32 = A[add(mul(i, 16), lane)]
    store_local tile[add(mul(i, 16), lane)] = x
  }
  fill_matrix total = 0.5
  barrier
  load_matrix left = tile[mul(subgroup, 128)] stride 16
  load_matrix right = tile[8] stride 16 transposed
  multiply_matrices total = left, right
  store_matrix C[mul(subgroup, 64)] stride 8 = total
}
"""


def interpret(text: str) -> Array:
    """What a kernel in text makes of numbers."""
    kernel = parse_kernel(text)
    sizes = {"A": 256, "C": 128}
    verify_kernel(kernel, "test", sizes)
    function = ir.parse("""
        func @f(%A: f16[256]) -> (%C) { %C: f32[i0 < 128] = %A[i0] }""")
    given = np.random.default_rng(0).integers(-8, 8, 256).astype(np.float16)
    return run_kernels(function, (kernel,), {"A": given})["C"]


def test_a_kernel_in_text_multiplies() -> None:
    given = np.random.default_rng(0).integers(-8, 8, 256).astype(np.float64).reshape(16, 16)
    made = interpret(GOOD).reshape(2, 8, 8)
    for number in (0, 1):
        left = given[8 * number : 8 * number + 8, :8]
        assert np.array_equal(made[number], 0.5 + left @ given[:8, 8:].T)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("groups of 16 in", "groups of 12 in", "groups are no whole number of subgroups"),
        (" in subgroups of 8", "", "do not share matrix 'left' evenly"),
        ("f16[8, 8] right", "f16[8, 8] left", "these matrices are not multiplied"),
        ("f16[8, 8] right", "f16[4, 16] right", "these matrices are not multiplied"),
        ("shared array tile", "array tile", "do not share 'tile'"),
        ("C[mul(subgroup, 64)] stride 8", "tile[mul(subgroup, 64)] stride 8", "holds no f32"),
        ("C[mul(subgroup, 64)] stride 8", "C[mul(subgroup, 64)] stride 7", "lie in each other"),
        ("C[mul(subgroup, 64)]", "C[mul(subgroup, 65)]", "elements 0 to 128 of 'C'"),
        ("tile[8] stride 16", "tile[140] stride 16", "elements 140 to 259 of 'tile'"),
        ("tile[8] stride 16", "tile[lane] stride 16", "items of a subgroup do not agree"),
        ("  barrier\n", "", "'tile' is read where another item writes it"),
        ("fill_matrix total = 0.5\n", "", "'total' is read before it is written"),
        (
            "multiply_matrices total = left, right\n",
            "if lt(lane, 8) {\n multiply_matrices total = left, right\n }\n",
            "a matrix is used where items of a group go different ways",
        ),
    ],
)
def test_what_no_device_may_do_is_found_out(old: str, new: str, why: str) -> None:
    assert old in GOOD
    with pytest.raises(InternalError, match=why):
        interpret(GOOD.replace(old, new))
