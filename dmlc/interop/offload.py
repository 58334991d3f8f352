"""Test files of LLVM's offload-test-suite: a proof for Direct3D 12, Vulkan and Metal machines.

The suite (github.com/llvm/offload-test-suite) runs HLSL on the devices that it finds. A test file
holds the shader, a YAML pipeline with the contents of its buffers, and the commands that `lit`
runs. `pipeline.schema.json` beside this file states as a JSON schema the part of the format that is
written here; its source is the suite's `lib/Support/Pipeline.cpp` and README.

A pipeline has one compute shader. A program of several kernels becomes one pipeline per kernel in
the same file, and the reference's results stand for those of the kernels before. `rules` has the
comparison of results."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dmlc.codegen.names import make_comment
from dmlc.interop.proof import WORD_BYTES, Proof, buffer_bytes, count_elements, place, unwritten
from dmlc.interop.rules import Rule, make_rules, refuse_results
from dmlc.ir import Result
from dmlc.oracle import find_expected
from dmlc.pipeline import compile, make_kernels
from dmlc.program import KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.runtime.constants import fill_constants
from dmlc.scalars import Array, DataType
from dmlc.shader_model import dxc_arguments, list_needs
from dmlc.source import UnsupportedError
from dmlc.testing.bounds import bound_errors

_FORMATS = {
    DataType.FLOAT64: "Float64",
    DataType.FLOAT32: "Float32",
    # Its words: the suite counts the steps between those of two floats.
    DataType.BFLOAT16: "Float16",
    DataType.FLOAT16: "Float16",
    DataType.INT64: "Int64",
    DataType.INT32: "Int32",
    DataType.INT16: "Int16",
    DataType.UINT64: "UInt64",
    DataType.UINT32: "UInt32",
    DataType.UINT16: "UInt16",
}
_FEATURES = {"64-bit integers": "Int64", "FLOAT64": "Double"}
"""What `lit` calls the abilities of devices."""
_WORD_OF_LIT = re.compile(
    r"((?:RUN|XFAIL|REQUIRES|UNSUPPORTED|ALLOW_RETRIES|DEFINE)(?=:)|END(?=\.))"
)
"""What `lit` obeys anywhere in a file, also behind text of an operator's: a space behind the word
keeps it from that, and means nothing to HLSL."""
_CONSTANT_BUFFER = "Arguments"
_WIDTH = 96


def make_test(proof: Proof, shader_model: str | None = None) -> str:
    """Text of a test file. Raises `UnsupportedError` for programs that no such file can express,
    and `DmlcError` if HLSL cannot express the function."""
    program = compile(proof.function, "hlsl", root_signature=False, shader_model=shader_model)
    program.refuse_repeats("a test file runs each kernel once")
    values = _find_values(proof, program, shader_model)
    parts: list[tuple[KernelSource, str, str]] = []
    for kernel in program.kernels:
        stem = "pipeline" if len(program.kernels) == 1 else kernel.name
        stem += "_" if _WORD_OF_LIT.search(f"{stem}.") else ""
        parts.append((kernel, stem, "source" if stem == "pipeline" else stem))
    lines: list[str] = []
    for kernel, stem, source in parts:
        lines += [f"#--- {source}.hlsl", *_bind_vulkan(kernel).splitlines()]
        lines += [f"#--- {stem}.yaml", *_write_pipeline(kernel, program, values)]
    lines += ["#--- end", "", *_describe(proof, program, values), ""]
    lines = [_WORD_OF_LIT.sub(r"\1 ", line) for line in lines]
    needs = [need for kernel in program.kernels for need in _list_features(kernel)]
    if needs:
        lines.append(f"# REQUIRES: {', '.join(dict.fromkeys(needs))}")
    lines.append("# RUN: split-file %s %t")
    for kernel, stem, source in parts:
        arguments = dxc_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
        lines += [
            # DXC has no strict arithmetic for SPIR-V, and needs none there.
            f"# RUN: %dxc_target {' '.join(arguments)} %if DXC && !Vulkan %{{ -Gis %}} "
            f"-Fo %t/{stem}.o %t/{source}.hlsl",
            f"# RUN: %offloader %t/{stem}.yaml %t/{stem}.o",
        ]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """Expected contents of a tensor's memory, and the tolerance of each element."""

    expected: Array
    """A line of elements; between those of the tensor, and behind them, what memory is full of."""
    allowed: Array


