"""Matrix instructions of the languages.

HLSL for Vulkan has those of `VK_KHR_cooperative_matrix`, as inline SPIR-V, which DXC compiles.
Shader model 6.10 has `dx::linalg` (proposal 0035 of HLSL's specifications), which no DXC on PyPI
compiles, and WGSL the subgroup matrices of the draft of 2 October 2026 (gpuweb's
`subgroup-matrix.md`), which no host supports: both are text only, and hosts run the plain kernel.
OpenCL C has none.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from dmlc.codegen.dialect import FOUR, Dialect, MatrixForms
from dmlc.kernel import nodes as k
from dmlc.matrices import WITHOUT, Instruction
from dmlc.source import UnsupportedError

_SPIRV = """\
// Matrices that the threads of a subgroup hold together: VK_KHR_cooperative_matrix.
template <typename T, uint Rows, uint Columns, uint Use>
using Matrix = vk::SpirvOpaqueType<4456, T, vk::integral_constant<uint, 3>,
    vk::integral_constant<uint, Rows>, vk::integral_constant<uint, Columns>,
    vk::integral_constant<uint, Use> >;

template <typename M, typename T>
[[vk::ext_extension("SPV_KHR_cooperative_matrix")]] [[vk::ext_capability(6022)]]
[[vk::ext_instruction(4457)]]
M read_matrix([[vk::ext_reference]] T first, uint layout, uint stride,
    [[vk::ext_literal]] uint operands, uint scope);

template <typename M, typename T>
[[vk::ext_instruction(4458)]]
void write_matrix([[vk::ext_reference]] T first, M matrix, uint layout, uint stride,
    [[vk::ext_literal]] uint operands, uint scope);

template <typename S, typename L, typename R>
[[vk::ext_instruction(4459)]] S multiply_add(L left, R right, S sum);

template <typename M, typename T>
[[vk::ext_instruction(80)]] M make_matrix(T element);

[[vk::ext_capability(61)]] [[vk::ext_builtin_input(40)]] static const uint subgroup_id;"""
"""Inline SPIR-V. The numbers are those of the specification: opcodes, the scope Subgroup (3) of a
matrix, and the built-in SubgroupId (40), whose capability is GroupNonUniform (61)."""

_VULKAN = MatrixForms(
    declarations=_SPIRV,
    names=("Matrix", "read_matrix", "write_matrix", "multiply_add", "make_matrix", "subgroup_id"),
    type="Matrix<{S}, {rows}, {columns}, {use}>",
    declare="{M} {m};",
    uses={k.Use.LEFT: "0", k.Use.RIGHT: "1", k.Use.SUM: "2"},
    fill="{m} = make_matrix<{M} >({a});",
    layouts=("0", "1"),
    # Memory operands: what others of the group (scope 2) have stored is seen, and what is stored
    # is seen by them, at barriers.
    load="{m} = read_matrix<{M} >({e}, {layout}, {stride}, 0x30, 2);",
    store="write_matrix({e}, {m}, 0, {stride}, 0x28, 2);",
    multiply="{m} = multiply_add({left}, {right}, {m});",
    subgroup="subgroup_id",
    lanes=FOUR,
)


_WGSL = MatrixForms(
    declarations="",
    names=("subgroup_id",),
    type="subgroup_matrix_{use}<{S}, {columns}, {rows}>",
    uses={k.Use.LEFT: "left", k.Use.RIGHT: "right", k.Use.SUM: "result"},
    declare="var {m}: {M};",
    fill="{m} = {M}({a});",
    layouts=("false", "true"),
    load="{m} = subgroupMatrixLoad<{M}>(&{p}, {i}, {layout}, {stride});",
    store="subgroupMatrixStore(&{p}, {i}, {m}, false, {stride});",
    multiply="{m} = subgroupMatrixMultiplyAccumulate({left}, {right}, {m});",
    subgroup="subgroup_id",
    lanes=1,
)

_LINALG = MatrixForms(
    declarations="""\
// Matrices that the threads of a wave hold together: shader model 6.10.
#include <dx/linalg.h>
using namespace dx::linalg;""",
    names=("Matrix", "ComponentType", "MatrixUse", "MatrixScope", "MatrixLayout", "dx", "linalg"),
    type="Matrix<ComponentType::F{bits}, {rows}, {columns}, MatrixUse::{use}, MatrixScope::Wave>",
    uses={k.Use.LEFT: "A", k.Use.RIGHT: "B", k.Use.SUM: "Accumulator"},
    declare="{M} {m};",
    fill="{m} = {M}::Splat({a});",
    layouts=("RowMajor", "ColMajor"),
    load="{m} = {M}::Load({p}, {i}, {stride}, MatrixLayout::{layout});",
    store="{m}.Store({p}, {i}, {stride}, MatrixLayout::RowMajor);",
    multiply="{m}.MultiplyAccumulate({left}, {right});",
    subgroup="GetGroupWaveIndex()",
    lanes=1,
)

_FORMS = MappingProxyType({"hlsl": _VULKAN, "hlsl 6.10": _LINALG, "wgsl": _WGSL})
"""Forms of each target that has any, and of a shader model with others."""


def has_matrices(target: str) -> bool:
    """Whether a target has a form of matrix instructions."""
    return target in _FORMS


def use_matrices(dialect: Dialect, instruction: Instruction) -> Dialect:
    """Dialect of the same language with a matrix instruction, for devices that have it. Raises
    `UnsupportedError`, with the reason, if there is none."""
    target = dialect.language.target
    forms = _FORMS.get(f"{target} {dialect.shader_model}", _FORMS.get(target))
    if forms is None:
        raise UnsupportedError(f"target '{target}' has no matrix instructions: {WITHOUT[target]}")
    if instruction.shape.factors in dialect.limits.word_types:
        raise UnsupportedError(
            f"matrix instructions need 16-bit types, which shader model {dialect.shader_model} "
            "has not: 6.2 has"
        )
    return dataclasses.replace(
        dialect,
        limits=dataclasses.replace(
            dialect.limits,
            instruction=instruction,
            vector_lanes=min(dialect.limits.vector_lanes, forms.lanes),
            buffer_lanes=dialect.limits.whole_lanes,
        ),
        matrices=forms,
        own_names=(*dialect.own_names, *forms.names),
    )
