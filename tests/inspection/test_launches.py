"""Times of kernels that no GPU's compiler has seen."""

from __future__ import annotations

import pytest

import dmlc
from benchmarks import open_sizes
from dmlc import ir
from dmlc.inspection.launches import estimate_kernels, read_launch
from dmlc.inspection.model import DEVICES
from dmlc.inspection.work import count_work
from dmlc.kernel.arithmetic import bind_sizes
from dmlc.pipeline import make_kernels
from dmlc.source import DmlcError


def find_times(function: ir.Function) -> dict[str, float]:
    taken = estimate_kernels(*make_kernels(function, "hlsl"))
    return {device.name: sum(each[device.name] for each in taken) for device in DEVICES}


def relu(count: int) -> ir.Function:
    return dmlc.operator("directml.ACTIVATION_RELU").bind(
        {"InputTensor": dmlc.TensorDesc("FLOAT32", (count,))}
    )


def gemm(size: int) -> ir.Function:
    square = dmlc.TensorDesc("FLOAT32", (size, size))
    return dmlc.operator("directml.GEMM").bind({"ATensor": square, "BTensor": square})


def test_a_large_element_wise_kernel_takes_the_time_of_its_bytes() -> None:
    times = find_times(relu(1 << 24))
    for device in DEVICES:
        wanted = device.launch + (2 << 26) / device.bandwidth
        assert times[device.name] == pytest.approx(wanted, rel=0.02)


def test_a_small_one_takes_little_but_its_launch() -> None:
    times = find_times(relu(64))
    assert all(device.launch < times[device.name] < 1.1 * device.launch for device in DEVICES)


def test_a_large_product_takes_at_least_the_time_of_its_arithmetic() -> None:
    times = find_times(gemm(1024))
    for device in DEVICES:
        least = 1024**3 / device.rate
        assert least < times[device.name] < 2 * least


def test_kernels_follow_one_another() -> None:
    softmax = dmlc.operator("onednn.SoftMaxBackward").bind(
        dict.fromkeys(("diff_dst", "dst"), dmlc.TensorDesc("FLOAT32", (4, 128256))), {"axis": 1}
    )
    function, kernels = make_kernels(softmax, "hlsl")
    taken = estimate_kernels(function, kernels)
    assert len(taken) == len(kernels) > 1
    # The second reads what is still in the cache.
    alone = estimate_kernels(function, kernels[1:])[0]
    assert taken[1]["h100"] < alone["h100"]


def test_sizes_must_be_known() -> None:
    function, kernels = make_kernels(dmlc.operator("directml.ACTIVATION_RELU").bind(), "hlsl")
    with pytest.raises(DmlcError, match="launched by a size that is not known"):
        estimate_kernels(function, kernels)
    (symbol,) = function.symbols()
    bound = [bind_sizes(kernel, {symbol: 1 << 24}) for kernel in kernels]
    given = ir.specialize(function, {symbol: 1 << 24})
    (found,) = estimate_kernels(given, bound)
    assert found["h100"] == pytest.approx(find_times(relu(1 << 24))["h100"], rel=0.01)


def test_slices_of_points_are_assumed_to_be_equally_long() -> None:
    tensors = {
        "IndexTensor": dmlc.TensorDesc("INT32", (65536,)),
        "InputGradientTensor": dmlc.TensorDesc("FLOAT32", (65536, 64)),
        "OutputGradientTensor": dmlc.TensorDesc("FLOAT32", (32000, 64)),
    }
    function, kernels = make_kernels(
        dmlc.operator("training.EMBEDDING_GRAD").bind(tensors), "hlsl", "gpu"
    )
    launch = read_launch(function, kernels[-1])
    assert launch.steps.longest is None
    assert [name.rpartition("_")[2] for name in sorted(launch.assumed)] == ["order", "start"]
    # Each point is added once, whichever element it is for.
    assert launch.steps.loads == pytest.approx(2 * 65536 * 64 + 2 * 32000 * 64, rel=0.2)
    assert count_work(function).operations == pytest.approx(65536 * 64, rel=0.05)
    copied = (65536 + 32000) * 64 * 4 / DEVICES[0].bandwidth
    assert estimate_kernels(function, kernels)[-1]["h100"] < 1.3 * copied + 3e-6


def test_few_long_rows_are_reduced_by_large_groups() -> None:
    rows = dmlc.TensorDesc("FLOAT32", (128, 32768))
    softmax = dmlc.operator("onednn.SoftMax").bind({"src": rows}, attributes={"axis": 1})
    ((kernel,), times) = make_kernels(softmax, "hlsl", "gpu")[1], find_times(softmax)
    assert kernel.launch.group_size == 512
    copied = 2 * 128 * 32768 * 4 / DEVICES[0].bandwidth
    # Groups of 256 would wait for memory: 1.5 times as long.
    assert times["h100"] < 1.1 * copied + DEVICES[0].launch


@pytest.mark.parametrize(("filters", "side"), [(8, 14), (256, 3)])
def test_windows_of_few_filters_or_positions_have_tiles(filters: int, side: int) -> None:
    """Each output by itself takes twice as long, and of 9 positions seven times."""
    row = open_sizes.ROWS["convolution 3x3 (N, C, H, W), K filters"]
    bound = row.bind({"N": 1, "C": 64, "H": side, "W": side, "K": filters})
    _, (kernel, *_) = make_kernels(bound, "hlsl", "gpu")
    assert kernel.walk.startswith("a group computes a tile of")
