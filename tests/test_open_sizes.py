"""Sizes left open until kernels run: one program for all of them, on every device, with formulas
for what a host must know."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlc
from benchmarks import open_sizes
from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.nodes import Access
from dmlc.kernel.rewrite import walk_parts, walk_statements
from dmlc.kernel.target import GPU
from dmlc.pipeline import compile, make_kernels
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.sizes import evaluate_size
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict
from tests.open_sizes import (
    SUBJECTS,
    Subject,
    compile_open,
    evaluate_formula,
    make_open_kernels,
)

ROOT = Path(__file__).resolve().parent.parent
MUST_RUN = ("relu_grad", "bn_training_grad", "softmax", "gemm")
DERIVED = (
    "padding", "padding_mirrored", "padding_of_edges", "join", "concat", "slice",
    "average_pooling", "max_pooling_of_halves", "convolution_of_strides", "depth_to_space_of_any",
    "space_to_depth", "tile",
)  # fmt: skip
"""Those with sizes that are made of open ones."""
TARGETS = {"opencl": ("opencl", None), "vulkan": ("hlsl", None), "opencl-gpu": ("opencl", "gpu")}


def check(
    subject: Subject, sizes: Mapping[str, int], inputs: dict[str, Array], got: dict[str, Array]
) -> None:
    """Holds results to the reference of the operator bound to the sizes themselves."""
    bound = subject.bind(sizes)
    expected, allowed = evaluate(bound, inputs), bound_errors(bound, inputs)
    for name, wanted in expected.items():
        verdict = Verdict.of(got[name], wanted, allowed[name])
        assert verdict.holds, f"{name} at {dict(sizes)}: {verdict}"


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_one_program_for_all_sizes(name: str, device: str) -> None:
    subject, chance = SUBJECTS[name], random.Random(name)
    target, profile = TARGETS[device]
    program = compile_open(name, target, profile)
    executable = dmlc.load_program(program, device.partition("-")[0])
    for number in range(8 if name in (*MUST_RUN, *DERIVED) else 4):
        sizes = subject.draw(chance)
        inputs = subject.make(sizes, number)
        got = executable(inputs)
        check(subject, sizes, inputs, got)
        again = executable(inputs)
        assert all(np.array_equal(got[n], again[n], equal_nan=True) for n in got)


@pytest.mark.parametrize("kind", [("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu")])
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_kernel_leaves_its_buffers(name: str, kind: tuple[str, str]) -> None:
    subject, chance = SUBJECTS[name], random.Random(name)
    most = {s: min(most, 9) for s, most in subject.sizes.items()}
    small = dataclasses.replace(subject, sizes=most)
    function, kernels = make_open_kernels(name, *kind)
    for number in range(2):
        sizes = small.draw(chance) if number else small.smallest()
        inputs = subject.make(sizes, number)
        check(subject, sizes, inputs, run_kernels(function, kernels, inputs))


def test_the_reference_takes_sizes_from_arrays() -> None:
    for name, subject in SUBJECTS.items():
        sizes = subject.draw(random.Random(name))
        inputs = subject.make(sizes, 0)
        known, found = evaluate(subject.bind(sizes), inputs), evaluate(subject.bind(), inputs)
        assert all(np.array_equal(known[n], found[n]) for n in known), name


def test_run_takes_functions_of_open_sizes() -> None:
    function = SUBJECTS["softmax"].bind()
    for device in ("opencl", "reference"):
        for shape in ((3, 5), (1, 1)):
            got = dmlc.run(function, {"InputTensor": np.zeros(shape, np.float32)}, device=device)
            assert np.allclose(got["OutputTensor"], 1 / shape[1])


@pytest.mark.parametrize("name", ["whole_sum", "column_sums", "bn_training_grad", "softmax"])
@pytest.mark.parametrize("kind", [("opencl", "gpu"), ("hlsl", "gpu")])
def test_strips_and_what_they_leave_over(name: str, kind: tuple[str, str]) -> None:
    """Work items read four points at a time, and then one by one up to the end, also of a piece."""
    subject = SUBJECTS[name]
    function, kernels = make_open_kernels(name, *kind)
    large = {
        "whole_sum": {"R": 700, "C": 900},
        "column_sums": {"R": 1200, "C": 3},
        "bn_training_grad": {"N": 2, "C": 3, "H": 33, "W": 40},
        "softmax": {"R": 2, "C": 1300},
    }
    for sizes in (subject.smallest(), large[name]):
        inputs = subject.make(sizes, 0)
        check(subject, sizes, inputs, run_kernels(function, kernels, inputs))


@pytest.mark.parametrize("kind", [("opencl", "gpu"), ("hlsl", "gpu")])
@pytest.mark.parametrize("length", [516, 1024, 1028])
def test_a_row_of_bounded_length_takes_one_step(kind: tuple[str, str], length: int) -> None:
    """Each work item has a vector of it, without a loop. Groups of 256 loop over longer rows."""
    subject, sizes = SUBJECTS["layer_norm"], {"T": 2, "C": length}
    function, kernels = make_open_kernels("layer_norm", *kind)
    inputs = subject.make(sizes, 0)
    check(subject, sizes, inputs, run_kernels(function, kernels, inputs))
    (ran,) = (kernel for kernel in kernels if evaluate_size(kernel.launch.count, sizes))
    loops = [s for s in walk_statements(ran.body) if isinstance(s, k.For)]
    parts = walk_parts(*walk_statements(loops))
    read = {p.buffer for p in parts if isinstance(p, k.Load)}
    assert ("src" not in read) == (length <= 1024 or kind[0] == "hlsl")


@pytest.mark.parametrize("kind", [("opencl", "gpu"), ("hlsl", "gpu")])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_few_long_rows_are_reduced_in_pieces(name: str, kind: tuple[str, str]) -> None:
    """Two kernels go through memory, as many as for known sizes. The last piece may be one
    element."""
    subject, (rows, columns) = SUBJECTS[name], SUBJECTS[name].sizes
    function, kernels = make_open_kernels(name, *kind)
    for sizes in ({rows: 2, columns: 1 << 15}, {rows: 1, columns: (1 << 15) + 1}):
        ran = [kernel for kernel in kernels if evaluate_size(kernel.launch.count, sizes)]
        assert len(ran) == 2
        assert evaluate_size(ran[0].launch.count, sizes) == sizes[rows] * -(-sizes[columns] // 4096)
        inputs = subject.make(sizes, 0)
        check(subject, sizes, inputs, run_kernels(function, kernels, inputs))


@pytest.mark.parametrize("sizes", [(8, 4999, 8), (15, 4097, 5), (16, 4096, 16)], ids=str)
def test_few_outputs_of_a_long_sum_are_small_tiles(sizes: tuple[int, int, int]) -> None:
    """Tiles of a product serve few rows and columns, too, and its points are cut into chunks."""
    subject, given = SUBJECTS["gemm"], dict(zip("MKN", sizes, strict=True))
    executable = dmlc.load_program(compile_open("gemm", "opencl", "gpu"), "opencl")
    inputs = subject.make(given, 0)
    check(subject, given, inputs, executable(inputs))
    _, kernels = make_open_kernels("gemm", "opencl", "gpu")
    first, _ = (kernel for kernel in kernels if evaluate_size(kernel.launch.count, given))
    assert "tile of 16 by 16" in first.walk


# Manifests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
@pytest.mark.parametrize("name", [*MUST_RUN, *(n for n in DERIVED if n != "padding_mirrored")])
def test_formulas_of_manifests(name: str, target: str) -> None:
    subject, chance = SUBJECTS[name], random.Random(name)
    program = compile_open(name, target)
    manifest = program.manifest()
    assert set(manifest["symbols"]) == set(subject.sizes)
    for number in range(20):
        sizes = subject.draw(chance)
        if number % 4 == 0:
            # More groups than a row has, too.
            large = dataclasses.replace(subject, sizes=dict.fromkeys(sizes, 9000))
            sizes = large.draw(chance)
        check_formulas(program, manifest, sizes)


def check_formulas(program: Program, manifest: dict[str, Any], sizes: dict[str, int]) -> None:
    for tensor in manifest["tensors"]:
        shape = [evaluate_formula(e, sizes) for e in tensor["sizes"]]
        count = int(np.prod(shape, dtype=object))
        if tensor["bytes"] is None:
            formulas = tensor["formulas"]
            assert evaluate_formula(formulas["elements"], sizes) == count
            size = -(-count * tensor["element_bytes"] // 4) * 4
            assert evaluate_formula(formulas["bytes"], sizes) == size
    for kernel, source in zip(manifest["kernels"], program.kernels, strict=True):
        dispatch = kernel["dispatch"]
        if dispatch["groups"] is None:
            groups = [evaluate_formula(text, sizes) for text in dispatch["formulas"]]
            assert tuple(groups) == source.dispatch.groups(sizes)
            count = evaluate_formula(dispatch["count"], sizes)
            total = -(-count // dispatch["per_group"])
            assert total <= groups[0] * groups[1] < total + (dispatch["row"] or 1)
            assert dispatch["row"] is None or groups[0] <= dispatch["row"]
        for scalar in kernel["scalars"]:
            assert 0 <= evaluate_formula(scalar["value"], sizes) < 2**63


def test_scratch_has_formulas() -> None:
    program = compile_open("softmax", "hlsl")
    found = {t["name"]: t for t in program.manifest()["tensors"] if t["role"] == "scratch"}
    parts = [t["formulas"] for name, t in found.items() if "sum_pieces" in name and not t["bytes"]]
    # Parts are as many as a version has, and one where another runs.
    for sizes in ({"R": 3, "C": 1 << 20}, {"R": 3, "C": 99}):
        counts = sorted(evaluate_formula(each["elements"], sizes) for each in parts)
        assert counts[-1] == (max(list_groups(program, sizes)) if sizes["C"] > 99 else 1)
        assert set(counts[:-1]) <= {1}
        assert sum(evaluate_formula(each["bytes"], sizes) for each in parts) == 4 * sum(counts)


def list_groups(program: Program, sizes: Mapping[str, int]) -> list[int]:
    """The groups of the kernels that run for some sizes."""
    groups = [kernel.dispatch.groups(dict(sizes))[0] for kernel in program.kernels]
    return [many for many in groups if many]


def test_a_host_runs_the_version_of_its_sizes() -> None:
    """Few outputs of many points are reduced in pieces, of which there are so many whatever the
    size is, and few points by one group."""
    program = compile_open("whole_sum", "hlsl")
    assert list_groups(program, {"R": 1, "C": 1}) == list_groups(program, {"R": 64, "C": 64}) == [1]
    odd = {"R": 999, "C": 1001}
    pieces, one = list_groups(program, odd)
    assert (one, pieces >= GPU.groups) == (1, True)
    (first,) = (k for k in program.kernels if k.dispatch.groups(odd)[0] > 1)
    # All pieces but the last have whole strips of what a group reads at once.
    length = f"2048 * ((C * R + {2048 * pieces - 1}) / {2048 * pieces})"
    assert [s.value for s in first.scalars] == [length, "C * R"]
    assert program.tensor(first.buffers[-1].tensor).bytes == 4 * pieces
    few = compile_open("few_channels", "hlsl")
    assert len(list_groups(few, {"N": 9, "H": 2, "W": 2})) == 1
    assert len(list_groups(few, {"N": 99, "H": 99, "W": 99})) > 1


@pytest.mark.parametrize(
    "name", ["whole_sum", "softmax", "column_sums", "gemm", "scan", "scan_of_columns"]
)
def test_one_version_runs_for_any_sizes(name: str) -> None:
    """Whichever sizes a host has, some kernels run, and they store all results once."""
    subject = SUBJECTS[name]
    program = compile_open(name, "hlsl")
    for size in (1, 15, 16, 17, 65, 255, 256, 511, 512, 8191, 8192, 1 << 20):
        for long in subject.sizes:
            sizes = {s: size if s == long else 16 for s in subject.sizes}
            ran = [k for k in program.kernels if k.dispatch.groups(sizes)[0]]
            stored = [b.tensor for k in ran for b in k.buffers if b.written]
            assert stored.count("OutputTensor") == 1, sizes


OUTPUTS_LEFT_OPEN = {"whole_sum": ("R", "C"), "softmax": ("C",), "column_sums": ("R",)}


@pytest.mark.parametrize("target", ["hlsl", "opencl-gpu"])
@pytest.mark.parametrize("name", OUTPUTS_LEFT_OPEN)
def test_no_size_leaves_a_gpu_idle(name: str, target: str) -> None:
    """A few outputs of a million points take many groups, though they may be many."""
    subject = SUBJECTS[name]
    program = compile_open(name, target.partition("-")[0], target.partition("-")[2] or None)
    assert program.warnings == ()
    for long in OUTPUTS_LEFT_OPEN[name]:
        for others in (1, 3):
            sizes = {s: 1_000_003 if s == long else others for s in subject.sizes}
            assert max(list_groups(program, sizes)) >= GPU.groups


@pytest.mark.parametrize("target", ["hlsl", "wgsl", "opencl-gpu"])
def test_scans_of_open_sizes_take_one_kernel_or_two(target: str) -> None:
    """A group has a short row, and of a long one each has a stretch, as of known sizes."""
    program = compile_open("scan", target.partition("-")[0], "gpu")
    assert program.warnings == ()
    for size in (1, 17, 255, 256, 257, 4095, 4096):
        assert list_groups(program, {"N": size}) == [1]
    for size in (4097, 16_384, 100_003):
        known = compile(SUBJECTS["scan"].bind({"N": size}), target.partition("-")[0], "gpu")
        assert list_groups(program, {"N": size}) == list_groups(known, {})
    for size in (1_000_000, 1_000_003):
        stretches = list_groups(program, {"N": size})
        assert len(stretches) == 2
        assert min(stretches) >= GPU.groups


def test_what_is_between_the_kernels_of_a_scan_has_formulas() -> None:
    """It has a place for each of the rows that lie side by side, and one where it is not wanted."""
    program = compile_open("scan_of_columns", "hlsl")
    totals = [t for t in program.manifest()["tensors"] if t["role"] == "scratch"]
    # One group scans short columns.
    short = {"B": 3, "N": 500, "C": 70}
    assert {evaluate_formula(t["formulas"]["elements"], short) for t in totals} == {1}
    for sizes in ({"B": 1, "N": 5000, "C": 70}, {"B": 2, "N": 100_000, "C": 600}):
        made = [
            evaluate_formula(t["formulas"]["elements"], sizes) for t in totals if not t["bytes"]
        ]
        assert sorted(made)[-2:] == [1, 32 * max(list_groups(program, sizes))]


AS_FAST = {
    "GEMM (64, N) x (N, 64)": None,
    "GEMM (M, K) x (K, N)": [
        {"M": 8, "K": 4096, "N": 4096}, {"M": 4096, "K": 4096, "N": 8},
        {"M": 64, "K": 1_000_003, "N": 64}, {"M": 4096, "K": 17, "N": 4096},
        {"M": 128, "K": 4096, "N": 128}, {"M": 1, "K": 1_000_003, "N": 1},
    ],
    "batch norm's gradient (N, C, H, W)": [
        {"N": 32, "C": 64, "H": 56, "W": 56}, {"N": 1, "C": 3, "H": 224, "W": 224},
    ],
    "convolution 3x3 (8, 64, H, W)": [{"H": 17, "W": 17}],
    "convolution 3x3 (N, C, H, W), K filters": [
        {"N": 3, "C": 5, "H": 15, "W": 15, "K": 5}, {"N": 1, "C": 16, "H": 15, "W": 15, "K": 16},
    ],
    "layer norm (N, 1024)": None,
    "layer norm (R, C)": [{"R": 8192, "C": 1000}, {"R": 4096, "C": 4096}, {"R": 300, "C": 4096}],
    "softmax (1024, N)": None,
    "softmax (R, C)": [{"R": 4, "C": 128_256}, {"R": 300, "C": 4096}],
    "sum of N": None,
    "sum of columns (R, C)": [{"R": 8192, "C": 1000}, {"R": 1_000_003, "C": 17}],
    "scan of N": None,
    "scan of rows (R, C)": [{"R": 1_000_003, "C": 1}],
    "scan of columns (R, C)": [{"R": 17, "C": 17}, {"R": 5000, "C": 50}, {"R": 1, "C": 1_000_003}],
}  # fmt: skip
"""Rows of the benchmark of open sizes, with some of its sizes or all."""


@pytest.mark.parametrize("name", AS_FAST)
def test_open_sizes_take_about_as_long_as_known_ones(name: str) -> None:
    """By the model of a device, without a compiler for one."""
    row = open_sizes.ROWS[name]
    row = dataclasses.replace(row, sizes=AS_FAST[name] or row.sizes)
    for sizes, left_open, known in open_sizes.compare(row, "hlsl", "h100"):
        assert left_open <= open_sizes.LIMIT * known, sizes


@pytest.mark.parametrize(
    ("name", "most"),
    [("GEMM (M, K) x (K, N)", 25), ("softmax (R, C)", 13), ("scan of columns (R, C)", 10)],
)
def test_one_of_few_versions_runs(name: str, most: int) -> None:
    """Whatever sizes are: just one kernel stores the result."""
    _, kernels = make_kernels(open_sizes.ROWS[name].bind(), "hlsl", "gpu")
    assert len(kernels) <= most
    chance = random.Random(name)
    for _ in range(200):
        sizes = {symbol: int(2 ** chance.uniform(0, 20.5)) for symbol in "RCMKN"}
        ran = [k for k in kernels if evaluate_size(k.launch.count, sizes)]
        results = [
            b.name
            for k in ran
            for b in k.buffers
            if b.access is not Access.READ and b.count is None
        ]
        assert len(results) == 1, sizes


def test_fours_of_an_open_size_are_moved_as_vectors() -> None:
    """Where rows begin with vectors, whatever the size is."""
    program = compile_open("scan", "hlsl")
    for size, lanes in ((4096, 4), (4095, 1), (1 << 20, 4), (1_000_003, 1)):
        ran = [k.source for k in program.kernels if k.dispatch.groups({"N": size})[0]]
        kind = "float4" if lanes == 4 else "float"
        assert all(f"StructuredBuffer<{kind}> InputTensor" in source for source in ran)


def test_other_scans_of_open_sizes_are_warned_of() -> None:
    """Of which no row has all."""
    function = ir.parse("""func @line(%X: f32[N]) -> (%Y) {
      %Y: f32[i0 < N] = sum[r0 < N where gt(mul(i0, 3), r0)] %X[r0]
    }""")
    warning, *_ = compile(function, "hlsl").warnings
    assert warning.code == "W0901"
    assert "points again for each element, where 'N' is" in warning.message


def test_a_symbol_says_where_it_stands() -> None:
    symbols = compile_open("gemm", "hlsl").manifest()["symbols"]
    assert symbols["K"] == {
        "meaning": "the size of axis 1 of ATensor, axis 0 of BTensor", "min": 1, "max": 2147418112
    }  # fmt: skip


def test_kernels_of_known_sizes_are_those_of_before() -> None:
    known = SUBJECTS["gemm"].bind({"M": 7, "K": 8, "N": 9})
    assert not known.symbols()
    assert "formulas" not in str(compile(known, "hlsl").manifest())


# What does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["opencl", "vulkan", "reference"])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 4), (5, 6)),
         "the size 'K' is 4 along axis 1 of ATensor, and 5 along axis 0 of BTensor"),
        (((3, 4), (4,)), "BTensor has the sizes [K, N], 2 of them, and the array given has 1"),
        (((3, 0), (0, 5)), "axis 1 of ATensor has 0 elements, and the size 'K' that is left open"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(
    shapes: tuple[tuple[int, ...], ...], message: str, device: str
) -> None:
    tensors = {"ATensor": ("M", "K"), "BTensor": ("K", "N")}
    function = Subject("directml.GEMM", tensors, {}, {}).bind()
    arrays = {n: np.zeros(s, np.float32) for n, s in zip(tensors, shapes, strict=True)}
    with pytest.raises(DmlcError) as raised:
        dmlc.run(function, arrays, device=device)
    assert message in str(raised.value)


def test_a_fixed_axis_beside_open_ones() -> None:
    function = SUBJECTS["relu_grad"].bind()
    x = np.zeros((5, 63), np.float32)
    with pytest.raises(DmlcError, match="axis 1 of InputTensor has 64 elements, and the array gi"):
        dmlc.run(function, {"InputTensor": x, "InputGradientTensor": x})


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("directml.ACTIVATION_RELU_GRAD",
     {"InputTensor": ("N", 4), "InputGradientTensor": ("M", 4)}, {},
     "InputGradientTensor has Sizes [M, 4]; InputTensor has Sizes [N, 4]"),
    ("directml.GEMM", {"ATensor": ("M", "K"), "BTensor": ("J", "N")}, {},
     "must be known when binding, and the sizes 'K' and 'J' are left open"),
    ("directml.MULTIHEAD_ATTENTION",
     {"QueryTensor": (1, 1, "N"), "KeyTensor": (1, 1, "N"), "ValueTensor": (1, 1, "N"),
      "OutputTensor": (1, 1, "N")}, {"Scale": 1, "HeadCount": 2},
     "they may differ where sizes are left open: give 'N' a number"),
    ("directml.RESAMPLE_GRAD1",
     {"InputGradientTensor": ("N", 8), "OutputGradientTensor": ("N", "P")},
     {"InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING", "Scales": [1, 2],
      "InputPixelOffsets": [-0.5, -0.5], "OutputPixelOffsets": [0.5, 0.5]},
     "the size 'P' of output 'OutputGradientTensor', along axis 1, is left open, and no input has"),
    ("directml.VALUE_SCALE_2D", {"InputTensor": (2, "C", 3, 3)}, {"Scale": 1, "Bias": [1, 2]},
     "attribute 'ChannelCount' is the size 'C' by itself, which is left open"),
    ("directml.TILE", {"InputTensor": ("2 * N",)}, {"Repeats": [2]},
     "the size 'N' of input 'InputTensor', along axis 0, is left open, and no input has it by its"),
    ("directml.SPACE_TO_DEPTH1", {"InputTensor": (1, 1, "2 * H + 1", "H")},
     {"BlockSize": 2, "Order": "DEPTH_COLUMN_ROW"},
     "broken constraint: the squares must fill the image"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "tensors", "attributes", "message"), REFUSED)
def test_what_binding_refuses(
    operator: str, tensors: dict[str, Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DmlcError) as raised:
        Subject(operator, tensors, attributes, {}).bind()
    assert message in str(raised.value)


def test_ranges_are_known_when_binding() -> None:
    tensors = {
        "InputTensor": dmlc.TensorDesc("f32", (2, 2)),
        "IndicesTensor": dmlc.TensorDesc("s32", (1, "N")),
    }
    attributes = {"InputDimensionCount": 2, "IndicesDimensionCount": 2}
    with pytest.raises(DmlcError, match=r"and the size 'N' is left open"):
        dmlc.operator("directml.GATHER_ND").bind(tensors, attributes)


def test_tables_along_open_axes() -> None:
    attributes = {
        "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING", "Scales": [1, 2],
        "InputPixelOffsets": [-0.5, -0.5], "OutputPixelOffsets": [0.5, 0.5],
    }  # fmt: skip
    tensors = {"InputGradientTensor": ("N", 8), "OutputGradientTensor": ("N", 4)}
    function = Subject("directml.RESAMPLE_GRAD1", tensors, attributes, {}).bind()
    with pytest.raises(UnsupportedError) as raised:
        compile(function, "hlsl")
    (found,) = raised.value.diagnostics
    assert found.message == (
        "'OutputGradientTensor' reduces over an axis of size 'N' (r0), and positions along it "
        "alone say which of its points count: that is a table, and there is none while 'N' is left "
        "open"
    )
    assert found.span is not None
    assert found.notes[0].message == (
        "give 'N' a number, or write the points that count as a window"
    )


TRIANGLE = """func @f(%X: f32[N, N]) -> (%Y) {
  %Y: f32[i0 < N] = sum[r0 < N where le(r0, i0)] %X[i0, r0]
}"""


def test_halves_two_to_a_word() -> None:
    statistics = dict.fromkeys(
        ("MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor"), (1, "C", 1, 1)
    )
    tensors: dict[str, Any] = {"InputTensor": ("N", "C", 4, 4), **statistics}
    attributes = {"Spatial": True, "Epsilon": 1e-5}
    function = Subject(
        "directml.BATCH_NORMALIZATION", tensors, attributes, {}, "FLOAT16"
    ).bind()  # fmt: skip
    assert compile(function, "hlsl").kernels
    with pytest.raises(UnsupportedError, match="'OutputTensor' is FLOAT16 with sizes that are lef"):
        compile(function, "hlsl", shader_model="6.0")


def test_a_triangle_is_no_table() -> None:
    function = ir.parse(TRIANGLE)
    x = np.arange(25, dtype=np.float32).reshape(5, 5)
    for device in ("opencl", "vulkan"):
        assert np.array_equal(dmlc.run(function, {"X": x}, device=device)["Y"], np.tril(x).sum(1))


def test_strides_need_numbers() -> None:
    with pytest.raises(
        DmlcError, match="a tensor with strides has sizes that are numbers, and 'N'"
    ):
        dmlc.TensorDesc("FLOAT32", ("N", 4), (4, 1))
    with pytest.raises(DmlcError, match="a tensor has no extent in memory before its size N is kn"):
        dmlc.TensorDesc("FLOAT32", ("N", 4)).total_bytes.bit_length()
    assert str(dmlc.TensorDesc("FLOAT32", ("N", 4))) == "FLOAT32[N, 4]"


def test_too_many_elements() -> None:
    program = compile_open("relu_grad", "opencl")
    executable = dmlc.load_program(program, "opencl")
    row = np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (2**26, 64), (0, 4))
    with pytest.raises(
        UnsupportedError, match="at most 2,147,418,112 elements, and InputTensor has"
    ):
        executable({"InputTensor": row, "InputGradientTensor": row})


def test_positions_that_sizes_prove_inside() -> None:
    """No test where a window lies inside whatever the sizes are, and positions of 32 bits."""
    program = compile_open("convolution_of_strides", "hlsl")
    sources = [kernel.source for kernel in program.kernels]
    assert not any("int64" in source for source in sources)
    # The first axis of space is padded, the second is not.
    tested = [each for s in sources for each in re.findall(r"if \((.*position.*)\) \{", s)]
    assert tested
    assert all(re.search(r"< H\)?$", each) and "W" not in each for each in tested)
    for name in ("join", "concat", "space_to_depth", "padding"):
        program = compile_open(name, "hlsl")
        assert all("int64" not in kernel.source for kernel in program.kernels), name


def test_products_go_through_tiles() -> None:
    """Work items of a group share tiles of both factors, whatever the sizes are, and add the
    products in the order that known sizes have."""
    subject = SUBJECTS["gemm"]
    function, kernels = make_open_kernels("gemm", "hlsl", "gpu")
    assert any(kernel.walk.startswith("a group computes a tile of 64 by 64") for kernel in kernels)
    for sizes in ({"M": 81, "N": 65, "K": 33}, {"M": 16, "N": 64, "K": 16}):
        inputs = subject.make(sizes, 1)
        got = run_kernels(function, kernels, inputs)
        known = run_kernels(*make_kernels(subject.bind(sizes), "hlsl", "gpu"), inputs)
        assert np.array_equal(got["OutputTensor"], known["OutputTensor"])


# What is taken to hold --------------------------------------------------------------------------


def test_a_size_is_taken_for_more_than_one_element() -> None:
    tensors = {"src": ("B", 3, 4), "weights": ("B", 4, 5)}
    subject = Subject("onednn.MatMul", tensors, {}, {"B": 5})
    function = subject.bind()
    assert function.checks == ("B != 1",)
    assert SUBJECTS["arg_max_of_all"].bind().checks == ("C * R <= 2147418112",)
    assert ir.parse(str(function)) == function
    assert ir.from_json(ir.to_json(function)) == function
    program = compile(function, "opencl")
    assert program.manifest()["checks"] == ["B != 1"]
    inputs = subject.make({"B": 2}, 0)
    check(subject, {"B": 2}, inputs, dmlc.run(function, inputs))
    for device in ("opencl", "vulkan", "reference"):
        with pytest.raises(DmlcError, match="MatMul was made for sizes where B != 1, and B is 1"):
            dmlc.run(function, subject.make({"B": 1}, 0), device=device)


TAKEN = {
    "all(repeats(Y.Sizes, X.Sizes))": (),
    "all(repeats(X.Sizes, Y.Sizes) || X.DimensionCount == 2)": (),
    "joint(X.Sizes, X.Sizes) == X.Sizes": (),
    "joint(X.Sizes[0], X.Sizes[0]) == X.Sizes[0]": (),
    "joint(Y.Sizes, X.Sizes) == X.Sizes": (),
    "X.Sizes[0] == 1 || X.Sizes[0] == 1 * X.Sizes[0]": (),
    "X.Sizes[0] >= 3 || X.Sizes[1] == Y.Sizes[1]": (),
    "X.Sizes[0] == 1 || X.Sizes[1] != 1 || X.DimensionCount == 2": (),
    "any(X.Sizes == 1) || any([X.Sizes[0] >= 3 && X.Sizes[1] >= 3, true])": (),
    "!(X.Sizes[0] != 1 && X.DimensionCount == 3)": (),
    "X.Sizes[0] == X.Sizes[1] || X.DimensionCount == 2": (),
    "X.Sizes[0] == 1 ? X.Sizes[1] >= 4 : Y.Sizes[1] >= 4": ("N >= 4",),
    "X.Sizes[0] == 1 ? X.Sizes[0] >= 4 : X.Sizes[1] >= 4": ("M != 1", "N >= 4"),
    "X.Sizes[0] >= 3 || X.Sizes[1] >= 3": ("M >= 3",),
    "X.Sizes[0] >= 3 || X.Sizes[0] == X.Sizes[1]": ("M >= 3",),
    "X.Sizes[0] == 1 || X.Sizes[0] >= 2": ("M != 1", "M >= 2"),
    "all(X.Sizes >= 2)": ("M >= 2", "N >= 2"),
}
"""What a `require` says of X: [M, N] and Y: [1, N], and what is checked when kernels run."""
REPEATING = """module m
function repeats(a, b) = a == 1 || a == b
function joint(a, b) = a == 1 ? b : a
operator SUM {{
    tensors {{
        | Tensor | Kind   | Ranks | Types   |
        | X      | Input  | 2     | FLOAT32 |
        | Y      | Input  | 2     | FLOAT32 |
        | Z      | Output | 2     | FLOAT32 |
    }}
    constraints {{ require {} }}
    compute {{ Z = X + Y }}
}}"""


def bind_required(condition: str) -> ir.Function:
    """An operator with such a constraint, bound to X: [M, N] and Y: [1, N]."""
    tensors = {
        "X": dmlc.TensorDesc("FLOAT32", ("M", "N")),
        "Y": dmlc.TensorDesc("FLOAT32", (1, "N")),
    }
    return dmlc.parse(REPEATING.format(condition)).operators["m.SUM"].bind(tensors)


@pytest.mark.parametrize("condition", TAKEN)
def test_what_holds_for_all_sizes_takes_no_check(condition: str) -> None:
    assert bind_required(condition).checks == TAKEN[condition]


def test_what_no_side_settles_is_refused() -> None:
    with pytest.raises(DmlcError, match="the sizes 'M' and 'N' are left open"):
        bind_required("X.Sizes[0] == X.Sizes[1] || X.DimensionCount == 3")
    with pytest.raises(DmlcError, match="broken constraint"):
        bind_required("X.Sizes[0] >= 3 && X.DimensionCount == 3")


def test_constraints_are_checked_when_kernels_run() -> None:
    """A window must fit into the padded image, whatever its size."""
    module = dmlc.parse(
        """module m
        operator LAST {
            tensors {
                | Tensor | Kind   | Ranks | Types   |
                | X      | Input  | 1     | FLOAT32 |
                | Y      | Output | 1     | FLOAT32 |
            }
            constraints { require X.Sizes[0] >= 3, "three at least" }
            compute { Y[i : 1] = sum[k : X.Sizes[0]](X[k]) }
        }"""
    )
    function = module.operators["m.LAST"].bind({"X": dmlc.TensorDesc("FLOAT32", ("N",))})
    assert function.checks == ("N >= 3",)
    assert dmlc.run(function, {"X": np.ones(3, np.float32)})["Y"].tolist() == [3.0]


# Graphs -----------------------------------------------------------------------------------------

GRAPH = """module g
graph norm[N, C](x: FLOAT32[N, C], dy: FLOAT32[N, C], scale: FLOAT32[1, C]) {
    masked = directml.ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: dy)
    total  = sum(masked * scale, axes: [0])
    output y = masked - total / N
}"""


def test_graphs_with_symbols_left_open() -> None:
    graph = dmlc.parse(GRAPH).graphs["g.norm"]
    function = graph.bind()
    assert function.symbols() == ("N", "C")
    half = graph.bind(dims={"C": 8})
    assert half.symbols() == ("N",)
    numbers = np.random.default_rng(0)
    for device in ("opencl", "vulkan"):
        for n in (1, 7, 300):
            x, dy = (numbers.standard_normal((n, 8)).astype(np.float32) for _ in "xy")
            given = {"x": x, "dy": dy, "scale": np.ones((1, 8), np.float32)}
            masked = np.where(x > 0, dy, 0).astype(np.float64)
            wanted = masked - masked.sum(0, keepdims=True) / n
            for made in (function, half):
                got = dmlc.run(made, given, device=device)["y"]
                assert np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


EXAMPLES = {
    "adam_clipped": {"A": 20, "B": 20, "C": 9, "D": 9},
    "gelu_mlp_backward": {"N": 20, "F": 40},
    "relu_batch_norm_backward": {"N": 4, "C": 9, "H": 9, "W": 9},
    "residual_block_backward": {"N": 4, "C": 9, "H": 9, "W": 9},
    "sgd_momentum": {"M": 40, "K": 30},
    "softmax_cross_entropy_backward": {"N": 30, "K": 90},
}


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_graphs_of_training_steps(name: str, target: str) -> None:
    graphs = dmlc.load(f"{ROOT}/examples/graphs/{name}.dml").graphs
    (graph,) = (g for g in graphs.values() if g.name.endswith(name))
    function, chance = graph.bind(), random.Random(name)
    assert set(function.symbols()) == set(EXAMPLES[name])
    executable = dmlc.load_program(
        compile(function, target), "opencl" if target == "opencl" else "vulkan"
    )
    for number in range(3):
        sizes = {s: chance.randint(1, most) for s, most in EXAMPLES[name].items()}
        bound = graph.bind(dims=sizes)
        numbers = np.random.default_rng(number)
        inputs: dict[str, Array] = {}
        for parameter in bound.parameters:
            shape = tuple(e for e in parameter.extents if isinstance(e, int))
            dtype = parameter.dtype.dtype
            whole = parameter.dtype.is_integer
            drawn = numbers.integers(0, sizes.get("K", 1), shape) if whole else None
            values = numbers.uniform(0.25, 2, shape) if drawn is None else drawn
            inputs[parameter.name] = values.astype(dtype)
        expected, allowed = evaluate(bound, inputs), bound_errors(bound, inputs)
        got = executable(inputs)
        for result, wanted in expected.items():
            verdict = Verdict.of(got[result], wanted, allowed[result])
            assert verdict.holds, f"{result} at {sizes}: {verdict}"


JOINED = """module g
graph pooled[N, C, S, H](
    x: FLOAT32[N, C, H], z: FLOAT32[N, S, H], filter: FLOAT32[4, C + S, 3]
) {
    both   = onednn.Concat(src: [x, z], axis: 1)
    image  = onednn.Convolution(
        src: both, weights: filter, strides: [1], pads_begin: [0], pads_end: [0], dilations: [1],
        data_format: "NCX", weights_format: "OIX")
    output y = onednn.AvgPool(
        src: image, strides: [2], kernel: [2], pads_begin: [0], pads_end: [0],
        exclude_pad: true, data_format: "NCX")
}"""


@pytest.mark.parametrize("device", ["reference", "opencl", "vulkan"])
def test_gradients_of_graphs_whose_sizes_are_made_of_symbols(device: str) -> None:
    derived = dmlc.gradient(dmlc.parse(JOINED).graphs["g.pooled"], wrt=["x", "z", "filter"])
    assert "d_y: FLOAT32[N, 4, floor(H / 2) - 1]" in str(derived)
    function = derived.bind()
    assert function.checks == ("H >= 3", "H >= 4")
    assert ir.parse(str(function)) == function
    assert ir.from_json(ir.to_json(function)) == function
    numbers = np.random.default_rng(0)
    for sizes in ({"N": 2, "C": 3, "S": 1, "H": 9}, {"N": 1, "C": 1, "S": 4, "H": 16}):
        bound = derived.bind(dims=sizes)
        inputs = {
            p.name: numbers.standard_normal([e for e in p.extents if isinstance(e, int)]).astype(
                np.float32
            )
            for p in bound.parameters
        }
        expected, allowed = evaluate(bound, inputs), bound_errors(bound, inputs)
        got = dmlc.run(function, inputs, device=device)
        for name, wanted in expected.items():
            verdict = Verdict.of(got[name], wanted, allowed[name])
            assert verdict.holds, f"{name} at {sizes}: {verdict}"
        inputs["d_y"] = inputs["d_y"][..., :-1]
        with pytest.raises(
            DmlcError, match=r"the size '\(H / 2\) - 1' is \d+ where 'H' is \d+ along"
        ):
            dmlc.run(function, inputs, device=device)


def test_inputs_of_graphs_take_names_of_their_own() -> None:
    graph = dmlc.parse(GRAPH).graphs["g.norm"]
    function = graph.bind({"x": ("rows", 8)})
    assert function.parameters[0].extents == ("rows", 8)
    assert function.parameters[2].extents == (1, 8)


def test_errors_are_bounded_at_the_sizes_of_arrays() -> None:
    subject, sizes = SUBJECTS["softmax"], {"R": 3, "C": 50}
    inputs = subject.make(sizes, 0)
    known, found = (bound_errors(f, inputs) for f in (subject.bind(sizes), subject.bind()))
    assert all(np.array_equal(known[n], found[n]) for n in known)
    with pytest.raises(DmlcError, match="the inputs of ACTIVATION_SOFTMAX1 do not fit"):
        bound_errors(subject.bind(), {"InputTensor": np.zeros(3, np.float32)})
