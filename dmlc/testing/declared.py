"""Declarations of a foreign kernel: its buffers, its scalars, the size of its groups.

HLSL is read by DXC's reflection, SPIR-V from its decorations, OpenCL C and WGSL from their text.
Declarations that cannot be bound (textures, local memory sized by the host, several constant
buffers) are refused by name.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dmlc.files import read_bounded
from dmlc.runtime.dxc import Constant, Resource, compile_dxil, reflect
from dmlc.runtime.spirv_interface import read_interface, renumber
from dmlc.scalars import TENSOR_TYPES, DataType
from dmlc.shader_model import RegisterShifts
from dmlc.source import DmlcError, InternalError, counted, list_names

Triple = tuple[int, int, int]

_MOST_BYTES = 16 << 20
SHADER_MODEL = "6.2"
LANGUAGES = {".hlsl": "hlsl", ".spv": "hlsl", ".cl": "opencl", ".wgsl": "wgsl"}
"""Targets of kernels by the suffixes of their files."""

_TYPES = {
    "float": DataType.FLOAT32, "f32": DataType.FLOAT32, "float32_t": DataType.FLOAT32,
    "half": DataType.FLOAT16, "f16": DataType.FLOAT16, "float16_t": DataType.FLOAT16,
    "double": DataType.FLOAT64, "float64_t": DataType.FLOAT64,
    "int": DataType.INT32, "i32": DataType.INT32, "int32_t": DataType.INT32,
    "uint": DataType.UINT32, "u32": DataType.UINT32, "uint32_t": DataType.UINT32,
    "dword": DataType.UINT32, "unsigned": DataType.UINT32,
    "int64_t": DataType.INT64, "long": DataType.INT64,
    "uint64_t": DataType.UINT64, "ulong": DataType.UINT64, "size_t": DataType.UINT64,
    "int16_t": DataType.INT16, "short": DataType.INT16,
    "uint16_t": DataType.UINT16, "ushort": DataType.UINT16,
    "char": DataType.INT8, "uchar": DataType.UINT8, "bool": DataType.UINT32,
}  # fmt: skip
_VECTOR = re.compile(r"vec([234])<\s*(\w+)\s*>|([A-Za-z]\w*?)([234]|8|16)?")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredBuffer:
    """Buffer that a kernel declares."""

    name: str
    slot: int
    """Argument number in OpenCL, register in HLSL, position among the bindings in WGSL."""
    written: bool
    types: tuple[DataType, ...]
    """Data types that its elements may have."""
    unit: int
    """Unit of its offsets in bytes."""

    def __str__(self) -> str:
        return f"{self.name} ({list_names([t.name for t in self.types], 3)})"


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredScalar:
    """Scalar argument, or vector of scalars."""

    name: str
    kind: str
    """Kind of number: `float`, `signed` or `unsigned`."""
    bits: int
    count: int
    """Number of components; 1 for a scalar."""
    slot: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """Kernel with its declarations."""

    path: str
    target: str
    """Target whose devices run it: `hlsl`, `opencl`, `wgsl`."""
    source: str
    """Source to be built; empty for SPIR-V."""
    spirv: bytes
    entry: str
    buffers: tuple[DeclaredBuffer, ...]
    scalars: tuple[DeclaredScalar, ...]
    items: Triple | None
    """Work items in a group; None if OpenCL C leaves them to the host."""

    @property
    def language(self) -> str:
        """Name of its language in messages."""
        if self.spirv:
            return "SPIR-V"
        return {"hlsl": "HLSL", "opencl": "OpenCL C", "wgsl": "WGSL"}[self.target]


def read_kernel(path: str | Path, entry: str | None) -> Declared:
    """Kernel of an entry point in a file; without a name, the only one. Raises `DmlcError` for a
    missing entry point and for declarations that cannot be bound."""
    file = Path(path)
    if file.suffix not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise DmlcError(
            f"'{file}' is no kernel: its language is not known by its name",
            notes=[f"known ends of names: {known}, and .py for a Python function"],
        )
    data = read_bounded(file, _MOST_BYTES)
    if file.suffix == ".spv":
        return _read_spirv(str(file), data, entry)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DmlcError(f"'{file}' is no text in UTF-8") from None
    read = {".hlsl": _read_hlsl, ".cl": _read_opencl, ".wgsl": _read_wgsl}[file.suffix]
    return read(str(file), text, entry)


def read_notes(path: str | Path) -> str:
    """Notes of a kernel's file: the lines that begin with `// dmlc:`."""
    file = Path(path)
    if file.suffix not in LANGUAGES or file.suffix == ".spv":
        return ""
    lines = read_bounded(file, _MOST_BYTES).decode(errors="replace").splitlines()
    found = (re.fullmatch(r"\s*(?://|#)\s*dmlc:\s*(.*?)\s*", line) for line in lines)
    return " ".join(match[1] for match in found if match)


