"""Compiles six operators, runs them on real arrays and holds every result to the reference.

    python examples/demo.py [DIR] [--most ELEMENTS]

Sources and manifests go to DIR (`out/demo`). Each operator runs with every data type it has: the
OpenCL form on every OpenCL device of the machine, the HLSL form on every Vulkan device. The
element-wise ones run on vectors, planes of images, eight dimensions, transposed and sliced arrays,
with NaN, infinities, zeros of both signs and denormals among the values. With `--most`, cases with
larger arrays are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlc
from dmlc.program import write_programs
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.dxc_library import load_library
from dmlc.runtime.opencl.device import INSTALL_NOTE
from dmlc.testing.verify import Verdict, verify

Array = npt.NDArray[Any]

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 6e-8, -6e-8, 65504.0)
"""Written over the first elements of every array."""


def make(random: np.random.Generator, shape: tuple[int, ...], dtype: dmlc.DataType) -> Array:
    if dtype.is_integer:
        limits = np.iinfo(dtype.dtype)
        return random.integers(limits.min, limits.max, shape, dtype.dtype, endpoint=True)
    values = random.standard_normal(shape, np.float32)
    values.reshape(-1)[: len(SPECIAL)] = np.roll(SPECIAL, random.integers(len(SPECIAL)))
    return values.astype(dtype.dtype)


def layouts(random: np.random.Generator, dtype: dmlc.DataType) -> Iterator[tuple[str, Array]]:
    """Arrays of every layout to run, each with its name."""
    for shape in ((1_000_003,), (8, 64, 56, 56), (2, 3, 2, 5, 3, 2, 4, 3)):
        yield str(list(shape)), make(random, shape, dtype)
    yield "transposed [192, 128]", make(random, (128, 192), dtype).T
    yield "sliced [100, 64]", make(random, (200, 96), dtype)[::2, 16:80]


def attribute_choices(operator: dmlc.Operator) -> list[dict[str, object]]:
    """Every setting of the operator's switches."""
    switches = [a.name for a in operator.definition.attributes if a.base == "BOOL"]
    settings = itertools.product((True, False), repeat=len(switches))
    return [dict(zip(switches, setting, strict=True)) for setting in settings]


def find_devices() -> dict[str, str]:
    """What to run on, by selector: a name for people."""
    found = {f"opencl:{d.index}": str(d) for d in opencl.devices()}
    try:
        load_library()
        found |= {f"vulkan:{d.index}": d.name for d in vulkan.devices()}
    except dmlc.UnavailableError as error:
        print(f"HLSL is compiled, but does not run here: {error}", file=sys.stderr)
    return found


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: what it is called, its arrays and its attributes."""

    label: str
    dtype: dmlc.DataType
    arrays: dict[str, Array]
    attributes: dict[str, object]
    outputs: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Sizes of results that nothing else says."""

    @property
    def largest(self) -> int:
        """The elements of its largest array."""
        return max(array.size for array in self.arrays.values())


def elementwise_cases(operator: dmlc.Operator) -> Iterator[Case]:
    """Every type, layout and setting of an element-wise operator."""
    random = np.random.default_rng(2026)
    first, *others = (t for t in operator.definition.levels[-1].tensors if not t.output)
    for dtype in first.dtypes:
        for label, array in layouts(random, dtype):
            rest = {t.name: make(random, array.shape, dtype) for t in others}
            for attributes in attribute_choices(operator):
                yield Case(label, dtype, {first.name: array, **rest}, attributes)


def normalization_cases(operator: dmlc.Operator) -> Iterator[Case]:
    """Statistics per channel, per element of a row, of everything; a transposed input."""
    random = np.random.default_rng(2026)
    statistics = ("MeanTensor", "VarianceTensor", "ScaleTensor")
    for dtype in operator.definition.levels[-1].tensors[0].dtypes:
        for sizes, kept in (
            ((8, 64, 28, 28), (1, 64, 1, 1)),
            ((128, 1024), (1, 1024)),
            ((3, 5, 2, 7, 2), (1, 1, 1, 1, 1)),
        ):
            x, dy = random.standard_normal((2, *sizes)).astype(dtype.dtype)
            small = {n: random.uniform(0.5, 2, kept).astype(dtype.dtype) for n in statistics}
            large = {"InputTensor": x, "InputGradientTensor": dy}
            yield Case(f"{list(sizes)} to {list(kept)}", dtype, large | small, {"Epsilon": 1e-5})
            across = np.ascontiguousarray(x.T).T
            large = {"InputTensor": across, "InputGradientTensor": dy}
            yield Case("transposed", dtype, large | small, {"Epsilon": 1e-5})


def resampling_cases(operator: dmlc.Operator) -> Iterator[Case]:
    """The page's example, and planes of both modes, scaled by whole numbers and by others."""
    random = np.random.default_rng(2026)
    for dtype in operator.definition.levels[-1].tensors[0].dtypes:
        page = np.array([[4, 5, 6]], dtype.dtype)
        yield resampling_case("the page's", dtype, page, (2, 2), (0.5, 1.5), "NEAREST_NEIGHBOR")
        for mode, size, scale in itertools.product(
            ("NEAREST_NEIGHBOR", "LINEAR"), ((112, 112), (84, 70)), (None, 1.7)
        ):
            dy = random.standard_normal((2, 3, *size)).astype(dtype.dtype)
            scales = tuple(scale or n / 56 for n in size)
            label = f"{list(dy.shape)} to [2, 3, 56, 56]"
            yield resampling_case(label, dtype, dy, (2, 3, 56, 56), (1, 1, *scales), mode)


