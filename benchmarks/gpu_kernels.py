"""`python -m benchmarks.gpu_kernels`: what `dmlc inspect` says of kernels that matter, as a table.

Nothing is run and nothing timed: kernels are compiled offline for one GPU, and times are those of
the model. With `--write` the table goes into `docs/reference/gpu.md`. `gpu_kernels.json` keeps the
figures of an earlier state of the compiler, which stand before today's; `--record` keeps today's.
`--products` shows the table of matrix products instead, of GPUs of two vendors.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dmlc
from benchmarks import gpu_scan
from dmlc.inspection import InspectedKernel, Inspection

GPU = "gfx1100"
PRODUCT_GPUS = (GPU, "sm_90")
LAYOUTS = ("NN", "NT", "TN", "TT")

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGE = _ROOT / "docs" / "reference" / "gpu.md"
_RECORD = pathlib.Path(__file__).with_suffix(".json")
_NAME, _PRODUCTS_NAME = "benchmarks.gpu_kernels", "benchmarks.gpu_kernels --products"

Figures = dict[str, Any]


def _tensors(**sizes: tuple[int, ...]) -> dict[str, dmlc.TensorDesc]:
    return {name: dmlc.TensorDesc("FLOAT32", extents) for name, extents in sizes.items()}


def _bind(name: str, attributes: Mapping[str, object], **sizes: tuple[int, ...]) -> Any:
    return dmlc.operator(name).bind(_tensors(**sizes), attributes=attributes)


def _relu(data_type: str) -> Any:
    described = dmlc.TensorDesc(data_type, (4096, 4096))
    names = ("InputTensor", "InputGradientTensor")
    return dmlc.operator("directml.ACTIVATION_RELU_GRAD").bind(dict.fromkeys(names, described))


def _batch_norm(*sizes: int) -> Any:
    whole, ones = sizes, (1, sizes[1], *(1 for _ in sizes[2:]))
    return _bind(
        "directml.BATCH_NORMALIZATION_TRAINING_GRAD", {"Epsilon": 1e-5},
        InputTensor=whole, InputGradientTensor=whole, MeanTensor=ones, VarianceTensor=ones,
        ScaleTensor=ones,
    )  # fmt: skip


def _batch_norm_graph(name: str) -> Any:
    return _graph(name, N=32, C=64, H=56, W=56)


def _graph(name: str, **dims: int) -> Any:
    (graph,) = dmlc.load(_ROOT / "examples" / "graphs" / f"{name}.dml").graphs.values()
    return graph.bind(dims=dims)


def _softmax_grad(*sizes: int) -> Any:
    return _bind("onednn.SoftMaxBackward", {"axis": 1}, diff_dst=sizes, dst=sizes)


def _layer_norm_grad(rows: int, columns: int) -> Any:
    return _bind(
        "onednn.LayerNormBackward", {},
        src=(rows, columns), diff_dst=(rows, columns), mean=(rows,), variance=(rows,),
        gamma=(columns,), beta=(columns,), diff_gamma=(columns,), diff_beta=(columns,),
    )  # fmt: skip


def _max_pool_grad(batch: int) -> Any:
    pairs: dict[str, list[int]] = {
        "Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1], "EndPadding": [0, 0],
        "Dilations": [1, 1],
    }  # fmt: skip
    return _bind(
        "directml.MAX_POOLING_GRAD", pairs,
        InputTensor=(batch, 64, 112, 112), InputGradientTensor=(batch, 64, 56, 56),
    )  # fmt: skip


def _average_pool_grad() -> Any:
    given = {"Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1],
             "EndPadding": [0, 0], "IncludePadding": True}  # fmt: skip
    sizes = {"InputGradientTensor": (32, 64, 56, 56), "OutputGradientTensor": (32, 64, 112, 112)}
    return _bind("directml.AVERAGE_POOLING_GRAD", given, **sizes)


def _resample_grad() -> Any:
    given = {
        "InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING",
        "Scales": [1.0, 1.0, 2.0, 2.0], "InputPixelOffsets": [-0.5] * 4,
        "OutputPixelOffsets": [0.5] * 4,
    }  # fmt: skip
    sizes = {"InputGradientTensor": (8, 64, 112, 112), "OutputGradientTensor": (8, 64, 56, 56)}
    return _bind("directml.RESAMPLE_GRAD1", given, **sizes)


def _convolution() -> Any:
    ones: dict[str, object] = {
        name: [1, 1] for name in ("Strides", "Dilations", "StartPadding", "EndPadding")
    }
    return _bind(
        "directml.CONVOLUTION", ones | {"OutputPadding": [0, 0]},
        InputTensor=(8, 64, 56, 56), FilterTensor=(64, 64, 3, 3),
    )  # fmt: skip


def _gemm(size: int = 1024, layout: str = "NN") -> Any:
    """Square matrices; `T` in a layout stands for a transposed operand."""
    given = {
        name: "TRANSPOSE" if letter == "T" else "NONE"
        for name, letter in zip(("TransA", "TransB"), layout, strict=True)
    }
    whole = (1, 1, size, size)
    return _bind("directml.GEMM", given, ATensor=whole, BTensor=whole)


def _sum() -> Any:
    given = {"Function": "SUM", "Axes": [0]}
    return _bind("directml.REDUCE", given, InputTensor=(1 << 24,))


def _transpose(data_type: str, order: list[int], *sizes: int) -> Any:
    described = dmlc.TensorDesc(data_type, sizes)
    operator = dmlc.operator("onednn.StaticTranspose")
    return operator.bind({"src": described}, attributes={"order": order})


def _relu_across() -> Any:
    tensors = {
        "InputTensor": dmlc.TensorDesc("FLOAT32", (4096, 4096), strides=(1, 4096)),
        "InputGradientTensor": dmlc.TensorDesc("FLOAT32", (4096, 4096)),
    }
    return dmlc.operator("directml.ACTIVATION_RELU_GRAD").bind(tensors)


def _softmax_across(rows: int, columns: int) -> Any:
    tensors = {
        "src": dmlc.TensorDesc("FLOAT32", (rows, columns), strides=(1, rows)),
        "dst": dmlc.TensorDesc("FLOAT32", (rows, columns)),
    }
    return dmlc.operator("onednn.SoftMax").bind(tensors, attributes={"axis": 1})


ROWS: dict[str, Callable[[], Any]] = {
    "cross-entropy loss (128, 32000)": lambda: _graph(
        "softmax_cross_entropy_backward", N=128, K=32000
    ),
    "MAX_POOLING_GRAD (32, 64, 112, 112)": lambda: _max_pool_grad(32),
    "BN training gradient (32, 64, 56, 56)": lambda: _batch_norm(32, 64, 56, 56),
    "the same with ReLU": lambda: _batch_norm_graph("relu_batch_norm_backward"),
    "the same with a residual": lambda: _batch_norm_graph("residual_block_backward"),
    "BN training gradient (8, 256, 14, 14)": lambda: _batch_norm(8, 256, 14, 14),
    "BN training gradient (128, 1024)": lambda: _batch_norm(128, 1024),
    "BN training gradient (32, 2048, 7, 7)": lambda: _batch_norm(32, 2048, 7, 7),
    "GEMM 1024^3": _gemm,
    "CONVOLUTION 3x3 (8, 64, 56, 56)": _convolution,
    "sum of 16.7M": _sum,
    "softmax gradient (4, 128256)": lambda: _softmax_grad(4, 128256),
    "softmax gradient (8192, 4096)": lambda: _softmax_grad(8192, 4096),
    "LayerNormBackward (8192, 1024)": lambda: _layer_norm_grad(8192, 1024),
    "AVERAGE_POOLING_GRAD to (32, 64, 112, 112)": _average_pool_grad,
    "RESAMPLE_GRAD1 112 to 56, (8, 64)": _resample_grad,
    "ReLU gradient f32, 16.7M": lambda: _relu("FLOAT32"),
    "ReLU gradient f16, 16.7M": lambda: _relu("FLOAT16"),
    "ReLU gradient f32, 16.7M, one operand transposed": _relu_across,
    "transpose f32, 16.7M": lambda: _transpose("FLOAT32", [1, 0], 4096, 4096),
    "transpose f16, 16.7M": lambda: _transpose("FLOAT16", [1, 0], 4096, 4096),
    "softmax (4096, 4096) of a transposed tensor": lambda: _softmax_across(4096, 4096),
    "softmax (512, 32768) of a transposed tensor": lambda: _softmax_across(512, 32768),
    "NCHW to NHWC f32, (32, 64, 56, 56)": lambda: _transpose(
        "FLOAT32", [0, 2, 3, 1], 32, 64, 56, 56
    ),
    "NCHW to NHWC f16, (32, 64, 56, 56)": lambda: _transpose(
        "FLOAT16", [0, 2, 3, 1], 32, 64, 56, 56
    ),
}
"""Functions of operators and graphs, by the names of the table's rows."""