def _choose_entry(path: str, entry: str | None, found: Sequence[str]) -> str:
    if entry is None and len(found) == 1:
        return found[0]
    if entry is not None and entry in found:
        return entry
    if not found:
        raise DmlcError(f"'{path}' has no kernel")
    said = f"'{path}' has no kernel '{entry}'"
    if entry is None:
        said = f"'{path}' has {counted(len(found), 'kernel')}, and which one is meant is not said"
    raise DmlcError(said, notes=[f"--entry names one of {', '.join(found)}"])


def _strip(text: str) -> str:
    """Source without comments, with unchanged line numbers."""
    return _COMMENTS.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _read_type(text: str) -> tuple[DataType, int] | None:
    """Type and number of the components."""
    if text.strip() in _TYPES:
        return _TYPES[text.strip()], 1
    match = _VECTOR.fullmatch(text.strip())
    if match is None:
        return None
    name, count = (match[2], match[1]) if match[2] else (match[3], match[4])
    dtype = _TYPES.get(name)
    return None if dtype is None else (dtype, int(count or 1))


def _as_scalar(path: str, name: str, text: str, slot: int, offset: int) -> DeclaredScalar:
    found = _read_type(text)
    if found is None or found[0].bytes < 4:
        raise DmlcError(
            f"'{path}': the argument '{name}' is of type '{text}', which cannot be bound",
            notes=["scalars are of 32 or 64 bits, alone or in vectors"],
        )
    dtype, count = found
    kind = "float" if dtype.is_float else "signed" if dtype.name.startswith("INT") else "unsigned"
    return DeclaredScalar(name, kind, 8 * dtype.bytes, count, slot, offset)


# HLSL -----------------------------------------------------------------------------------------

_NUMTHREADS = re.compile(r"\[\s*numthreads\s*\(([^)]*)\)\s*\]\s*void\s+(\w+)\s*\(([^)]*)\)")
_STRUCTURED = re.compile(r"\b(?:RW)?StructuredBuffer\s*<\s*(\w+)\s*>\s*(\w+)")


def _read_hlsl(path: str, text: str, entry: str | None) -> Declared:
    code = _strip(text)
    name = _choose_entry(path, entry, [m[2] for m in _NUMTHREADS.finditer(code)])
    try:
        made = compile_dxil(text, name, name=path, shader_model=SHADER_MODEL)
    except InternalError as error:
        raise DmlcError(str(error)) from None
    found = reflect(made.code)
    types = {m[2]: _read_type(m[1]) for m in _STRUCTURED.finditer(code)}
    blocks = [r for r in found.resources if r.kind.register_class == "b"]
    if any(r.slot or r.space for r in blocks):
        raise DmlcError(f"'{path}': the constant buffer {blocks[0].name} must be at register b0")
    buffers = [
        _read_resource(path, resource, types.get(resource.name))
        for resource in found.resources
        if resource.kind.register_class != "b"
    ]
    scalars = [_read_constant(path, constant) for constant in found.constants]
    return Declared(path, "hlsl", text, b"", name, tuple(buffers), tuple(scalars), found.group_size)


