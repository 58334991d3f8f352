"""Runs generated host code against the mock, and reads what it did."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dmlc.interop.cpp_header import header_name, write_header
from dmlc.program import Program
from tests.interop.d3d12.compiler import build, run, write_stubs

_MAIN = """
#include "mock_d3d12.hpp"
%(includes)s
namespace {

ID3D12Device* device = nullptr;
ID3D12GraphicsCommandList* list = nullptr;

ID3D12Resource* make_buffer(std::uint64_t bytes)
{
    // Memory is for launches that are computed: none is.
    auto* made = new mock::Resource(0, D3D12_HEAP_TYPE_DEFAULT, true, D3D12_RESOURCE_STATE_COMMON);
    std::printf("buffer %%zu %%llu\\n", made->number, static_cast<unsigned long long>(bytes));
    return made;
}

void show(const char* head, const std::uint64_t* numbers, std::uint32_t count)
{
    std::printf(" %%s", head);
    for (std::uint32_t each = 0; each < count; ++each) {
        std::printf(" %%llu", static_cast<unsigned long long>(numbers[each]));
    }
}
%(functions)s
} // namespace

int main()
{
    D3D12CreateDevice(nullptr, D3D_FEATURE_LEVEL_11_0, IID_PPV_ARGS(&device));
    device->CreateCommandList(0, D3D12_COMMAND_LIST_TYPE_COMPUTE, nullptr, nullptr,
        IID_PPV_ARGS(&list));
%(calls)s
    return 0;
}
"""

_FUNCTION = """
void run_%(number)d()
{
    namespace p = dmlc::%(space)s;
    for (const p::Sizes& sizes : std::initializer_list<p::Sizes>{%(sizes)s}) {
        std::printf("run %(number)d\\n");
        p::Shaders shaders;
        for (std::size_t each = 0; each < p::kernel_count; ++each) {
            const char* name = p::kernels[each].name;
            shaders[each] = {name, std::strlen(name)};
            std::printf("kernel %%s %%s %%s\\n", name, p::kernels[each].entry_point,
                p::kernels[each].dxc_arguments);
        }
        p::Pipelines pipelines;
        if (!p::is_supported(device) || p::create_pipelines(device, shaders, pipelines) != S_OK) {
            mock::fail("there are no pipelines");
        }
        p::Buffers buffers;
        const auto tensors = p::tensors(sizes);
        for (std::size_t each = 0; each < p::tensor_count; ++each) {
            const p::Tensor& tensor = tensors[each];
            buffers[each] = {make_buffer(tensor.bytes), 1024 * tensor.alignment};
            std::printf("tensor %%s %%d %%s %%u %%llu %%x", tensor.name,
                static_cast<int>(tensor.role), tensor.data_type, tensor.element_bytes,
                static_cast<unsigned long long>(tensor.alignment),
                static_cast<unsigned>(tensor.state));
            show("sizes", tensor.sizes, tensor.rank);
            show("strides", tensor.strides, tensor.rank);
            std::printf(" values ");
            const auto* bytes = static_cast<const unsigned char*>(tensor.values);
            std::uint64_t count = bytes == nullptr ? 0 : tensor.element_bytes;
            for (std::uint32_t axis = 0; axis < tensor.rank; ++axis) {
                count *= tensor.sizes[axis];
            }
            for (std::uint64_t place = 0; place < count; ++place) {
                std::printf("%%02x", bytes[place]);
            }
            std::printf("\\n");
        }
        // Twice: the buffers are left as they are taken.
        std::printf("record\\n");
        const HRESULT status = p::record(list, pipelines, buffers%(given)s);
        std::printf("status %%d\\nagain\\n", static_cast<int>(status));
        p::record(list, pipelines, buffers%(given)s);
        for (std::size_t each = 0; each < p::tensor_count; ++each) {
            const auto& resource = *static_cast<mock::Resource*>(buffers[each].resource);
            std::printf("state %%x\\n", static_cast<unsigned>(resource.state));
        }
    }
}
"""


@dataclasses.dataclass(frozen=True)
class Dispatch:
    kernel: str
    groups: tuple[int, int, int]
    constants: tuple[int, ...]
    views: Mapping[str, tuple[int, int]]
    """By register: the number of the buffer, counted from the first of the run, and the offset."""


@dataclasses.dataclass
class Run:
    """What a program's host code did for some sizes."""

    program: Program
    sizes: Mapping[str, int]
    kernels: list[list[str]] = dataclasses.field(default_factory=list)
    tensors: list[str] = dataclasses.field(default_factory=list)
    bytes: list[int] = dataclasses.field(default_factory=list)
    calls: list[Dispatch | int] = dataclasses.field(default_factory=list)
    """Launches, and the numbers of buffers that barriers are on."""
    again: list[Dispatch | int] = dataclasses.field(default_factory=list)
    states: list[int] = dataclasses.field(default_factory=list)
    status: int = -1


