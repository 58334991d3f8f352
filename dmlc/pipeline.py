"""The compiler in one line: from a bound function to a program."""

from __future__ import annotations

from dmlc.codegen.render import find_dialect, render
from dmlc.codegen.support import check_support
from dmlc.ir import Function
from dmlc.ir.verify import verify
from dmlc.kernel.lower import lower
from dmlc.kernel.schedule import find_profile
from dmlc.program import Program
from dmlc.transform.fuse import fuse
from dmlc.transform.simplify import simplify


def compile(function: Function, target: str = "opencl", profile: str | None = None) -> Program:
    """Compiles a function for an output language and a kind of device.

    `target` is `opencl` or `hlsl`; `profile` is `cpu` or `gpu`, by default what the target mostly
    runs on. Raises `UnsupportedError` for what the target cannot express, before any lowering.
    """
    dialect = find_dialect(target)
    shape = find_profile(profile or dialect.profiles[0])
    check_support(function, dialect, shape)
    verify(function)
    simplified = simplify(function)
    fusion = fuse(simplified)
    kernels = tuple(
        lower(fusion.function, group.stages, shape, dialect.limits) for group in fusion.groups
    )
    return render(fusion.function, kernels, dialect, shape)