def _read_resource(
    path: str, resource: Resource, known: tuple[DataType, int] | None
) -> DeclaredBuffer:
    what = f"'{path}': {resource.name} at {resource.register}"
    if resource.space:
        raise DmlcError(f"{what} is in register space {resource.space}, and 0 alone can be bound")
    kind = resource.kind.name
    written = resource.kind.register_class == "u"
    if kind.endswith("BYTE_ADDRESS_BUFFER"):
        return DeclaredBuffer(resource.name, resource.slot, written, TENSOR_TYPES, 4)
    if not kind.endswith("STRUCTURED_BUFFER"):
        raise DmlcError(
            f"{what} is a typed buffer, which needs a view of its own",
            notes=["declare it as StructuredBuffer or ByteAddressBuffer"],
        )
    if known is None:
        types = tuple(t for t in TENSOR_TYPES if t.bytes == resource.stride)
    else:
        types = (known[0],)
    if not types:
        raise DmlcError(f"{what} has elements of {resource.stride} bytes, which no tensor has")
    return DeclaredBuffer(resource.name, resource.slot, written, types, resource.stride)


def _read_constant(path: str, constant: Constant) -> DeclaredScalar:
    found = _as_scalar(path, constant.name, constant.type, 0, constant.offset)
    if constant.size != found.bits // 8 * found.count:
        raise DmlcError(
            f"'{path}': the constant '{constant.name}' is an array, which cannot be bound",
            notes=["give its entries names of their own, or make it a vector"],
        )
    return found


# SPIR-V ---------------------------------------------------------------------------------------


def _read_spirv(path: str, data: bytes, entry: str | None) -> Declared:
    try:
        found = read_interface(data)
    except InternalError as error:
        raise DmlcError(f"'{path}': {error}") from None
    name = _choose_entry(path, entry, found.entries)
    buffers: list[DeclaredBuffer] = []
    scalars: list[DeclaredScalar] = []
    stored = [v for v in found.variables if not v.uniform]
    # The runtime gives buffers that are read, and those that are written, numbers of their own.
    counts = [sum(v.written is written for v in stored) for written in (False, True)]
    shifts = RegisterShifts.for_counts(*counts)
    numbers = {v.identity: shifts.b for v in found.variables if v.uniform}
    for written, first in ((False, shifts.t), (True, shifts.u)):
        for slot, variable in enumerate(v for v in stored if v.written is written):
            numbers[variable.identity] = first + slot
            known = _read_type(variable.type)
            types = TENSOR_TYPES if known is None else (known[0],)
            buffers.append(DeclaredBuffer(variable.name, slot, written, types, variable.unit or 4))
    for block in (v for v in found.variables if v.uniform):
        scalars += [_as_scalar(path, m.name, m.type, 0, m.offset) for m in block.members]
    module = renumber(data, numbers)
    return Declared(path, "hlsl", "", module, name, tuple(buffers), tuple(scalars), found.items)


# OpenCL C -------------------------------------------------------------------------------------

_KERNEL = re.compile(
    r"\b(?:__)?kernel\b((?:\s|__attribute__\s*\(\([^;{]*?\)\))*)\bvoid\b"
    r"((?:\s|__attribute__\s*\(\([^;{]*?\)\))*)\b(\w+)\s*\(([^)]*)\)"
)
_REQUIRED = re.compile(r"reqd_work_group_size\s*\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)")
_QUALIFIERS = re.compile(r"\b(?:__)?(?:const|volatile|restrict|read_only|write_only)\b")


