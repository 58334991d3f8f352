"""Registry of targets. A further language is a line here, and files of its own."""

from __future__ import annotations

from dmlc.codegen.dialect import Dialect
from dmlc.codegen.hlsl import HLSL_6_0, HLSL_6_2, HLSL_6_10
from dmlc.codegen.opencl import OPENCL
from dmlc.codegen.target import Target
from dmlc.codegen.wgsl import WGSL
from dmlc.source import find_named

TARGETS: tuple[Target, ...] = (
    Target(
        (HLSL_6_2, HLSL_6_0),
        drafts=(HLSL_6_10,),
        runtimes=("vulkan", "d3d12", "strict"),
        compiler="hlsl",
        hosts=("cpp", "rust", "csharp"),
    ),
    Target((OPENCL,), runtimes=("opencl",)),
    Target((WGSL,), runtimes=("wgpu",), is_general=False),
)
"""Targets in the order of documentation and lists."""


def find_target(name: str) -> Target:
    """Target of that name. Raises `UnknownNameError`, which names the known ones."""
    return find_named("target", name, {target.name: target for target in TARGETS})


def find_dialect(name: str, shader_model: str | None = None) -> Dialect:
    """Dialect of a target, for HLSL of a shader model. Raises as `find_target` and
    `Target.find_dialect` do."""
    return find_target(name).find_dialect(shader_model)