def write_headers(programs: Sequence[Program], folder: Path) -> None:
    for program in programs:
        (folder / header_name(program)).write_text(write_header(program), "utf-8")


def record(
    programs: Sequence[Program], sizes: Sequence[Sequence[Mapping[str, int]]], folder: Path
) -> list[Run]:
    """Compiles the headers of programs in a folder, and runs each with some sizes; those of a
    program without symbols are one empty mapping."""
    write_stubs(folder)
    functions: list[str] = []
    for number, (program, given) in enumerate(zip(programs, sizes, strict=True)):
        space = re.search(r"^namespace dmlc::(\w+)", write_header(program), re.MULTILINE)
        assert space
        listed = (", ".join(f"{n[s]}u" for s in program.symbols) for n in given)
        functions.append(
            _FUNCTION
            % {
                "number": number,
                "space": space[1],
                "sizes": ", ".join(f"p::Sizes{{{each}}}" for each in listed),
                "given": ", sizes" if program.symbols else "",
            }
        )
    text = _MAIN % {
        "includes": "".join(f'#include "{header_name(p)}"\n' for p in programs),
        "functions": "".join(functions),
        "calls": "\n".join(f"    run_{n}();" for n in range(len(programs))),
    }
    source = folder / "record.cpp"
    source.write_text(text, "utf-8")
    build(source, folder / "record", [folder])
    given = [Run(p, each) for p, all_ in zip(programs, sizes, strict=True) for each in all_]
    return _read(run(folder / "record").splitlines(), given)


def _read(lines: Sequence[str], runs: Sequence[Run]) -> list[Run]:
    left = iter(runs)
    own, calls, first = runs[0], runs[0].calls, 0
    for line in lines:
        word, _, rest = line.partition(" ")
        match word:
            case "run":
                own, first = next(left), -1
            case "kernel":
                own.kernels.append(rest.split(" ", 2))
            case "buffer":
                number, size = map(int, rest.split())
                first = number if first < 0 else first
                own.bytes.append(size)
            case "tensor":
                own.tensors.append(rest)
            case "record":
                calls = own.calls
            case "again":
                calls = own.again
            case "status":
                own.status = int(rest) & 0xFFFFFFFF
            case "state":
                own.states.append(int(rest, 16))
            case "barrier":
                calls.append(int(rest) - first)
            case _:
                assert word == "dispatch", line
                calls.append(_read_dispatch(rest.split(), first))
    return list(runs)


def _read_dispatch(words: Sequence[str], first: int) -> Dispatch:
    views: dict[str, tuple[int, int]] = {}
    for word in words[4:]:
        if "=" in word:
            register, buffer, offset = re.split(r"[=+]", word)
            views[register] = int(buffer) - first, int(offset)
    constants = tuple(int(w) for w in words[4:] if "=" not in w)
    x, y, z = map(int, words[1:4])
    return Dispatch(words[0], (x, y, z), constants, views)