_COMPUTE = ("GEMM", "MatMul f32 64x", "MatMul f16 64x", "CONV f32 1x1", "CONV f32 3x3",
            "CONV f16 1x1", "CONV f16 3x3", "attention", "conv ")  # fmt: skip
SHOWN: dict[str, Callable[[], Any]] = ROWS | {
    name: row.bind for name, row in gpu_scan.ROWS.items() if not name.startswith(_COMPUTE)
}
"""Functions whose kernels the table shows: these, and those of the scan that memory bounds."""


def measure(found: Inspection) -> Figures:
    """A row: the figures of each kernel, and of all of them, on the one GPU looked at."""
    (total,) = found.totals
    times = {modelled.device: modelled.microseconds for modelled in total.devices}
    shares = {device: round(100 * found.find_share(total.gpu, device), 1) for device in times}
    kernels = [_measure_kernel(kernel) for kernel in found.kernels]
    copy = round(found.compare_to_copy(total.gpu, "h100"), 2)
    return {"kernels": kernels, "us": round(times["h100"], 1), "copy": copy, "shares": shares}


def _measure_kernel(kernel: InspectedKernel) -> Figures:
    (compiled,) = kernel.compiled
    return {
        "groups": kernel.groups,
        "threads": kernel.threads,
        "steps": kernel.steps,
        "output": _round(compiled.instructions_per_output),
        "point": _round(compiled.instructions_per_point),
        "width": max([*compiled.loads, 0]),
        "flight": _round(compiled.bytes_in_flight),
        "registers": compiled.registers,
        "spilled": compiled.spilled_registers,
    }


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def show(rows: Mapping[str, Figures], before: Mapping[str, Figures]) -> str:
    """The rows as a table in Markdown; a figure that has changed has the old one before it."""
    lines = [
        "| row | groups | B a load | B in flight | registers, spilled | instructions an output "
        "| a point | H100, us | copies | H100 | 4070 | 8 CUs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, now in rows.items():
        new, was = _cells(now), before.get(name)
        # A copy takes as long as it did.
        copy = None if was is None else round(was["us"] * now["copy"] / now["us"], 2)
        old = None if was is None else _cells(was | {"copy": copy})
        cells = [
            cell if cell == before_it else f"{before_it} → {cell}"
            for cell, before_it in zip(new, old or new, strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(figures: Figures) -> list[str]:
    kernels: list[Figures] = figures["kernels"]
    each = [
        " + ".join(show_one(kernel) for kernel in kernels)
        for show_one in (
            lambda k: f"{k['groups']:,}",
            lambda k: f"{k['width']}",
            lambda k: _show(k["flight"]),
            lambda k: f"{k['registers']}" + (f", {k['spilled']}" if k["spilled"] else ""),
            lambda k: _show(k["output"]),
            lambda k: _show(k["point"]),
        )
    ]
    shares = [f"{_show(share)}%" for share in figures["shares"].values()]
    return [*each, _show(figures["us"]), f"{figures['copy']:.2f}", *shares]


def _show(number: float | None) -> str:
    if number is None:
        return "?"
    return f"{number:,.0f}" if number >= 20 else f"{number:.3g}"


def show_products(sizes: Sequence[int] = (1024, 2048, 4096)) -> str:
    """Matrix products of each layout as a table in Markdown, as compiled for each GPU."""
    lines = [
        "| product | GPU | groups | registers, spilled | instructions a multiply-add "
        "| multiply-adds | H100, us | H100 | 4070 | 8 CUs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for layout, size, gpu in itertools.product(LAYOUTS, sizes, PRODUCT_GPUS):
        name = f"{layout} {size:,}"
        print(name, gpu, file=sys.stderr)
        found = dmlc.inspect(_gemm(size, layout), [gpu])
        groups, _, _, registers, _, _, time, _, *shares = _cells(measure(found))
        (compiled,) = found.kernels[0].compiled
        point, fmas = compiled.instructions_per_point, compiled.fma_share
        fused = "?" if fmas is None else f"{fmas:.0%}"
        cells = [name, gpu, groups, registers, _show(point), fused, time, *shares]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _write(name: str, table: str) -> None:
    """Replaces a table of the page."""
    page = _PAGE.read_text(encoding="utf-8")
    before, mark, after = page.partition(f"<!-- table: {name} -->\n")
    _, end, rest = after.partition("<!-- end -->\n")
    if not end:
        raise ValueError(f"{_PAGE} has no table {name}")
    _PAGE.write_text(f"{before}{mark}\n{table}\n{end}{rest}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.gpu_kernels")
    parser.add_argument("--row", action="append", metavar="PART", help="only rows with this")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    parser.add_argument("--record", action="store_true", help="keep the figures as those before")
    parser.add_argument("--gpu", default=GPU, help=f"what to compile for [default: {GPU}]")
    parser.add_argument(
        "--products", action="store_true",
        help=f"the table of matrix products instead, for {' and '.join(PRODUCT_GPUS)}",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if given.products:
        if given.row or given.record or given.gpu != GPU:
            parser.error("--products goes with --write alone")
        table = show_products()
        print(table, end="")
        if given.write:
            _write(_PRODUCTS_NAME, table)
        return 0
    if (given.row or given.gpu != GPU) and (given.write or given.record):
        parser.error(f"--write and --record are for all rows, on {GPU}")
    chosen = [n for n in SHOWN if not given.row or any(part in n for part in given.row)]
    rows: dict[str, Figures] = {}
    for name in chosen:
        print(name, file=sys.stderr)
        rows[name] = measure(dmlc.inspect(SHOWN[name](), [given.gpu]))
    before: dict[str, Figures] = {}
    if given.record:
        _RECORD.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    elif given.gpu == GPU and _RECORD.is_file():
        before = json.loads(_RECORD.read_text(encoding="utf-8"))
    table = show(rows, before)
    print(table, end="")
    if given.write:
        _write(_NAME, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
