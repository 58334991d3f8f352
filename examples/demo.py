"""Compiles the seed operators, runs them on real arrays and holds every result to the reference.

    python examples/demo.py [DIR]

Sources and manifests go to DIR (`out/demo`). Each operator runs with every data type it has, on
vectors, planes of images, eight dimensions, transposed and sliced arrays, with NaN, infinities,
zeros of both signs and denormals among the values: the OpenCL form on every OpenCL device of the
machine, the HLSL form on every Vulkan device.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
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

SEEDS = (
    "directml.ACTIVATION_RELU",
    "directml.ACTIVATION_RELU_GRAD",
    "onednn.ReLU",
    "onednn.ReLUBackward",
)
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


def demonstrate(operator: dmlc.Operator, devices: dict[str, str], folder: Path) -> bool:
    """Compiles and runs one operator, prints what was found, and tells whether all held."""
    definition = operator.definition
    tensors = definition.levels[-1].tensors
    inputs = [t.name for t in tensors if not t.output]
    choices = attribute_choices(operator)
    function = operator.bind()
    programs = [dmlc.compile(function, target) for target in ("hlsl", "opencl")]
    written = write_programs(programs, folder / operator.name)
    print(f"\n{operator.name}")
    print(
        f"  formula   {'; '.join(' '.join(s.span.text.split()) for s in definition.compute or ())}"
    )
    print(f"  compiled  {written[0].parent}/: {', '.join(path.name for path in written)}")

    random = np.random.default_rng(2026)
    verdicts: list[Verdict] = []
    shapes: dict[str, None] = {}
    refused: dict[str, None] = {}
    for dtype in tensors[0].dtypes:
        for label, first in layouts(random, dtype):
            shapes[label] = None
            rest = {name: make(random, first.shape, dtype) for name in inputs[1:]}
            arrays = {inputs[0]: first, **rest}
            for device, attributes in itertools.product(devices, choices):
                try:
                    results = dmlc.run(operator, arrays, attributes, device=device)
                except dmlc.UnsupportedError as error:
                    refused[f"{dtype.name} on {device} ({error.diagnostics[0].message})"] = None
                    continue
                for verdict in verify(operator, arrays, attributes, results).values():
                    verdicts.append(verdict)
                    if not verdict.holds:
                        print(f"  FAILED    {device} {dtype.name} {label} {attributes}: {verdict}")

    print(f"  types     {', '.join(t.name for t in tensors[0].dtypes)}")
    print(f"  shapes    {', '.join(shapes)}")
    if choices != [{}]:
        settings = [", ".join(f"{n} = {v}".lower() for n, v in c.items()) for c in choices]
        print(f"  with      {'; '.join(settings)}")
    print(f"  devices   {', '.join(f'{selector} {name}' for selector, name in devices.items())}")
    for reason in refused:
        print(f"  not       {reason}")
    elements = sum(v.comparison.elements for v in verdicts)
    largest = max(v.comparison.largest for v in verdicts)
    exact = all(v.comparison.different == 0 for v in verdicts)
    held = all(v.holds for v in verdicts)
    outcome = "exact" if exact else "within rounding" if held else "NOT within rounding"
    print(f"  compared  {elements:,} elements with the reference")
    print(f"  largest difference {largest:g} ({outcome})")
    return held


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "out/demo")
    devices = find_devices()
    if not devices:
        print(f"there is no device to run on; {INSTALL_NOTE.message}", file=sys.stderr)
        return 3
    print("dmlc: operators from their reference pages to kernels that run")
    held = [demonstrate(dmlc.operator(name), devices, folder) for name in SEEDS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
