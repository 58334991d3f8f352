"""`dmlc.inspect` on Mesa's RADV: the seed operators with budgets, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dmlc
from dmlc.inspection import Compiled, InspectedKernel, Inspection, radv
from dmlc.source import DmlcError, UnavailableError, UnknownNameError, UnsupportedError
from tests.cli.conftest import Dmlc
from tests.cli.conftest import dmlc as command
from tests.inspection.budgets import by_mesa

__all__ = ["command"]

GPU = "gfx1100"
GRAPHS = Path(__file__).resolve().parents[2] / "examples" / "graphs"
WHOLE = (4096, 4096)
RELU_GRAD = "directml.ACTIVATION_RELU_GRAD"
SIZES = ("--tensor", "InputTensor=FLOAT32[64,64]", "--tensor", "InputGradientTensor=FLOAT32[64,64]")


def inspect(name: str, tensors: dict[str, Any], **attributes: object) -> Inspection:
    return dmlc.inspect(dmlc.operator(name).bind(tensors, attributes=attributes), [GPU])


def describe(data_type: str, *names: str) -> dict[str, dmlc.TensorDesc]:
    return dict.fromkeys(names, dmlc.TensorDesc(data_type, WHOLE))


def only(found: Inspection) -> tuple[InspectedKernel, Compiled]:
    (kernel,) = found.kernels
    (compiled,) = kernel.compiled
    return kernel, compiled


SEEDS: list[tuple[str, tuple[str, ...], str, int, float, float]] = [
    # name, tensors, type, bytes a load, bytes in flight, instructions an element: of a ReLU two are
    # the test that NaN stays
    ("directml.ACTIVATION_RELU", ("InputTensor",), "FLOAT32", 16, 64, 8),
    (RELU_GRAD, ("InputTensor", "InputGradientTensor"), "FLOAT32", 16, 128, 6),
    (RELU_GRAD, ("InputTensor", "InputGradientTensor"), "FLOAT16", 16, 128, 10),
    ("onednn.ReLU", ("src",), "FLOAT32", 16, 64, 8),
    ("onednn.ReLUBackward", ("src", "diff_dst"), "FLOAT32", 16, 128, 6),
]


@pytest.mark.parametrize(("name", "tensors", "data_type", "width", "flight", "instructions"), SEEDS)
def test_the_seed_operators_keep_to_their_budgets(
    name: str,
    tensors: tuple[str, ...],
    data_type: str,
    width: int,
    flight: float,
    instructions: float,
) -> None:
    found = inspect(name, describe(data_type, *tensors))
    kernel, compiled = only(found)
    assert kernel.points == kernel.outputs == 4096 * 4096
    assert kernel.reads_per_output == pytest.approx(len(tensors))
    assert (compiled.spilled_registers, compiled.scratch_bytes) == (0, 0)
    # The elements of the last group are loaded one by one.
    assert max(compiled.loads, key=compiled.loads.__getitem__) >= width
    assert compiled.bytes_in_flight >= flight
    assert compiled.instructions_per_output is not None
    assert compiled.instructions_per_output <= instructions
    assert found.find_share(GPU, "h100") > 0.9
    assert found.find_share(GPU, "8cu") > 0.95


def transpose(order: list[int], data_type: str, *sizes: int) -> Inspection:
    described = {"src": dmlc.TensorDesc(data_type, sizes)}
    return inspect("onednn.StaticTranspose", described, order=order)


@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize(("order", "sizes"), [((1, 0), WHOLE), ((0, 2, 3, 1), (32, 64, 56, 56))])
def test_transposes_keep_to_their_budgets(
    order: tuple[int, ...], sizes: tuple[int, ...], data_type: str
) -> None:
    found = transpose(list(order), data_type, *sizes)
    kernel, compiled = only(found)
    moved = kernel.bytes_read + kernel.bytes_written
    # Every sector is moved once, and what lies in a line is read and stored together.
    assert kernel.cache_bytes == pytest.approx(moved)
    assert kernel.line_bytes <= (1 if data_type == "FLOAT32" else 2) * moved * 1.001
    assert (set(compiled.loads), set(compiled.stores)) == ({16}, {16})
    assert (compiled.spilled_registers, compiled.scratch_bytes, compiled.barriers) == (0, 0, 1)
    assert compiled.bytes_in_flight >= 16
    # Halves are put into words: an instruction for each two, beside what moves them.
    assert (compiled.instructions_per_output or 1e9) <= (11 if data_type == "FLOAT32" else 12)
    for device in ("h100", "rtx4070", "8cu"):
        assert found.find_share(GPU, device) >= 0.95


def test_an_operand_that_lies_across_is_read_beside_others() -> None:
    across = dmlc.TensorDesc("FLOAT32", WHOLE, strides=(1, WHOLE[0]))
    tensors = describe("FLOAT32", "InputGradientTensor") | {"InputTensor": across}
    found = inspect(RELU_GRAD, tensors)
    _, compiled = only(found)
    assert (set(compiled.loads), set(compiled.stores)) == ({16}, {16})
    # Both operands are asked for before the work items wait for each other.
    assert compiled.bytes_in_flight >= 64
    assert found.find_share(GPU, "h100") >= 0.95


def test_what_has_no_tile_is_seen_to_look_up_many_lines() -> None:
    # Seven rows are too few for one.
    found = transpose([1, 0], "FLOAT32", 1 << 20, 7)
    (kernel,) = found.kernels
    assert kernel.line_bytes >= 3 * (kernel.bytes_read + kernel.bytes_written)


def test_batch_normalization_keeps_to_its_budget() -> None:
    whole, ones = (32, 64, 56, 56), (1, 64, 1, 1)
    sizes = {"InputTensor": whole, "InputGradientTensor": whole, "MeanTensor": ones,
             "VarianceTensor": ones, "ScaleTensor": ones}  # fmt: skip
    tensors = {name: dmlc.TensorDesc("FLOAT32", s) for name, s in sizes.items()}
    found = inspect("directml.BATCH_NORMALIZATION_TRAINING_GRAD", tensors, Epsilon=1e-5)
    made = [(kernel, *kernel.compiled) for kernel in found.kernels]
    assert [kernel.groups for kernel, _ in made] == [1024, 1024]
    instructions = [compiled.instructions_per_point or 1e9 for _, compiled in made]
    # A sum that begins with 0 adds its first term: 0 + -0 is not -0.
    assert sum(instructions) <= by_mesa(31, 32)
    for _, compiled in made:
        assert compiled.spilled_registers == 0
        assert max(compiled.loads, key=compiled.loads.__getitem__) == 16
        assert compiled.bytes_in_flight >= 64
    assert [compiled.barriers for _, compiled in made] == [2, 0]
    assert found.find_share(GPU, "h100") > 0.9


def test_a_layer_normalization_reads_its_tensors_once_for_all_its_gradients() -> None:
    rows, columns = 8192, 1024
    sizes = {"src": (rows, columns), "diff_dst": (rows, columns), "mean": (rows,),
             "variance": (rows,), "gamma": (columns,), "beta": (columns,),
             "diff_gamma": (columns,), "diff_beta": (columns,)}  # fmt: skip
    tensors = {name: dmlc.TensorDesc("FLOAT32", s) for name, s in sizes.items()}
    found = inspect("onednn.LayerNormBackward", tensors)
    assert [kernel.groups for kernel in found.kernels] == [512, 128]
    (first, second) = (compiled for kernel in found.kernels for compiled in kernel.compiled)
    assert (first.spilled_registers, second.spilled_registers) == (0, 0)
    assert (first.instructions_per_output or 1e9) <= 30
    # 32 of them hold what the columns have come to, and 48 a row.
    assert (first.registers or 1e9) <= 128
    assert first.loads[16] == 12
    assert first.bytes_in_flight >= by_mesa(128, 116)
    assert second.bytes_in_flight >= 64
    assert found.find_share(GPU, "h100") >= 0.85


def test_a_loss_over_many_classes_goes_through_its_logits_in_one_kernel() -> None:
    (graph,) = dmlc.load(GRAPHS / "softmax_cross_entropy_backward.dml").graphs.values()
    found = dmlc.inspect(graph.bind(dims={"N": 128, "K": 32000}), [GPU])
    rows, total = found.kernels
    assert (rows.groups, total.groups, total.group_size) == (128, 1, 1024)
    assert all(kernel.threads >= 1024 for kernel in found.kernels)
    # A number a row.
    assert total.bytes_read == 128 * 4
    (compiled,) = rows.compiled
    assert compiled.spilled_registers == 0
    assert (compiled.instructions_per_output or 1e9) <= 110
    assert max(compiled.loads, key=compiled.loads.__getitem__) == 16
    assert compiled.bytes_in_flight >= 40
    assert found.find_share(GPU, "h100") >= 0.5
    assert found.find_share(GPU, "rtx4070") >= 0.9


def test_a_softmax_gradient_of_few_rows_is_shared_out_in_pieces() -> None:
    sizes = dmlc.TensorDesc("FLOAT32", (4, 128256))
    found = inspect("onednn.SoftMaxBackward", {"diff_dst": sizes, "dst": sizes}, axis=1)
    assert [kernel.groups for kernel in found.kernels] == [124, 124]
    for kernel in found.kernels:
        (compiled,) = kernel.compiled
        assert compiled.spilled_registers == 0
        assert (compiled.instructions_per_point or 1e9) <= by_mesa(12, 13)
        assert max(compiled.loads, key=compiled.loads.__getitem__) == 16
    # Two launches take 4 of 6.5 microseconds.
    assert found.find_share(GPU, "h100") >= 0.6


WINDOW = {"Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1], "EndPadding": [0, 0]}
RESAMPLE = {
    "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING",
    "Scales": [1.0, 1.0, 2.0, 2.0], "InputPixelOffsets": [-0.5] * 4,
    "OutputPixelOffsets": [0.5] * 4,
}  # fmt: skip
WINDOWS: list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]], list[float]]] = [
    # name, attributes, sizes, instructions an output of each kernel
    ("AVERAGE_POOLING_GRAD", WINDOW | {"IncludePadding": True},
     {"InputGradientTensor": (8, 64, 56, 56), "OutputGradientTensor": (8, 64, 112, 112)}, [12]),
    ("MAX_POOLING_GRAD", WINDOW | {"Dilations": [1, 1]},
     {"InputTensor": (8, 64, 112, 112), "InputGradientTensor": (8, 64, 56, 56)}, [60, 20]),
    ("MAX_POOLING2", WINDOW | {"Dilations": [1, 1]}, {"InputTensor": (8, 64, 112, 112)}, [52]),
    ("RESAMPLE_GRAD1", RESAMPLE,
     {"InputGradientTensor": (8, 64, 112, 112), "OutputGradientTensor": (8, 64, 56, 56)}, [50]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attributes", "sizes", "budgets"), WINDOWS)
def test_windows_keep_to_their_budgets(
    name: str,
    attributes: dict[str, Any],
    sizes: dict[str, tuple[int, ...]],
    budgets: list[float],
) -> None:
    tensors = {tensor: dmlc.TensorDesc("FLOAT32", extents) for tensor, extents in sizes.items()}
    found = inspect(f"directml.{name}", tensors, **attributes)
    assert len(found.kernels) == len(budgets)
    for kernel, budget in zip(found.kernels, budgets, strict=True):
        (compiled,) = kernel.compiled
        assert compiled.spilled_registers == 0
        assert (compiled.instructions_per_output or 1e9) <= budget
        assert max(compiled.stores) == 16
    assert found.find_share(GPU, "h100") >= 0.8


def test_a_reduction_is_told_apart_loop_by_loop() -> None:
    # Rows of columns that do not lie in vectors.
    tensors = {"InputTensor": dmlc.TensorDesc("FLOAT32", (256, (1 << 20) + 1))}
    found = inspect("directml.REDUCE", tensors, Function="SUM", Axes=[1])
    kernel, compiled = only(found)
    assert kernel.reads_per_output == pytest.approx((1 << 20) + 1, rel=0.01)
    # More than once through the code for each of the many points that a thread reduces.
    assert compiled.instructions < (compiled.instructions_per_thread or 0)
    assert compiled.bytes_in_flight >= 15


def test_a_product_is_counted_by_its_points() -> None:
    whole = (1, 1, 256, 256)
    tensors = {name: dmlc.TensorDesc("FLOAT32", whole) for name in ("ATensor", "BTensor")}
    kernel, compiled = only(inspect("directml.GEMM", tensors))
    assert kernel.points == 256**3
    assert compiled.instructions_per_point is not None
    assert compiled.instructions_per_point <= 25
    assert compiled.spilled_registers == 0


def test_a_graph_has_a_kernel_after_the_other() -> None:
    path = (
        Path(__file__).resolve().parents[2] / "examples/graphs/softmax_cross_entropy_backward.dml"
    )
    (graph,) = dmlc.load(path).graphs.values()
    found = dmlc.inspect(graph.bind(dims={"N": 64, "K": 1000}), [GPU, "vega10"])
    assert len(found.kernels) > 1
    assert [[c.gpu for c in kernel.compiled] for kernel in found.kernels] == [
        [GPU, "vega10"]
    ] * len(found.kernels)
    assert [total.gpu for total in found.totals] == [GPU, "vega10"]
    for number, total in enumerate(found.totals):
        for device, modelled in enumerate(total.devices):
            each = [k.compiled[number].devices[device].microseconds for k in found.kernels]
            assert modelled.microseconds == pytest.approx(sum(each))


def test_devices_of_this_process_stay_as_they_are() -> None:
    before = dict(os.environ)
    dmlc.inspect(dmlc.operator("onednn.ReLU").bind(describe("FLOAT32", "src")))
    assert dict(os.environ) == before


# Refusals ---------------------------------------------------------------------------------------


def test_sizes_must_be_known() -> None:
    with pytest.raises(DmlcError, match="sizes that are not known: n"):
        dmlc.inspect("onednn.ReLU")


def test_gpus_must_be_known_to_the_driver() -> None:
    function = dmlc.operator("onednn.ReLU").bind(describe("FLOAT32", "src"))
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'gfx11'[^$]*RADV here .*gfx1100"):
        dmlc.inspect(function, "gfx11")
    assert GPU in radv.list_gpus()


@pytest.mark.parametrize("names", [("GFX1100", "GFX1103_R1"), ("NAVI31", "PHOENIX")])
def test_a_gpu_keeps_its_names_whatever_the_driver_calls_it(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    library = tmp_path / "libvulkan_radeon.so"
    library.write_bytes(b"\0".join([b"", b"VEGA10", *(name.encode() for name in names), b""]))
    first, second = (name.lower() for name in names)
    assert radv._list_names(library) == {
        "vega10": "vega10", "navi31": first, "phoenix": second, "gfx1100": first,
        "gfx1103_r1": second,
    }  # fmt: skip


def test_a_gpu_must_be_named() -> None:
    function = dmlc.operator("onednn.ReLU").bind(describe("FLOAT32", "src"))
    with pytest.raises(DmlcError, match="names no GPU"):
        dmlc.inspect(function, [])


def test_types_that_a_gpu_lacks_are_named() -> None:
    function = dmlc.operator("onednn.ReLU").bind(describe("FLOAT16", "src"))
    with pytest.raises(UnsupportedError, match=r"tahiti lacks .* Float16[^$]*shader model 6\.0"):
        dmlc.inspect(function, "tahiti")


def test_without_the_driver_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        monkeypatch.setenv(variable, str(tmp_path))
    function = dmlc.operator("onednn.ReLU").bind({"src": dmlc.TensorDesc("FLOAT32", (3, 5))})
    with pytest.raises(UnavailableError, match=r"RADV[^$]*apt-get install .*mesa-vulkan-drivers"):
        dmlc.inspect(function)


def test_a_driver_that_is_named_for_others_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(variable, str(tmp_path / "missing.json"))
    function = dmlc.operator("onednn.ReLU").bind({"src": dmlc.TensorDesc("FLOAT32", (7, 5))})
    assert dmlc.inspect(function).kernels


# The command ------------------------------------------------------------------------------------


def test_the_command_tells_people(command: Dmlc) -> None:
    done = command("inspect", RELU_GRAD, *SIZES)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "kernel 1 of 1: ACTIVATION_RELU_GRAD"
    assert lines[1] == "  launch        1 group of 256 threads, at most 8 steps a thread"
    assert lines[2].split("; ") == [
        "  memory        32.8 kB read, 16.4 kB written, 49.2 kB through the cache, "
        "49.2 kB in lines",
        "2 reads an output",
    ]
    assert "none spilled" in done.out
    assert " a point, 0% multiply-adds" in done.out
    assert "8 x 16 B loads" in done.out
    assert "all of ACTIVATION_RELU_GRAD as compiled for gfx1100, modelled" in lines
    assert "buffer_load_b128" not in done.out
    assert "buffer_load_b128" in command("inspect", RELU_GRAD, *SIZES, "--isa").out


def test_the_command_writes_json(command: Dmlc) -> None:
    done = command("inspect", RELU_GRAD, *SIZES, "--gpu", "gfx1100, navi21", "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert list(found) == ["version", "name", "kernels", "rooflines", "totals"]
    assert found["version"] == 1
    (kernel,) = found["kernels"]
    assert (kernel["groups"], kernel["outputs"], kernel["bytes_read"]) == (1, 4096, 32768)
    assert [compiled["gpu"] for compiled in kernel["compiled"]] == ["gfx1100", "navi21"]
    compiled = kernel["compiled"][0]
    assert compiled["loads"] == {"16": 8, "4": 2}
    assert "isa" not in compiled
    assert [d["device"] for d in compiled["devices"]] == ["h100", "rtx4070", "8cu"]
    assert 0 < found["totals"][0]["devices"][0]["share_of_roofline"] <= 1
    whole = json.loads(command("inspect", RELU_GRAD, *SIZES, "--json", "--isa").out)
    assert "s_endpgm" in whole["kernels"][0]["compiled"][0]["isa"]


def test_every_figure_of_the_json_is_documented(command: Dmlc) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/gpu.md").read_text("utf-8")
    found = json.loads(command("inspect", RELU_GRAD, *SIZES, "--json").out)
    kernel = found["kernels"][0]
    for name in (*found, *kernel, *kernel["compiled"][0]):
        assert f"`{name}`" in page, name


def test_the_command_says_what_is_wrong(command: Dmlc) -> None:
    assert command("inspect", RELU_GRAD, *SIZES, "--gpu", ",").status == 2
    done = command("inspect", RELU_GRAD, *SIZES, "--gpu", "gfx1")
    assert done.status == 1
    assert done.err.startswith("error: unknown GPU 'gfx1'")
    done = command("inspect", RELU_GRAD)
    assert done.status == 1
    assert "sizes that are not known" in done.err


def test_a_schedule_of_ones_own_is_inspected() -> None:
    sizes = {"ATensor": (1, 1, 64, 4096), "BTensor": (1, 1, 4096, 64)}
    tensors = {name: dmlc.TensorDesc("FLOAT32", own) for name, own in sizes.items()}
    product = dmlc.operator("directml.GEMM").bind(tensors)
    for schedule, kernels in (("kernel OutputTensor", 1), ("kernel OutputTensor\nrfactor k 64", 2)):
        found = dmlc.inspect(product, [GPU], schedule=schedule)
        assert len(found.kernels) == kernels
