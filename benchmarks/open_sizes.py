"""`python -m benchmarks.open_sizes`: how long kernels of sizes that are left open take, beside
those of the same sizes known, as a table.

Nothing is run and nothing timed: times are those of the model, of one device. Without `--gpu` no
compiler for a GPU is needed, and they are rougher: see `docs/reference/gpu.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence

import dmlc
from dmlc.inspection import Inspection
from dmlc.inspection.launches import estimate_kernels
from dmlc.inspection.model import DEVICES
from dmlc.ir.specialize import specialize
from dmlc.kernel.arithmetic import bind_sizes
from dmlc.pipeline import make_kernels

LIMIT = 1.2
"""What kernels of open sizes may take, by those of known ones."""

Sizes = Mapping[str, int]
Shape = tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """An operator with sizes left open, and the sizes that it is looked at with."""

    operator: str
    tensors: Mapping[str, Shape]
    attributes: Mapping[str, object]
    sizes: Sequence[Sizes]

    def bind(self, sizes: Sizes | None = None) -> dmlc.ir.Function:
        """The function of open sizes, or of these."""
        given: dict[str, dmlc.TensorDesc] = {}
        for name, shape in self.tensors.items():
            settled = shape if sizes is None else tuple(sizes.get(str(e), e) for e in shape)
            given[name] = dmlc.TensorDesc("FLOAT32", settled)
        return dmlc.operator(self.operator).bind(given, self.attributes)


def _take(name: str, *sizes: int) -> list[Sizes]:
    return [{name: size} for size in sizes]


_MANY = (1, 17, 4096, 1_000_003)
_WINDOW: Mapping[str, object] = {
    "Strides": [1, 1], "Dilations": [1, 1], "StartPadding": [1, 1], "EndPadding": [1, 1],
    "OutputPadding": [0, 0],
}  # fmt: skip
_SCAN: Mapping[str, object] = {"AxisDirection": "INCREASING", "HasExclusiveSum": False}
_BOTH: list[Sizes] = [
    {"R": r, "C": c}
    for r, c in ((1, 1), (17, 17), (4096, 4096), (1, 1_000_003), (1_000_003, 1), (8192, 1000),
                 (4, 128_256), (300, 4096), (1_000_003, 17))
]  # fmt: skip


def _multiply(m: int | str, k: int | str, n: int | str, *sizes: Sizes) -> Row:
    return Row("directml.GEMM", {"ATensor": (m, k), "BTensor": (k, n)}, {}, sizes)


def _normalize(rows: int | str, columns: int | str, *sizes: Sizes) -> Row:
    given: dict[str, Shape] = {"src": (rows, columns), "gamma": (columns,), "beta": (columns,)}
    return Row("onednn.LayerNorm", given, {"keep_stats": False}, sizes)


def _soften(rows: int | str, columns: int | str, *sizes: Sizes) -> Row:
    return Row("onednn.SoftMax", {"src": (rows, columns)}, {"axis": 1}, sizes)


def _reduce(function: str, axes: list[int], shape: Shape, *sizes: Sizes) -> Row:
    given = {"Function": function, "Axes": axes}
    return Row("directml.REDUCE", {"InputTensor": shape}, given, sizes)


def _scan(axis: int, shape: Shape, *sizes: Sizes) -> Row:
    given = {"Axis": axis, **_SCAN}
    return Row("directml.CUMULATIVE_SUMMATION", {"InputTensor": shape}, given, sizes)


def _convolve(image: Shape, filters: Shape, *sizes: Sizes) -> Row:
    return Row(
        "directml.CONVOLUTION", {"InputTensor": image, "FilterTensor": filters}, _WINDOW, sizes
    )


def _attend(batch: int | str, length: int | str, *sizes: Sizes) -> Row:
    words: Shape = (batch, length, 1024)
    given: dict[str, Shape] = dict.fromkeys(("QueryTensor", "KeyTensor", "ValueTensor"), words)
    return Row("directml.MULTIHEAD_ATTENTION", given, {"Scale": 0.125, "HeadCount": 16}, sizes)


def _normalize_batch(image: Shape, channels: int | str, *sizes: Sizes) -> Row:
    statistics: Shape = (1, channels, 1, 1)
    given = {
        **dict.fromkeys(("InputTensor", "InputGradientTensor"), image),
        **dict.fromkeys(("MeanTensor", "VarianceTensor", "ScaleTensor"), statistics),
    }
    return Row("directml.BATCH_NORMALIZATION_TRAINING_GRAD", given, {"Epsilon": 1e-5}, sizes)


def _take_three(*sizes: tuple[int, int, int]) -> list[Sizes]:
    return [{"M": m, "K": k, "N": n} for m, k, n in sizes]


def _take_image(*sizes: tuple[int, int, int]) -> list[Sizes]:
    return [{"N": n, "H": h, "W": w} for n, h, w in sizes]


ROWS: Mapping[str, Row] = {
    "GEMM (N, 1024) x (1024, 1024)": _multiply("N", 1024, 1024, *_take("N", *_MANY)),
    "GEMM (1024, 1024) x (1024, N)": _multiply(1024, 1024, "N", *_take("N", *_MANY)),
    "GEMM (1024, N) x (N, 1024)": _multiply(1024, "N", 1024, *_take("N", *_MANY)),
    "GEMM (64, N) x (N, 64)": _multiply(64, "N", 64, *_take("N", *_MANY)),
    "GEMM (M, K) x (K, N)": _multiply(
        "M", "K", "N",
        *_take_three((1, 1, 1), (17, 17, 17), (1024, 1024, 1024), (4096, 4096, 4096),
                     (1, 4096, 4096), (8, 4096, 4096), (17, 4096, 4096), (4096, 4096, 8),
                     (4096, 4096, 1), (64, 1_000_003, 64), (8, 1_000_003, 8), (512, 8192, 512),
                     (1, 1_000_003, 1), (1_000_003, 17, 17), (4096, 17, 4096), (1, 17, 1_000_003),
                     (8, 128, 1_000_003), (32, 4096, 4096), (128, 4096, 128), (256, 256, 256)),
    ),
    "layer norm (N, 1024)": _normalize("N", 1024, *_take("N", *_MANY)),
    "layer norm (1024, N)": _normalize(1024, "N", *_take("N", *_MANY)),
    "layer norm (R, C)": _normalize("R", "C", *_BOTH),
    "batch norm's gradient (N, 64, 56, 56)": _normalize_batch(
        ("N", 64, 56, 56), 64, *_take("N", 1, 17, 128)
    ),
    "batch norm's gradient (N, C, H, W)": _normalize_batch(
        ("N", "C", "H", "W"), "C",
        *[
            {"N": n, "C": c, "H": h, "W": h}
            for n, c, h in ((1, 3, 224), (16, 3, 224), (8, 256, 14), (32, 64, 56))
        ],
    ),
    "softmax (N, 1024)": _soften("N", 1024, *_take("N", *_MANY)),
    "softmax (1024, N)": _soften(1024, "N", *_take("N", *_MANY)),
    "softmax (R, C)": _soften("R", "C", *_BOTH),
    "sum of N": _reduce("SUM", [0], ("N",), *_take("N", *_MANY)),
    "sum of rows (R, C)": _reduce("SUM", [1], ("R", "C"), *_BOTH),
    "sum of columns (R, C)": _reduce("SUM", [0], ("R", "C"), *_BOTH),
    "mean of all (R, C)": _reduce("AVERAGE", [0, 1], ("R", "C"), *_BOTH),
    "scan of N": _scan(0, ("N",), *_take("N", *_MANY)),
    "scan of rows (R, C)": _scan(1, ("R", "C"), *_BOTH),
    "scan of columns (R, C)": _scan(
        0, ("R", "C"), *_BOTH, {"R": 5000, "C": 50}, {"R": 5000, "C": 5}, {"R": 100_000, "C": 300},
    ),
    "attention (4, N, 16 x 64)": _attend(4, "N", *_take("N", 17, 128, 1024, 4096)),
    "attention (B, N, 16 x 64)": _attend(
        "B", "N", *[{"B": b, "N": n} for b, n in ((1, 17), (2, 1024), (64, 128), (8, 4096))]
    ),
    "convolution 3x3 (N, 64, 56, 56)": _convolve(
        ("N", 64, 56, 56), (64, 64, 3, 3), *_take("N", 1, 17, 128)
    ),
    "convolution 3x3 (8, 64, H, W)": _convolve(
        (8, 64, "H", "W"), (64, 64, 3, 3),
        *[{"H": h, "W": w} for h, w in ((7, 7), (17, 17), (56, 56), (224, 224))],
    ),
    "convolution 3x3 (N, 64, H, W)": _convolve(
        ("N", 64, "H", "W"), (64, 64, 3, 3),
        *_take_image((1, 7, 7), (1, 17, 17), (8, 56, 56), (1, 224, 224), (256, 14, 14)),
    ),
    "convolution 3x3 (N, C, H, W), K filters": _convolve(
        ("N", "C", "H", "W"), ("K", "C", 3, 3),
        *[
            {"N": n, "C": c, "H": h, "W": h, "K": k}
            for n, c, h, k in ((3, 5, 15, 5), (1, 16, 15, 8), (1, 16, 15, 16), (1, 64, 15, 64),
                               (8, 64, 56, 64))
        ],
    ),
}  # fmt: skip
"""Functions with sizes left open, by the names of the table's rows."""


