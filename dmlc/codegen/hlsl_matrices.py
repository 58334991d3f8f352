"""HLSL with matrix instructions, for Vulkan alone: those of `VK_KHR_cooperative_matrix`, as inline
SPIR-V, which DXC compiles.

Direct3D 12 has `dx::linalg` from shader model 6.10 on, and no compiler that is at hand has that;
subgroup matrices of WGSL are an experiment. These are refused with that reason.
"""

from __future__ import annotations

import dataclasses

from dmlc.codegen.dialect import Dialect, MatrixForms
from dmlc.kernel import nodes as k
from dmlc.matrices import TEXT_ONLY, Instruction
from dmlc.source import UnsupportedError

_VULKAN = """\
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
"""The numbers are those of SPIR-V's specification: opcodes, the scope Subgroup (3) of a matrix, and
the built-in SubgroupId (40), whose capability is GroupNonUniform (61)."""

VULKAN = MatrixForms(
    declarations=_VULKAN,
    names=("Matrix", "read_matrix", "write_matrix", "multiply_add", "make_matrix", "subgroup_id"),
    type="Matrix<{S}, {rows}, {columns}, {use}>",
    uses={k.Use.LEFT: "0", k.Use.RIGHT: "1", k.Use.SUM: "2"},
    fill="{m} = make_matrix<{M} >({a});",
    # Memory operands: what others of the group (scope 2) have stored is seen, and what is stored
    # is seen by them, at barriers.
    load="{m} = read_matrix<{M} >({e}, {layout}, {stride}, 0x30, 2);",
    store="write_matrix({e}, {m}, 0, {stride}, 0x28, 2);",
    multiply="{m} = multiply_add({left}, {right}, {m});",
    subgroup="subgroup_id",
)


def use_matrices(dialect: Dialect, instruction: Instruction) -> Dialect:
    """The dialect of the same language with a matrix instruction, for devices that have it. Raises
    `UnsupportedError`, with the reason, where there is none."""
    if not dialect.shader_model:
        raise UnsupportedError(
            f"target '{dialect.name}' has no matrix instructions: {TEXT_ONLY[dialect.name]}"
        )
    if instruction.shape.factors not in dialect.loads or dialect.limits.word_types:
        raise UnsupportedError(
            f"matrix instructions need 16-bit types, which shader model {dialect.shader_model} "
            "has not: 6.2 has"
        )
    return dataclasses.replace(
        dialect,
        limits=dataclasses.replace(dialect.limits, instruction=instruction),
        matrices=VULKAN,
        own_names=(*dialect.own_names, *VULKAN.names),
    )
