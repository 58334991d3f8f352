"""Runs products of halves by matrix instructions on lavapipe, and holds them to their bounds.

`spirv-val` looks at what each instruction of the table comes to, whether the device has it or not.
Exits with 1 where the device has none, where a kernel is not made or not valid, or a result is off.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dmlc
from dmlc import ir
from dmlc.matrices import INSTRUCTIONS
from dmlc.runtime import vulkan
from dmlc.runtime.hlsl import compile_kernel
from dmlc.runtime.vulkan import Validation, set_validation
from dmlc.testing.verify import verify

SIZES = (
    (17, 65, 33), (64, 64, 64), (63, 129, 65), (16, 130, 7), (800, 900, 96), (1500, 1450, 70),
)  # fmt: skip
"""Rows, columns and points: edges of tiles, and so many tiles that these are large ones."""
LAYOUTS = ((False, False), (False, True), (True, False), (True, True))
"""Which of the factors lie transposed."""


def make_product(
    rows: int, columns: int, depth: int, turned: tuple[bool, bool], result: str
) -> ir.Function:
    """`y = max(a b + c, 0)`, in the type that is named, with factors that may lie transposed."""
    a = (f"{depth}, {rows}", "r0, i0") if turned[0] else (f"{rows}, {depth}", "i0, r0")
    b = (f"{columns}, {depth}", "i1, r0") if turned[1] else (f"{depth}, {columns}", "r0, i1")
    return ir.parse(f"""
        func @product(%A: f16[{a[0]}], %B: f16[{b[0]}], %C: f16[{columns}]) -> (%y) {{
          %s: f32[i0 < {rows}, i1 < {columns}] = sum[r0 < {depth}] mul(%A[{a[1]}], %B[{b[1]}])
          %y: {result}[i0 < {rows}, i1 < {columns}] = max(add(%s[i0, i1], %C[i1]), 0.0)
        }}""")


def list_functions() -> Iterator[tuple[str, ir.Function]]:
    """Products to be tried, each with what it is called."""
    for number, turned in enumerate((*LAYOUTS, *LAYOUTS[:2])):
        rows, columns, depth = SIZES[number]
        result = "f16" if turned[0] else "f32"
        yield f"{rows} by {columns}", make_product(rows, columns, depth, turned, result)
    yield "long", make_product(64, 64, 4096, (False, False), "f32")
    sizes = {"ATensor": (2, 3, 33, 40), "BTensor": (2, 3, 40, 65)}
    tensors = {n: dmlc.TensorDesc(dmlc.DataType.FLOAT16, each) for n, each in sizes.items()}
    yield "GEMM", dmlc.operator("directml.GEMM").bind(tensors)


def draw(function: ir.Function) -> dict[str, Any]:
    """Elements for each input."""
    random = np.random.default_rng(0)
    shapes = {p.name: tuple(int(e) for e in p.extents) for p in function.parameters}
    return {n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()}


def validate(kernel: Any) -> str:
    """What `spirv-val` objects to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.spv"
        path.write_bytes(compile_kernel(kernel).spirv)
        command = ["spirv-val", "--target-env", "vulkan1.1", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> int:
    set_validation(Validation.CALLS)
    device = vulkan.find_device()
    usable = device.matrices.list_usable()
    print(f"{device}: {', '.join(device.matrices.facts)}")
    faults = [] if usable else ["the device has no matrix instruction of the table"]
    count = 0
    for name, function in list_functions():
        program = dmlc.compile(
            function, "hlsl", matrix_instructions=[row.name for row in INSTRUCTIONS]
        )
        made = [kernel for kernel in program.kernels if kernel.alternatives]
        if len(made) != 1:
            faults.append(f"{name}: {len(made)} kernels with matrices")
            continue
        for kernel in made[0].alternatives:
            said = validate(kernel)
            faults += [f"{name}: {kernel.name} is not valid: {said}"] if said else []
        inputs = draw(function)
        results, report = dmlc.load_program(program, "vulkan").run(inputs)
        if report.matrices != tuple(row.name for row in usable[:1]):
            faults.append(f"{name}: ran with {report.matrices}")
        for result, verdict in verify(function, inputs, {}, results, floats=device.floats).items():
            count += 1
            if not verdict.holds:
                faults.append(f"{name}: {result} is off: {verdict}")
    print(f"{count} results, {len(faults)} faults", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
