"""A program's host code for Direct3D 12 as one C++ header: what `manifest.json` says, as code.

The header needs `d3d12.h` and the standard library, C++17. It makes the pipelines and records the
kernels into a command list; the host's are the device, the buffers and the values in them. The
barriers are `barriers.plan_barriers`'s; all else is the program's, from the same places as its
manifest. `templates/host.hpp.j2` holds what the file looks like.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

import jinja2
import numpy as np

from dmlc.codegen.names import (
    Mangler,
    free_name,
    make_comment,
    make_file_stem,
    make_identifier,
    wrap_comment,
)
from dmlc.interop.barriers import Barrier, Launch, Loop, plan_barriers
from dmlc.interop.cpp_names import is_reserved
from dmlc.program import (
    STEP,
    VERSION,
    BufferBinding,
    KernelSource,
    Program,
    Role,
    TensorSpec,
)
from dmlc.resources import resource_path
from dmlc.runtime.arrays import constant_array
from dmlc.scalars import DataType
from dmlc.shader_model import dxil_arguments
from dmlc.sizes import Size, is_multiple, multiply
from dmlc.source import UnsupportedError

SUFFIX = ".hpp"
_ROOT_DWORDS = 64
"""D3D12_MAX_ROOT_COST."""
_WORD = 4
_READ = "D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE"
_STORED = "D3D12_RESOURCE_STATE_UNORDERED_ACCESS"
_WIDTH = 100
"""The longest line of a header, where its formulas can be broken."""
_TITLE = "C++ for Direct3D 12"

_OWN_NAMES = (
    "Sizes", "is_valid", "Role", "Tensor", "Slot", "tensor_count", "tensors", "Buffer", "Buffers",
    "Kernel", "kernels", "kernel_count", "Pipeline", "Pipelines", "Shaders", "Groups", "Release",
    "Owned", "is_supported", "create_pipeline", "create_pipelines", "record", "round_up",
    "make_groups", "product_fits", "root_constants", "root_view", "transition", "stored_to_read",
    "read_to_stored", "stored_again", "wait_for", "sizes", "buffers", "pipelines", "pipeline",
    "list", "device", "shaders", "step", "groups", "arguments", "barriers", "status", "Arguments",
    "root_parameters", "dispatch", "blob", "result", "made", "options", "model",
)  # fmt: skip
"""The names that the template gives; those of tensors and kernels stay apart from them."""

_NEEDS = {
    "64-bit integers": ("OPTIONS1", "Int64ShaderOps"),
    "16-bit types": ("OPTIONS4", "Native16BitShaderOpsSupported"),
    "FLOAT64": ("OPTIONS", "DoublePrecisionFloatShaderOps"),
}
"""What a kernel may ask of a device, as a feature of `d3d12.h` and the field that tells."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    meaning: str
    least: int
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """A tensor as a row of the header's table. Texts are expressions of C++."""

    name: str
    title: str
    role: str
    data_type: str
    element_bytes: int
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    bytes: str
    alignment: int
    state: str
    values: str | None
    """The array of a constant's values."""
    comment: tuple[str, ...]
    """Of scratch: the tensors that lie in its buffer, and when."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Values:
    """The values of a constant, as an array."""

    name: str
    type: str
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a root signature."""

    kind: str
    """`SRV` or `UAV`."""
    slot: int
    name: str
    buffer: str
    method: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    value: str
    comment: tuple[str, ...]
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Kernel:
    space: str
    """The namespace of what belongs to it."""
    name: str
    entry_point: str
    arguments: str
    fields: tuple[_Field, ...]
    parameters: tuple[_Parameter, ...]
    groups: str
    """What the number of groups is made of: an expression of C++."""
    row: int | None
    fixed_groups: tuple[int, ...] | None
    """The groups along x, y and z, where no size decides."""
    constant_bytes: int
    comment: tuple[str, ...]
    rule: str
    takes_step: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A piece of `record`: kernels, each with the barriers before it, maybe in a loop."""

    loop: str | None
    """The head of the loop."""
    launches: tuple[tuple[int, tuple[str, ...]], ...]
    last: tuple[str, ...]
    """The barriers at the end of each step."""


def header_name(program: Program) -> str:
    """The name of the file that `write_header`'s text belongs in."""
    return make_file_stem(program.name) + SUFFIX