def compare(row: Row, gpu: str, device: str) -> Iterator[tuple[Sizes, float, float]]:
    """The seconds of a row's kernels at each of its sizes, left open and known, on a device of the
    model. The kernels are those of the language that a GPU takes: see `inspect`; or where it is
    `hlsl` or `opencl`, that language's, without a compiler for a GPU."""
    if gpu not in ("hlsl", "opencl"):
        for sizes in row.sizes:
            open_one = dmlc.inspect(row.bind(), gpu, sizes=sizes)
            known = dmlc.inspect(row.bind(sizes), gpu)
            yield sizes, _find_time(open_one, device), _find_time(known, device)
        return
    compiled = make_kernels(row.bind(), gpu, "gpu")
    for sizes in row.sizes:
        function, kernels = compiled
        bound = [bind_sizes(kernel, sizes) for kernel in kernels]
        ran = [kernel for kernel in bound if kernel.launch.count]
        left = estimate_kernels(specialize(function, sizes), ran)
        known = estimate_kernels(*make_kernels(row.bind(sizes), gpu, "gpu"))
        yield sizes, sum(each[device] for each in left), sum(each[device] for each in known)


def _find_time(found: Inspection, device: str) -> float:
    (total,) = found.totals
    return next(m.microseconds for m in total.devices if m.device == device) * 1e-6


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.open_sizes")
    parser.add_argument("--row", action="append", metavar="PART", help="only rows with this")
    parser.add_argument(
        "--gpu", default="hlsl",
        help="what to compile for, as of dmlc inspect; or hlsl or opencl, for no GPU's compiler "
        "[default: hlsl]",
    )  # fmt: skip
    names = [device.name for device in DEVICES]
    parser.add_argument("--device", default=names[0], choices=names, help="of the model")
    given = parser.parse_args(arguments)
    print("| row | sizes | open, us | known, us | ratio |\n| --- | --- | --- | --- | --- |")
    above = 0
    for name, row in ROWS.items():
        if given.row and not any(part in name for part in given.row):
            continue
        for sizes, left, known in compare(row, given.gpu, given.device):
            shown = ", ".join(f"{symbol} = {size:,}" for symbol, size in sizes.items())
            mark = " over" if left > LIMIT * known else ""
            above += bool(mark)
            times = f"{left * 1e6:,.4g} | {known * 1e6:,.4g} | {left / known:.2f}{mark}"
            print(f"| {name} | {shown} | {times} |", flush=True)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