def _read_opencl(path: str, text: str, entry: str | None) -> Declared:
    kernels = {m[3]: m for m in _KERNEL.finditer(_strip(text))}
    name = _choose_entry(path, entry, list(kernels))
    match = kernels[name]
    buffers: list[DeclaredBuffer] = []
    scalars: list[DeclaredScalar] = []
    for slot, argument in enumerate(a.strip() for a in match[4].split(",") if a.strip()):
        words = re.fullmatch(r"(.*?)(\w+)", argument, re.DOTALL)
        if words is None:
            raise DmlcError(f"'{path}': the argument '{argument}' of {name} has no name")
        kind, own = words[1], words[2]
        if re.search(r"\b(?:__)?local\b", kind):
            raise DmlcError(
                f"'{path}': {name} takes local memory as its argument '{own}'",
                notes=["declare it in the kernel, with its size"],
            )
        space = re.search(r"\b(?:__)?(global|constant)\b", kind)
        plain = _QUALIFIERS.sub(" ", kind)
        plain = re.sub(r"\b(?:__)?(?:global|constant|private)\b|\*", " ", plain)
        plain = " ".join(plain.split()).replace("unsigned int", "uint")
        if "*" not in kind:
            scalars.append(_as_scalar(path, own, plain, slot, 0))
            continue
        found = _read_type(plain)
        if space is None or found is None:
            raise DmlcError(
                f"'{path}': the argument '{own}' of {name} is of type '{kind.strip()}', which "
                "cannot be bound"
            )
        written = space[1] == "global" and re.search(r"\bconst\b", kind) is None
        types = (found[0],)
        if found[0] in (DataType.UINT16, DataType.UINT8):
            # OpenCL C has no names for these.
            same = (DataType.BFLOAT16, DataType.BOOL)
            types += tuple(t for t in same if t.bytes == found[0].bytes)
        buffers.append(DeclaredBuffer(own, slot, written, types, found[0].bytes * found[1]))
    sized = _REQUIRED.search(match[1] + match[2])
    items = None if sized is None else (int(sized[1]), int(sized[2]), int(sized[3]))
    return Declared(path, "opencl", text, b"", name, tuple(buffers), tuple(scalars), items)


# WGSL -----------------------------------------------------------------------------------------

_VARIABLE = re.compile(
    r"@group\s*\(\s*\d+\s*\)\s*@binding\s*\(\s*(\d+)\s*\)\s*"
    r"var\s*<\s*(storage|uniform)\s*(?:,\s*(read_write|read|write)\s*)?>\s*(\w+)\s*:\s*([^;]+);"
)
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_NUMBER = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(\d+)[ui]?\s*;")
_FUNCTION = re.compile(
    r"((?:@\w+\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*)+)fn\s+(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)"
)
_GROUP_SIZE = re.compile(r"@workgroup_size\s*\(([^)]*)\)")


def _read_wgsl(path: str, text: str, entry: str | None) -> Declared:
    code = _strip(text)
    functions = {m[2]: m for m in _FUNCTION.finditer(code) if "@compute" in m[1]}
    name = _choose_entry(path, entry, list(functions))
    sized = _GROUP_SIZE.search(functions[name][1])
    numbers = dict(_NUMBER.findall(code))
    words = [w.strip().rstrip("ui") for w in (sized[1] if sized else "").split(",") if w.strip()]
    sizes = [numbers.get(word, word) for word in words]
    if not sizes or not all(size.isdecimal() for size in sizes):
        raise DmlcError(f"'{path}': @workgroup_size of {name} is no number that is written there")
    x, y, z = [*map(int, sizes), 1, 1][:3]
    found = sorted(_VARIABLE.finditer(code), key=lambda m: (m[2] == "uniform", int(m[1])))
    buffers: list[DeclaredBuffer] = []
    scalars: list[DeclaredScalar] = []
    heads: list[tuple[int, int, str]] = []
    structs = {m[1]: m[2] for m in _STRUCT.finditer(code)}
    if sum(m[2] == "uniform" for m in found) > 1:
        raise DmlcError(f"'{path}' has several uniform buffers, and one can be bound")
    for slot, match in enumerate(found):
        # Comments keep their lengths: places in the code are places in the text.
        end = match.start() + match[0].index("var") + len("var")
        heads.append((match.start(), end, f"@group(0) @binding({slot}) var"))
        if match[2] == "uniform":
            scalars += _read_block(path, match[4], match[5].strip(), structs)
            continue
        item = re.fullmatch(r"array\s*<\s*(.+?)\s*(?:,[^>]*)?>\s*", match[5].strip())
        inner = re.fullmatch(r"atomic\s*<\s*(\w+)\s*>", item[1]) if item else None
        dtype = None if item is None else _read_type(inner[1] if inner else item[1])
        if dtype is None:
            raise DmlcError(f"'{path}': {match[4]} is no array of numbers: {match[5].strip()}")
        written = match[3] == "read_write"
        unit = dtype[0].bytes * dtype[1]
        buffers.append(DeclaredBuffer(match[4], slot, written, (dtype[0],), unit))
    made = text
    for start, end, head in sorted(heads, reverse=True):  # What stands before keeps its place.
        made = made[:start] + head.ljust(end - start) + made[end:]
    return Declared(path, "wgsl", made, b"", name, tuple(buffers), tuple(scalars), (x, y, z))