def resampling_case(
    label: str,
    dtype: dmlc.DataType,
    dy: Array,
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    mode: str,
) -> Case:
    """The gradient of resampling by the centres of pixels."""
    attributes: dict[str, object] = {
        "InterpolationMode": mode,
        "RoundingDirection": "DECREASING",
        "Scales": scales,
        "InputPixelOffsets": [-0.5] * len(scales),
        "OutputPixelOffsets": [0.5] * len(scales),
    }
    outputs = {"OutputGradientTensor": sizes}
    return Case(label, dtype, {"InputGradientTensor": dy}, attributes, outputs)


SEEDS: dict[str, Callable[[dmlc.Operator], Iterator[Case]]] = {
    "directml.ACTIVATION_RELU": elementwise_cases,
    "directml.ACTIVATION_RELU_GRAD": elementwise_cases,
    "onednn.ReLU": elementwise_cases,
    "onednn.ReLUBackward": elementwise_cases,
    "directml.BATCH_NORMALIZATION_TRAINING_GRAD": normalization_cases,
    "directml.RESAMPLE_GRAD1": resampling_cases,
}
"""Each with what to run it on."""


def demonstrate(
    operator: dmlc.Operator, cases: list[Case], devices: dict[str, str], folder: Path
) -> bool:
    """Compiles and runs one operator, prints what was found, and tells whether all held."""
    definition = operator.definition
    programs = [dmlc.compile(bind(operator, cases[0]), target) for target in ("hlsl", "opencl")]
    written = write_programs(programs, folder / operator.name)
    formulas = [" ".join(s.span.text.split()) for s in definition.compute or ()]
    print(f"\n{operator.name}")
    print(f"  formula   {formulas[0]}")
    print(*(f"            {formula}" for formula in formulas[1:]), sep="\n", end="")
    print(f"{'' if len(formulas) == 1 else chr(10)}  compiled  {written[0].parent}/: ", end="")
    print(", ".join(path.name for path in written))

    verdicts: list[Verdict] = []
    refused: dict[str, None] = {}
    for case, device in itertools.product(cases, devices):
        try:
            results = dmlc.run(operator, case.arrays, case.attributes, case.outputs, device)
        except dmlc.UnsupportedError as error:
            reason = error.diagnostics[0].message
            refused[f"{case.dtype.name} on {device} ({reason})"] = None
            continue
        for verdict in verify(operator, case.arrays, case.attributes, results).values():
            verdicts.append(verdict)
            if not verdict.holds:
                where = f"{device} {case.dtype.name} {case.label} {case.attributes}"
                print(f"  FAILED    {where}: {verdict}")

    print(f"  types     {', '.join(dict.fromkeys(c.dtype.name for c in cases))}")
    print(f"  shapes    {', '.join(dict.fromkeys(c.label for c in cases))}")
    settings = dict.fromkeys(show(c.attributes) for c in cases if c.attributes)
    if settings:
        print(f"  with      {'; '.join(settings)}")
    print(f"  devices   {', '.join(f'{selector} {name}' for selector, name in devices.items())}")
    for reason in refused:
        print(f"  not       {reason}")
    elements = sum(v.elements for v in verdicts)
    largest = max(v.largest for v in verdicts)
    exact = all(v.different == 0 for v in verdicts)
    held = all(v.holds for v in verdicts)
    outcome = "exact" if exact else "within rounding" if held else "NOT within rounding"
    print(f"  compared  {elements:,} elements with the reference")
    print(f"  largest difference {largest:g} ({outcome})")
    return held


def bind(operator: dmlc.Operator, case: Case) -> dmlc.ir.Function:
    """Without sizes where the operator needs none: then it is compiled for all."""
    if SEEDS[operator.name] is elementwise_cases:
        return operator.bind()
    sizes = {n: a.shape for n, a in case.arrays.items()} | case.outputs
    described = {n: dmlc.TensorDesc(case.dtype, s) for n, s in sizes.items()}
    return operator.bind(described, case.attributes)


def show(attributes: dict[str, object]) -> str:
    """The attributes that are one value each."""
    single = {n: v for n, v in attributes.items() if not isinstance(v, list | tuple)}
    return ", ".join(f"{n} = {v}" for n, v in single.items())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default="out/demo", metavar="DIR")
    parser.add_argument("--most", type=int, metavar="ELEMENTS", default=sys.maxsize,
                        help="leave larger arrays out")  # fmt: skip
    given = parser.parse_args(arguments)
    devices = find_devices()
    if not devices:
        print(f"there is no device to run on; {INSTALL_NOTE.message}", file=sys.stderr)
        return 3
    print("dmlc: operators from their reference pages to kernels that run")
    held: list[bool] = []
    for name, cases in SEEDS.items():
        operator = dmlc.operator(name)
        every = list(cases(operator))
        least = min(case.largest for case in every)
        few = [case for case in every if case.largest <= max(given.most, least)]
        held.append(demonstrate(operator, few, devices, given.folder))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