def write_header(program: Program) -> str:
    """The header of a program in HLSL.

    Raises `UnsupportedError` where the program is in another language, or a kernel has more
    arguments than a root signature.
    """
    if program.target != "hlsl":
        raise UnsupportedError(
            f"{_TITLE} runs HLSL, and {program.name} is compiled to {program.language.title}",
            notes=["compile it for the target hlsl"],
        )
    return _Writer(program).write()


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._mangler = Mangler(is_reserved)
        for name in _OWN_NAMES:
            self._mangler.take(name)
        members = Mangler(is_reserved)
        self._symbols = {symbol: members.spell(symbol) for symbol in program.symbols}
        self._homes = program.scratch_homes()
        homes = [t for t in program.tensors if self._homes.get(t.name, t.name) == t.name]
        self._buffers = {t.name: self._mangler.spell(t.name) for t in homes}
        self._spaces = [self._mangler.make(kernel.name) for kernel in program.kernels]
        self._manifest = program.manifest()
        self._schedule = plan_barriers(program)

    def write(self) -> str:
        program = self._program
        kernels = [self._describe_kernel(number) for number in range(len(program.kernels))]
        schedule = self._schedule
        conditions = self._list_conditions()
        newest = max(k.shader_model for k in program.kernels)
        homes = [t for t in program.tensors if t.name in self._buffers]
        slots = [self._describe_slot(t) for t in homes]
        constants = [t for t in homes if t.values]
        needs = dict.fromkeys(n for k in self._manifest["kernels"] for n in k["requires"])
        text = _template().render(
            program=make_comment(program.name),
            file=header_name(program),
            space=free_name(make_identifier(program.name), is_reserved),
            version=VERSION,
            symbols=self._list_symbols(),
            conditions=conditions,
            has_products=any("product_fits" in condition for condition in conditions),
            nothing=self._symbols[program.counted] if program.counted else None,
            slots=slots,
            rounds=any("round_up" in slot.bytes for slot in slots),
            rows=any(k.row is not None and k.fixed_groups is None for k in kernels),
            has_constants=any(k.fields for k in kernels),
            width=max([1, *(len(t.extents) for t in homes)]),
            constants=[self._spell_values(t) for t in constants],
            kernels=kernels,
            order=[line for p in schedule.parts for line in _wrap(_tell_part(p, kernels))],
            parts=[self._describe_part(p) for p in schedule.parts],
            last=[self._spell_barrier(b) for b in schedule.last],
            needs=[_NEEDS[need] for need in needs],
            shader_model={"name": newest, "code": f"0x{newest.replace('.', '')}"},
        )
        return "".join(f"{part}\n" for line in text.splitlines() for part in _break_line(line))

    # Sizes ------------------------------------------------------------------------------------

    def _sizes_of(self, text: str | int | Size) -> str:
        """A formula with the symbols as members of `sizes`."""
        return re.sub(r"[A-Za-z_]\w*", lambda m: f"sizes.{self._symbols[m[0]]}", str(text))

    def _list_symbols(self) -> list[_Symbol]:
        described = self._manifest["symbols"]
        return [
            _Symbol(
                self._symbols[name],
                make_comment(found["meaning"]),
                found.get("min", 0),
                found["max"],
            )
            for name, found in described.items()
        ]

    def _list_conditions(self) -> list[str]:
        """What has to hold of the sizes, in C++."""
        program = self._program
        most = program.max_count
        made: list[str] = []
        for symbol in self._list_symbols():
            made += [f"sizes.{symbol.name} >= {symbol.least}"] if symbol.least else []
            made.append(f"sizes.{symbol.name} <= {symbol.most}")
        made += [self._sizes_of(check) for check in program.checks]
        if program.counted:
            return made
        for tensor in program.tensors:
            factors = [e for e in tensor.extents if e != 1]
            # One symbol alone is held to its own end.
            if tensor.bytes is None and (len(factors) > 1 or not str(factors[0]).isidentifier()):
                listed = ", ".join(self._sizes_of(e) for e in factors)
                made.append(f"product_fits({{{listed}}}, {most})")
        values = {s.value for k in program.kernels for s in k.scalars if s.value != STEP}
        values |= {k.dispatch.count for k in program.kernels}
        for value in sorted(v for v in values if isinstance(v, str) and not v.isidentifier()):
            made.append(f"{self._sizes_of(value)} <= {most}")
        return list(dict.fromkeys(made))

    # Tensors ----------------------------------------------------------------------------------

    def _describe_slot(self, tensor: TensorSpec) -> _Slot:
        alignment = self._find_alignment(tensor.name)
        return _Slot(
            name=self._buffers[tensor.name],
            title=make_comment(tensor.name),
            role=tensor.role.value,
            data_type=tensor.dtype.name,
            element_bytes=tensor.dtype.bytes,
            sizes=tuple(self._sizes_of(e) for e in tensor.extents),
            strides=tuple(self._sizes_of(s) for s in _spell_strides(tensor)),
            bytes=self._spell_bytes(tensor, alignment),
            alignment=alignment,
            state=_STORED if tensor.name in self._schedule.stored else _READ,
            values=f"{self._buffers[tensor.name]}_values" if tensor.values else None,
            comment=self._tell_tenants(tensor.name) if tensor.role is Role.SCRATCH else (),
        )

    def _find_alignment(self, buffer: str) -> int:
        """The bytes of the largest structure that a kernel sees in a buffer."""
        bindings = [b for kernel in self._program.kernels for b in kernel.buffers]
        seen = [b for b in bindings if self._homes.get(b.tensor, b.tensor) == buffer]
        return max([_WORD, *(b.structure_bytes for b in seen)])

    def _spell_bytes(self, tensor: TensorSpec, alignment: int) -> str:
        """The least size of a tensor's buffer: whole structures."""
        if tensor.bytes is not None:
            return str(-(-tensor.bytes // alignment) * alignment)
        size = multiply(tensor.extents) * tensor.dtype.bytes
        text = self._sizes_of(size)
        return text if is_multiple(size, alignment) else f"round_up({text}, {alignment})"

    def _tell_tenants(self, home: str) -> tuple[str, ...]:
        told: list[str] = []
        for tensor in self._program.scratch:
            if self._homes.get(tensor.name, tensor.name) == home and tensor.lifetime:
                first, last = (self._program.kernels[n].name for n in tensor.lifetime)
                when = f"in {first}" if first == last else f"from {first} to {last}"
                told.append(f"{make_comment(tensor.name)} {when}")
        return tuple(_wrap("Holds " + ", ".join(told) + "."))

    def _spell_values(self, tensor: TensorSpec) -> _Values:
        type_, words = _spell_array(tensor)
        return _Values(f"{self._buffers[tensor.name]}_values", type_, tuple(_fill_lines(words)))

    # Kernels ----------------------------------------------------------------------------------

    def _describe_kernel(self, number: int) -> _Kernel:
        kernel = self._program.kernels[number]
        rule: str = self._manifest["kernels"][number]["dispatch"]["rule"]
        dispatch = kernel.dispatch
        cost = sum(s.bits // 32 for s in kernel.scalars) + 2 * len(kernel.buffers)
        if cost > _ROOT_DWORDS:
            raise UnsupportedError(
                f"the kernel {kernel.name} has {len(kernel.buffers)} buffers and "
                f"{len(kernel.scalars)} sizes, {cost} words of root arguments: Direct3D 12 allows "
                f"{_ROOT_DWORDS} (D3D12_MAX_ROOT_COST)",
                notes=["compute the operator in parts, or give its sizes as numbers"],
            )
        fields = Mangler(is_reserved)
        count = dispatch.count
        groups = self._sizes_of(count)
        if dispatch.per_group > 1:
            groups = f"({groups} + {dispatch.per_group - 1}) / {dispatch.per_group}"
        return _Kernel(
            space=self._spaces[number],
            name=kernel.name,
            entry_point=kernel.entry_point,
            arguments=" ".join(
                dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
            ),
            fields=tuple(
                _Field(
                    fields.make(s.name),
                    f"std::uint{s.bits}_t",
                    STEP if s.value == STEP else self._sizes_of(s.value),
                    () if s.name == s.value else tuple(_wrap(str(s.value))),
                    s.offset,
                )
                for s in sorted(kernel.scalars, key=lambda s: s.offset)
            ),
            parameters=tuple(self._list_parameters(kernel)),
            groups=groups,
            row=dispatch.row,
            fixed_groups=dispatch.groups({}) if isinstance(count, int) else None,
            constant_bytes=sum(s.bits // 8 for s in kernel.scalars),
            comment=tuple(_wrap(f"{kernel.name}, groups of {dispatch.group_size} threads: {rule}")),
            rule=rule,
            takes_step=any(s.value == STEP for s in kernel.scalars),
        )

    def _list_parameters(self, kernel: KernelSource) -> list[_Parameter]:
        """The views of a kernel's buffers: all that it reads, then all that it stores."""

        def describe(binding: BufferBinding, kind: str, method: str) -> _Parameter:
            buffer = self._buffers[self._homes.get(binding.tensor, binding.tensor)]
            return _Parameter(kind, binding.slot, make_comment(binding.name), buffer, method)

        ordered = sorted(kernel.buffers, key=lambda b: (b.written, b.slot))
        return [
            describe(b, "UAV", "SetComputeRootUnorderedAccessView")
            if b.written
            else describe(b, "SRV", "SetComputeRootShaderResourceView")
            for b in ordered
        ]

    # Recording --------------------------------------------------------------------------------

    def _describe_part(self, part: Launch | Loop) -> _Part:
        if isinstance(part, Launch):
            return _Part(None, (self._describe_launch(part),), ())
        steps = part.repeat.steps
        head = f"std::uint32_t step = 0; step < {steps}; ++step"
        if part.repeat.backwards:
            head = f"std::uint32_t step = {steps}; step-- > 0;"
        return _Part(
            head,
            tuple(self._describe_launch(each) for each in part.launches),
            tuple(self._spell_barrier(b) for b in part.last),
        )

    def _describe_launch(self, launch: Launch) -> tuple[int, tuple[str, ...]]:
        return launch.kernel, tuple(self._spell_barrier(b) for b in launch.barriers)

    def _spell_barrier(self, barrier: Barrier) -> str:
        return f"{barrier.wait.value}(buffers[{self._buffers[barrier.buffer]}])"


def _tell_part(part: Launch | Loop, kernels: Sequence[_Kernel]) -> str:
    """A piece of the program in words."""
    if isinstance(part, Launch):
        kernel = kernels[part.kernel]
        return f"{kernel.name}: {kernel.rule}"
    names = ", ".join(kernels[launch.kernel].name for launch in part.launches)
    order = "from the last to the first" if part.repeat.backwards else "from the first to the last"
    return f"for each of {part.repeat.steps:,} steps, {order}: {names}"


def _spell_strides(tensor: TensorSpec) -> list[str]:
    """The strides of a tensor in elements, with its symbols: of a packed one the products of the
    sizes of the axes behind each."""
    if tensor.strides is not None:
        return [str(stride) for stride in tensor.strides]
    strides: list[str] = []
    for axis in range(len(tensor.extents)):
        behind = tensor.extents[axis + 1 :]
        product = multiply(behind)
        factors = [str(e) if str(e).isalnum() else f"({e})" for e in behind if e != 1]
        strides.append(str(product) if isinstance(product, int) else " * ".join(factors))
    return strides


def _spell_array(tensor: TensorSpec) -> tuple[str, list[str]]:
    """The type and the elements of a constant's array. Floats that C++ has no literal for, and all
    of 16 bits, are given by their bits."""
    array = constant_array(tensor).ravel()
    dtype = tensor.dtype
    if dtype in (DataType.FLOAT32, DataType.FLOAT64) and np.isfinite(array).all():
        suffix = "f" if dtype is DataType.FLOAT32 else ""
        return "float" if suffix else "double", [_spell_float(v) + suffix for v in array]
    if dtype.is_float or dtype.bytes == 8:
        words = array.view(f"u{dtype.bytes}")
        return f"std::uint{8 * dtype.bytes}_t", [f"0x{int(w):0{2 * dtype.bytes}x}" for w in words]
    kind = "uint" if array.dtype.kind in "bu" else "int"
    return f"std::{kind}{8 * dtype.bytes}_t", [str(int(v)) for v in array]


def _spell_float(value: object) -> str:
    text = str(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _fill_lines(words: Sequence[str], width: int = _WIDTH - 4) -> list[str]:
    """Comma-separated words in lines no longer than `width`."""
    lines: list[str] = []
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            lines.append(line.rstrip())
            line = ""
        line += f"{word}, "
    return [*lines, line.rstrip()]


def _wrap(text: str) -> list[str]:
    """Text as lines of a comment."""
    return wrap_comment(make_comment(text), _WIDTH - 6)


def _break_line(line: str) -> list[str]:
    """A line of code in lines no longer than `_WIDTH`, where spaces outside texts allow: broken
    outside as many brackets as can be."""
    code = line.lstrip(" ")
    indent = line[: len(line) - len(code)]
    if len(line) <= _WIDTH or '"' in code or "//" in code:
        return [line]
    first, *others = wrap_comment(code, _WIDTH - len(indent))
    return [indent + first, *(f"{indent}{other}" for other in others)]


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_path("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("host.hpp.j2")