def _read_block(
    path: str, name: str, text: str, structs: dict[str, str]
) -> Iterator[DeclaredScalar]:
    """Members of a uniform buffer, at their aligned offsets."""
    if text not in structs:
        yield _as_scalar(path, name, text, 0, 0)
        return
    at = 0
    for member in (m.strip() for m in structs[text].split(",") if m.strip()):
        own, _, kind = member.partition(":")
        if "@" in own:
            raise DmlcError(f"'{path}': '{member}' has attributes, and is laid out by those")
        scalar = _as_scalar(path, own.strip(), kind.strip(), 0, 0)
        size = scalar.bits // 8 * scalar.count
        step = scalar.bits // 8 * (4 if scalar.count == 3 else scalar.count)
        at = -(-at // step) * step
        yield dataclasses.replace(scalar, offset=at)
        at += size


# Another order --------------------------------------------------------------------------------

_BACKWARDS_CL = """\
static size_t dmlc_local(uint d) { return get_local_size(d) - 1 - get_local_id(d); }
static size_t dmlc_group(uint d) { return get_num_groups(d) - 1 - get_group_id(d); }
static size_t dmlc_global(uint d) { return dmlc_group(d) * get_local_size(d) + dmlc_local(d); }
#define get_local_id dmlc_local
#define get_group_id dmlc_group
#define get_global_id dmlc_global
#line 1
"""
_BACKWARDS = "dmlc_backwards"


def turn_order(declared: Declared) -> Declared | None:
    """Kernel with the order of work items reversed within the group; without races it computes the
    same. None for kernels with subgroups, whose items must be neighbours, and for SPIR-V."""
    if declared.spirv or re.search(r"Wave|subgroup|sub_group|linear_id", _strip(declared.source)):
        return None
    return _TURNS[declared.language](declared)


def _reverse_opencl(declared: Declared) -> Declared:
    return dataclasses.replace(declared, source=_BACKWARDS_CL + declared.source)


def _reverse_hlsl(declared: Declared) -> Declared | None:
    if declared.items is None:
        return None
    text, entry, (x, y, z) = declared.source, declared.entry, declared.items
    found = next((m for m in _NUMTHREADS.finditer(_strip(text)) if m[2] == entry), None)
    arguments = None if found is None else _list_arguments(found[3], (x, y, z))
    if arguments is None:
        return None
    made = (
        f"{text}\n[numthreads({x}, {y}, {z})]\nvoid {_BACKWARDS}(uint3 group : SV_GroupID, "
        f"uint3 item : SV_GroupThreadID)\n{{\n"
        f"    uint3 own = uint3({x - 1}, {y - 1}, {z - 1}) - item;\n"
        f"    {entry}({', '.join(arguments)});\n}}\n"
    )
    return dataclasses.replace(declared, source=made, entry=_BACKWARDS)


def _reverse_wgsl(declared: Declared) -> Declared | None:
    if declared.items is None:
        return None
    text, entry, (x, y, z) = declared.source, declared.entry, declared.items
    found = next((m for m in _FUNCTION.finditer(_strip(text)) if m[2] == entry), None)
    parameters = (
        []
        if found is None
        else re.findall(r"@builtin\s*\(\s*(\w+)\s*\)\s*(\w+)\s*:\s*([\w<>]+)", found[3])
    )
    if found is None or len(parameters) != len([p for p in found[3].split(",") if p.strip()]):
        return None
    values = {
        "workgroup_id": "group", "local_invocation_id": "own", "num_workgroups": "count",
        "global_invocation_id": f"group * vec3<u32>({x}u, {y}u, {z}u) + own",
        "local_invocation_index": f"own.z * {x * y}u + own.y * {x}u + own.x",
    }  # fmt: skip
    if any(builtin not in values for builtin, _, _ in parameters):
        return None
    declaration = ", ".join(f"{name} : {kind}" for _, name, kind in parameters)
    body = text[: found.start()] + f"fn {entry}({declaration})" + text[found.end() :]
    given = ", ".join(values[builtin] for builtin, _, _ in parameters)
    made = (
        f"{body}\n@compute @workgroup_size({x}, {y}, {z})\n"
        f"fn {_BACKWARDS}(@builtin(workgroup_id) from_first : vec3<u32>, "
        "@builtin(num_workgroups) count : vec3<u32>, "
        "@builtin(local_invocation_id) item : vec3<u32>) {\n"
        "  let group = count - vec3<u32>(1u, 1u, 1u) - from_first;\n"
        f"  let own = vec3<u32>({x - 1}u, {y - 1}u, {z - 1}u) - item;\n"
        f"  {entry}({given});\n}}\n"
    )
    return dataclasses.replace(declared, source=made, entry=_BACKWARDS)


_TURNS: Mapping[str, Callable[[Declared], Declared | None]] = {
    "HLSL": _reverse_hlsl, "OpenCL C": _reverse_opencl, "WGSL": _reverse_wgsl,
}  # fmt: skip


def _list_arguments(parameters: str, items: Triple) -> list[str] | None:
    """Arguments of an HLSL entry point for a work item with another one's index."""
    x, y, z = items
    values = {
        "SV_DISPATCHTHREADID": f"(group * uint3({x}, {y}, {z}) + own)", "SV_GROUPID": "group",
        "SV_GROUPTHREADID": "own",
        "SV_GROUPINDEX": f"(own.z * {x * y} + own.y * {x} + own.x)",
    }  # fmt: skip
    found: list[str] = []
    for parameter in (p for p in parameters.split(",") if p.strip()):
        match = re.fullmatch(r"\s*(?:in\s+)?(u?int)([23]?)\s+\w+\s*:\s*(\w+)\s*", parameter)
        value = None if match is None else values.get(match[3].upper())
        if match is None or value is None:
            return None
        count = int(match[2] or 1)
        found.append(value if match[3].upper() == "SV_GROUPINDEX" else f"{value}.{'xyz'[:count]}")
    return found


def check_items(declared: Declared, items: Triple | None) -> Triple:
    """Work items in a group: those of the source, or else those given."""
    if declared.items is not None:
        if items is not None and items != declared.items:
            raise DmlcError(
                f"'{declared.path}' itself says that a group has {declared.items} work items"
            )
        return declared.items
    if items is None or math.prod(items) < 1:
        raise DmlcError(
            f"'{declared.path}' does not say how many work items a group of {declared.entry} has",
            notes=[
                "--group-size 64 says it, or __attribute__((reqd_work_group_size(64, 1, 1))) "
                "before the kernel"
            ],
        )
    return items


__all__ = [
    "LANGUAGES", "Declared", "DeclaredBuffer", "DeclaredScalar", "check_items", "read_kernel",
    "read_notes", "turn_order",
]  # fmt: skip