def _find_values(proof: Proof, program: Program, shader_model: str | None) -> dict[str, _Values]:
    """Expected values of every tensor of the program. Raises `UnsupportedError` if the reference
    does not know one, or memory is reused in a way that separate pipelines cannot show."""
    _check_dataflow(program)
    expected, allowed = dict(proof.expected), dict(proof.allowed)
    scratch = [tensor.name for tensor in program.scratch]
    if scratch:
        fused, _ = make_kernels(proof.function, "hlsl", shader_model=shader_model)
        unknown = [name for name in scratch if fused.stage(name) is None]
        if unknown:
            raise UnsupportedError(
                f"kernels of {program.name} pass on partial results in '{unknown[0]}', and a "
                "pipeline of the offload-test-suite runs one kernel",
                notes=["take sizes that one kernel computes: with shorter reductions"],
            )
        between = dataclasses.replace(fused, results=tuple(Result(name) for name in scratch))
        expected |= find_expected(between, proof.inputs)
        allowed |= bound_errors(between, proof.inputs)
    expected |= proof.inputs
    expected |= {tensor.name: constant_array(tensor) for tensor in program.constants}
    values: dict[str, _Values] = {}
    for tensor in program.tensors:
        array = np.ascontiguousarray(expected[tensor.name])
        given = tensor.role in (Role.INPUT, Role.CONSTANT)
        fill = np.zeros(1, array.dtype) if given else unwritten(tensor.dtype)
        count = buffer_bytes(tensor, program) // tensor.dtype.bytes
        line = _pad(place(tensor, array, fill).reshape(-1), count, fill)
        if program.kernels[0].shader_model == "6.0" and tensor.dtype.is_storage_only and not given:
            # Kernels store all of the last word.
            written = count_elements(tensor)
            line[
                written : -(-written * line.itemsize // WORD_BYTES) * WORD_BYTES // line.itemsize
            ] = 0
        if tensor.dtype.bytes == 1:
            values[tensor.name] = _join_words(line, tensor.name, allowed.get(tensor.name))
            continue
        bound = np.asarray(allowed.get(tensor.name, np.zeros(array.shape)))
        zero = np.zeros(1)
        bounds = _pad(place(tensor, bound, zero).reshape(-1), count, zero)
        values[tensor.name] = _Values(line, bounds)
    return values


def _join_words(line: Array, name: str, allowed: Array | None) -> _Values:
    """Bytes as words, which the suite has a type for. A word is right or wrong as a whole."""
    if allowed is not None and np.any(allowed > 0):
        raise refuse_results(name)
    words = line.view(np.uint32)
    return _Values(words, np.zeros(words.shape))


def _known_type(tensor: TensorSpec) -> DataType:
    """The suite's type for a buffer's elements."""
    return DataType.UINT32 if tensor.dtype.bytes == 1 else tensor.dtype


def _check_dataflow(program: Program) -> None:
    written: dict[str, str] = {}
    for kernel in program.kernels:
        for buffer in (b for b in kernel.buffers if b.written):
            if buffer.read or buffer.tensor in written:
                raise UnsupportedError(
                    f"kernels of {program.name} store '{buffer.tensor}' one after another, and a "
                    "pipeline of the offload-test-suite runs one kernel"
                )
            written[buffer.tensor] = kernel.name


def _pad(line: Array, count: int, behind: Array) -> Array:
    """Array padded to a number of elements."""
    return np.concatenate([line, np.repeat(behind, count - line.size)])


# The shader ------------------------------------------------------------------------------------


def _bind_vulkan(kernel: KernelSource) -> str:
    """Source of a kernel with Vulkan's bindings, which all kinds of registers share."""
    shifts = kernel.shifts
    bindings = {b.register: shifts.find_binding(b.slot, b.written) for b in kernel.buffers}
    bindings["b0"] = shifts.b

    def bind(match: re.Match[str]) -> str:
        return f"[[vk::binding({bindings[match['register']]}, 0)]] {match[0]}"

    declaration = r"^(?:RW)?(?:StructuredBuffer|cbuffer)\b.*: register\((?P<register>[tub]\d+)\)"
    return re.sub(declaration, bind, kernel.source, flags=re.MULTILINE)


def _list_features(kernel: KernelSource) -> Iterator[str]:
    for need in list_needs(kernel.source):
        if need in _FEATURES:
            yield _FEATURES[need]
        else:
            yield from (n for n, t in (("Half", "float16_t"), ("Int16", "int16_t"))
                        if t in kernel.source)  # fmt: skip


# The pipeline ----------------------------------------------------------------------------------


def _write_pipeline(
    kernel: KernelSource, program: Program, values: Mapping[str, _Values]
) -> list[str]:
    groups = ", ".join(map(str, kernel.dispatch.groups({})))
    lines = ["---", "Shaders:", "  - Stage: Compute", f"    Entry: {kernel.entry_point}"]
    lines += ["DispatchParameters:", f"  DispatchGroupCount: [{groups}]", "Buffers:"]
    shifts, resources = kernel.shifts, list[str]()
    rules: list[Rule] = []
    for buffer in kernel.buffers:
        tensor, own = program.tensor(buffer.tensor), values[buffer.tensor]
        stride, name = buffer.structure_bytes, _quote(tensor.name)
        dtype = _known_type(tensor)
        if buffer.written:
            lines += _write_fill(name, dtype, stride, own.expected.nbytes)
            made = make_rules(tensor.name, own.expected, own.allowed, dtype)
            rules += made
            for rule in made:
                lines += _write_buffer(_quote(rule.buffer), dtype, stride, rule.expected)
        else:
            lines += _write_buffer(name, dtype, stride, own.expected)
        kind = "RWStructuredBuffer" if buffer.written else "StructuredBuffer"
        binding = shifts.find_binding(buffer.slot, buffer.written)
        resources += _write_resource(name, kind, buffer.slot, binding)
    if kernel.scalars:
        lines += _write_constants(kernel)
        resources += _write_resource(_CONSTANT_BUFFER, "ConstantBuffer", 0, shifts.b)
    lines += ["Results:", *(line for rule in rules for line in _write_rule(rule))]
    return [*lines, "DescriptorSets:", "  - Resources:", *resources, "..."]


def _write_buffer(name: str, dtype: DataType, stride: int, values: Array) -> list[str]:
    head = [f"  - Name: {name}", f"    Format: {_FORMATS[dtype]}", f"    Stride: {stride}"]
    return [*head, *_wrap("    Data: [ ", _spell(dtype, values))]


def _write_fill(name: str, dtype: DataType, stride: int, count: int) -> list[str]:
    """Buffer that a kernel writes."""
    (fill,) = _spell(dtype, unwritten(dtype))
    return [
        f"  - Name: {name}",
        f"    Format: {_FORMATS[dtype]}",
        f"    Stride: {stride}",
        f"    FillSize: {count}",
        f"    FillValue: {fill}",
    ]


def _write_constants(kernel: KernelSource) -> list[str]:
    words = [f"0x{word:08x}" for word in np.frombuffer(fill_constants(kernel, {}), np.uint32)]
    head = [f"  - Name: {_CONSTANT_BUFFER}", "    Format: Hex32"]
    return [*head, *_wrap("    Data: [ ", words)]


def _write_resource(name: str, kind: str, register: int, binding: int) -> list[str]:
    return [
        f"    - Name: {name}",
        f"      Kind: {kind}",
        "      DirectXBinding:",
        f"        Register: {register}",
        "        Space: 0",
        "      VulkanBinding:",
        f"        Binding: {binding}",
    ]


def _write_rule(rule: Rule) -> list[str]:
    return [
        f"  - Result: {_quote(rule.title)}",
        f"    Rule: {rule.name}",
        *(f"    {key}: {value}" for key, value in rule.settings),
        f"    Actual: {_quote(rule.actual)}",
        f"    Expected: {_quote(rule.buffer)}",
    ]


def _quote(text: str) -> str:
    """Name in YAML, quoted if it could be read as anything else."""
    plain = re.fullmatch(r"[A-Za-z_][\w.]*( [\w.]+)*", text)
    return text if plain and text.lower() not in _WORDS else f"'{text}'"


_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")


def _spell(dtype: DataType, values: Array) -> list[str]:
    """Elements in the suite's format: 16-bit floats by their words, others in the fewest digits
    that distinguish them."""
    if dtype.is_float and dtype.bytes == 2:
        return [f"0x{word:04x}" for word in values.view(np.uint16)]
    return [str(value) for value in values]


def _wrap(head: str, items: Sequence[str]) -> list[str]:
    lines, line = list[str](), head
    for number, item in enumerate(items):
        text = item + ("," if number + 1 < len(items) else " ]")
        if len(line) + len(text) > _WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(head)
        line += f"{text} "
    return [*lines, line.rstrip()]


# What the file says of itself ------------------------------------------------------------------


def _describe(proof: Proof, program: Program, values: Mapping[str, _Values]) -> Iterable[str]:
    title = make_comment(proof.title)
    yield f"# {program.name}: {title}. Made by dmlc from the operator's reference."
    yield "# With the offload-test-suite built, and this file among its tests: llvm-lit FILE"
    if any(np.any(values[t.name].allowed > 0) for t in program.outputs):
        yield "# Each element may be off by a bound of its own. A rule has one tolerance for all"
        yield "# elements: so results are held to two buffers, each as far off to one side as the"
        yield "# tolerance is larger than the bound."
    if len(program.kernels) > 1:
        yield "# Each kernel is given what the reference says that those before it leave."
    for tensor in program.outputs:
        if tensor.dtype is DataType.BFLOAT16:
            yield f"# {tensor.name} is bfloat16, compared by the steps between its words."
