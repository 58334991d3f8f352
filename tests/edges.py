"""Products, convolutions and attentions at the edges of tiles: `python -m tests.edges`.

Sizes are those around the sides of tiles, and every two values of two parameters meet in some case.
Each case runs on the CPU's and the GPU's kernels of PoCL, on lavapipe, through WebGPU, and in the
interpreter of kernel IR, where the kernels with matrix instructions run too. Results are within
their computed bounds. It takes a quarter of an hour; tests draw some of its cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np

from dmlc import ir
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.matrices import INSTRUCTIONS
from dmlc.pipeline import USUAL, Steps, compile_by, make_kernels
from dmlc.pipeline import compile as compile_program
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan, wgpu
from dmlc.scalars import Array
from dmlc.source import DmlcError
from dmlc.testing.bounds import bound_errors
from tests.attention import MASKS, ONLINE, Attention
from tests.cover import cover
from tests.products import KINDS, Product, Windows

SIZES = (1, 17, 63, 65, 129)
"""Rows, columns and points: one, and those that tiles of 16, 32, 64 and 128 leave a part of."""
TILES = ("64 64 8 16", "64 64 4 16 ahead", "128 128 8 8 ahead")
"""Tiles that only large products have, which a table of schedules asks for."""
WAYS = ("cpu", "gpu", "vulkan", "webgpu", "interpreted", *TILES, *(i.name for i in INSTRUCTIONS))
"""Where a case runs, or with which tiles, or matrix instructions."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, and how it is compiled."""

    name: str
    function: ir.Function
    inputs: dict[str, Array]
    ways: tuple[str, ...]
    steps: Steps = USUAL


def list_cases() -> Iterator[Case]:
    yield from list_products()
    yield from list_convolutions()
    yield from list_attentions()


def list_products() -> Iterator[Case]:
    halves = [False, True]
    for m, n, d, a, b, y, (batch, shared), dtype, before, apart in cover(
        2, SIZES, SIZES, SIZES, halves, halves, halves,
        [(1, ""), (3, ""), (3, "a"), (3, "b")], ["f32", "f16"], halves, [0, 3, 4],
    ):  # fmt: skip
        product = Product(m, n, d, batch, shared, a, b, y, dtype, before, apart=apart)
        yield make_case(str(product), product.make(), is_half=dtype == "f16" and not before)


def list_convolutions() -> Iterator[Case]:
    for kind, (c, f, groups), window, stride, pad, dilation, size, dtype in cover(
        2, KINDS, [(3, 65, 1), (16, 17, 1), (64, 33, 1), (34, 66, 2), (32, 32, 4), (9, 9, 9),
                   (5, 10, 5)],
        [1, 2, 3], [1, 2, 3], [0, 1, 2], [1, 2], [(9, 17), (17, 16), (6, 5)],
        ["FLOAT32", "FLOAT16"],
    ):  # fmt: skip
        height, width = size
        windows = Windows(
            2, c, height, width, f, window, stride, pad, dilation, groups, dtype
        )  # fmt: skip
        made = windows.spread if kind.startswith("transposed") else windows.results
        if min(made) > 0:
            case = f"{kind} {windows}"
            yield make_case(case, windows.make(kind), is_half=dtype == "FLOAT16")


def list_attentions() -> Iterator[Case]:
    for queries, keys, (size, own), mask, dtype, last, (batch, heads), back in cover(
        2, SIZES, SIZES, [(32, 32), (64, 40), (80, 64), (128, 96)], [*MASKS], ["f32", "f16"],
        [False, True], [(1, 2), (2, 1)], [False, True],
    ):  # fmt: skip
        attention = Attention(queries, keys, size, own, batch, heads, mask, dtype, last)
        function = attention.differentiate() if back else attention.make()
        inputs = attention.fill(function)
        for steps, ways in ((ONLINE, WAYS[:5]), (USUAL, WAYS[:3])):
            name = f"{'gradient of ' * back}{attention}, {'online' if steps is ONLINE else 'apart'}"
            yield Case(name, function, inputs, ways, steps)


def make_case(name: str, function: ir.Function, *, is_half: bool) -> Case:
    random = np.random.default_rng(1)
    inputs = {
        p.name: random.standard_normal([int(e) for e in p.extents]).astype(p.dtype.dtype)
        for p in function.parameters
    }
    return Case(name, function, inputs, WAYS if is_half else WAYS[: -len(INSTRUCTIONS)])


def run(case: Case, way: str) -> dict[str, Array]:
    """The results of a case. Without kernels of that instruction there are none."""
    found = [i.name for i in INSTRUCTIONS if i.name == way]
    if found or way == "interpreted":
        target = "hlsl" if found else "opencl"
        fused, kernels = make_kernels(
            case.function, target, None if found else "cpu", steps=case.steps,
            matrix_instruction=way if found else None,
        )  # fmt: skip
        if found and not any(kernel.matrices for kernel in kernels):
            return {}
        return run_kernels(fused, kernels, case.inputs, misaligned=1)
    load: Callable[[Program], Callable[[dict[str, Array]], dict[str, Array]]]
    target, profile, load = {
        "cpu": ("opencl", "cpu", opencl.load),
        "gpu": ("opencl", "gpu", opencl.load),
        "webgpu": ("wgsl", "gpu", wgpu.load),
    }.get(way, ("hlsl", "gpu", vulkan.load))
    if way in TILES:
        rows = "".join(f"row {kind} any any; tile {way}\n" for kind in ("product", "convolution"))
        program = compile_program(case.function, target, schedules=f"device gpu\n{rows}")
    else:
        program = compile_by(case.steps, case.function, target, profile)
    return load(program)(case.inputs)


def find_wrong(case: Case, found: dict[str, Array]) -> str:
    """The first result that is not within its bound; empty where all are."""
    wanted, allowed = evaluate(case.function, case.inputs), bound_errors(case.function, case.inputs)
    for name, values in found.items():
        got, expected = (v.astype(np.float64) for v in (values, wanted[name]))
        with np.errstate(invalid="ignore"):
            same = (np.abs(got - expected) <= allowed[name]) | (got == expected)
        same |= (np.isnan(got) & np.isnan(expected)) | np.isposinf(allowed[name])
        if not same.all():
            place = tuple(int(n[0]) for n in np.nonzero(~same))
            bound, count = allowed[name][place], f"{(~same).sum():,} of {same.size:,}"
            value = f"{got[place]} where {expected[place]} is right to {bound:.3g}"
            return f"{name}{list(place)} is {value}; {count} are wrong"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.edges", description=__doc__)
    parser.add_argument(
        "--only", default="", help="what the names of cases begin with: Product, forward, Attention"
    )
    parser.add_argument("--way", action="append", choices=WAYS, help="all, if not given")
    parser.add_argument("--every", type=int, default=1, help="one of so many of what is left")
    options = parser.parse_args()
    began, counted, failed = time.monotonic(), 0, 0
    wanted = [
        (case, way)
        for case in list_cases()
        for way in case.ways
        if case.name.startswith(options.only) and way in (options.way or WAYS)
    ]
    for case, way in wanted[:: options.every]:
        try:
            found = run(case, way)
            wrong = find_wrong(case, found)
        except (DmlcError, KernelFault) as error:
            found, wrong = {}, str(error)
        counted += bool(found)
        if wrong:
            failed += 1
            print(f"{way}: {case.name}:\n    {wrong}", flush=True)
    print(f"{counted:,} results, {failed:,} wrong, {time.monotonic() - began:,.0f} s")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
