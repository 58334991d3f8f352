"""Host code for Direct3D 12 in C++: it compiles without a warning, and what it does is what the
manifest says, call by call."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlc.interop.barriers import plan_barriers
from dmlc.interop.cpp_header import write_header
from dmlc.interop.cpp_names import is_reserved
from dmlc.interop.host_program import Digest, digest
from dmlc.program import KernelSource, Program, Repeat, Role
from dmlc.reference import evaluate as evaluate_ir
from dmlc.runtime.arrays import constant_array
from dmlc.runtime.dxc import compile_dxil
from dmlc.sizes import evaluate_size
from dmlc.source import InternalError, UnsupportedError
from tests.interop.d3d12 import programs, recording, runner
from tests.interop.d3d12.compiler import build, check_syntax, write_stubs
from tests.interop.d3d12.compiler import run as run_command
from tests.interop.d3d12.recording import Dispatch, Run
from tests.open_sizes import evaluate_formula

READ, STORED = 0x40, 0x8
E_INVALIDARG = 0x80070057
EDGES: Mapping[str, Mapping[str, int]] = {
    "ACTIVATION_RELU": {"n": 0},
    "REDUCE": {"R": 0, "C": 5},
    "MatMul": {"B": 1},
}
"""Sizes with which there is nothing to compute, or which the kernels do not take."""


def choose_sizes(program: Program) -> list[Mapping[str, int]]:
    """Random sizes of a program's symbols, small and large, and those of `EDGES`; small ones of
    one that launches kernels for each step of a loop."""
    if not program.symbols:
        return [{}]
    source = random.Random(program.name)
    most = int((program.max_count // 100) ** (1 / len(program.symbols)))
    chosen: list[Mapping[str, int]] = [
        {symbol: source.randint(3, limit) for symbol in program.symbols}
        for limit in ((9,) if program.repeats else (9, 9, most, most))
    ]
    return [*chosen, EDGES[program.name]] if program.name in EDGES else chosen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="module")
def all_runs(folder: Path) -> list[Run]:
    made = programs.make_programs()
    recording.write_headers(made, folder)
    return recording.record(made, [choose_sizes(p) for p in made], folder)


@pytest.fixture(scope="module")
def runs(all_runs: list[Run]) -> list[Run]:
    return [run for run in all_runs if run.sizes != EDGES.get(run.program.name)]


def list_buffers(program: Program) -> list[str]:
    """The tensors that buffers are named after, in order."""
    homes = program.scratch_homes()
    return [t.name for t in program.tensors if homes.get(t.name, t.name) == t.name]


def test_programs_of_every_kind(runs: list[Run]) -> None:
    made = [run.program for run in runs]
    assert any(p.counted for p in made)
    assert any(p.checks for p in made)
    assert any(p.constants for p in made)
    assert any(r.backwards for p in made for r in p.repeats)
    assert any(len(p.kernels) >= 10 for p in made)
    assert {"INT8", "INT64", "FLOAT16"} <= {t.dtype.name for p in made for t in p.tensors}
    homes = [p.scratch_homes() for p in made]
    assert any(len(set(h.values())) < len(h) for h in homes)
    assert all(run.status == 0 for run in runs)


def test_sizes_that_kernels_do_not_take(all_runs: list[Run]) -> None:
    edges = {r.program.name: r for r in all_runs if r.sizes == EDGES.get(r.program.name)}
    assert {name: run.status for name, run in edges.items()} == {
        "ACTIVATION_RELU": 0, "REDUCE": E_INVALIDARG, "MatMul": E_INVALIDARG,
    }  # fmt: skip
    assert [run.calls for run in edges.values()] == [[], [], []]


def test_sizes_are_held_to_their_ends(all_runs: list[Run], folder: Path) -> None:
    """By the compiler: `is_valid`, `groups` and `tensors` are constant expressions."""
    del all_runs  # It writes the headers.
    most = 2**31 - 2**16
    claims = [
        f"dmlc::REDUCE::is_valid({{{most}u, 1}})",
        f"!dmlc::REDUCE::is_valid({{{most + 1}u, 1}})",
        f"!dmlc::REDUCE::is_valid({{{most}u, {most}u}})",
        "!dmlc::REDUCE::is_valid({1, 0})",
        "dmlc::MatMul::is_valid({2})",
        "dmlc::MAX_POOLING::is_valid({1, 1, 3, 3})",
        "!dmlc::MAX_POOLING::is_valid({1, 1, 2, 3})",
        f"!dmlc::MAX_POOLING::is_valid({{{most}u, {most}u, {most}u, {most}u}})",
        "dmlc::ACTIVATION_RELU::is_valid({2147483647})",
        "!dmlc::ACTIVATION_RELU::is_valid({2147483648u})",
        "dmlc::ACTIVATION_RELU::ACTIVATION_RELU::groups({2147483647}).x == 65535",
        "dmlc::ACTIVATION_RELU::ACTIVATION_RELU::groups({2147483647}).y == 9",
        "dmlc::REDUCE::tensors({3, 5})[dmlc::REDUCE::slot::InputTensor].bytes == 60",
    ]
    names = ("REDUCE", "MatMul", "MAX_POOLING", "ACTIVATION_RELU")
    lines = [f'#include "{name}.hpp"' for name in names]
    lines += [f"static_assert({claim});" for claim in claims]
    source = folder / "claims.cpp"
    source.write_text("\n".join([*lines, ""]), "utf-8")
    check_syntax([source], [folder])


_SHADERS = """
#include "mock_d3d12.hpp"
#include "CHAIN.hpp"

int main()
{
    namespace p = dmlc::CHAIN;
    ID3D12Device* device = nullptr;
    D3D12CreateDevice(nullptr, D3D_FEATURE_LEVEL_11_0, IID_PPV_ARGS(&device));
    p::Pipelines pipelines;
    for (const char* second : {"DXBC, signed by dxc: two", "DXBC, signed by dxc: too",
             "DXBC, signed by dxc: two "}) {
        const char* first = "DXBC, signed by dxc: one";
        const p::Shaders shaders = {{{first, std::strlen(first)}, {second, std::strlen(second)}}};
        const char* foreign = p::find_foreign(shaders);
        std::printf("%s %x %x\\n", foreign == nullptr ? "none" : foreign,
            static_cast<unsigned>(p::create_pipelines(device, shaders, pipelines)),
            static_cast<unsigned>(p::create_pipelines(device, shaders, pipelines, true)));
    }
    std::printf("%d\\n", p::has_digest("abc", 3, {3, 0xe71fa2190541574b}));
    return 0;
}
"""


def test_shaders_of_another_compile_are_refused(tmp_path: Path) -> None:
    """Where signed ones were made with the header. FNV-1a of "abc" is that of its authors."""
    program = programs.bind_text(programs.CHAIN, X=programs.tensor("FLOAT32", 40, 40))
    files = {
        "CHAIN_1.dxil": b"DXBC, signed by dxc: one",
        "CHAIN_2.dxil": b"DXBC, signed by dxc: two",
    }
    (tmp_path / "CHAIN.hpp").write_text(write_header(program, files), "utf-8")
    write_stubs(tmp_path)
    source = tmp_path / "main.cpp"
    source.write_text(_SHADERS, "utf-8")
    build(source, tmp_path / "main", [tmp_path])
    found = [line for line in run_command(tmp_path / "main").splitlines() if "pipeline" not in line]
    assert found == ["none 0 0", "CHAIN_2 80070057 0", "CHAIN_2 80070057 0", "1"]
    # Shaders that are not signed are to be compiled again, maybe by another compiler.
    unsigned = {name: b"DXBC" + bytes(16) + b"code" for name in files}
    assert write_header(program, unsigned) == write_header(program)
    assert digest(b"abc") == Digest(3, "0xe71fa2190541574b")


def test_tensors(runs: list[Run]) -> None:
    for run in runs:
        program, homes = run.program, run.program.scratch_homes()
        names = list_buffers(program)
        for name, line, size in zip(names, run.tensors, run.bytes, strict=True):
            tensor = program.tensor(name)
            extents = [evaluate_size(e, run.sizes) for e in tensor.extents]
            strides = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
            values = constant_array(tensor).tobytes() if tensor.values else b""
            unit = find_unit(program, name)
            assert line == " ".join(
                str(part)
                for part in (
                    name, list(Role).index(tensor.role), tensor.dtype.name, tensor.dtype.bytes,
                    unit, line.split()[5], "sizes", *extents, "strides",
                    *(tensor.strides or strides), "values", values.hex(),
                )
            )  # fmt: skip
            held = [t for t in program.tensors if homes.get(t.name, t.name) == name]
            least = max(count_bytes(program, t.name, run.sizes) for t in held)
            assert size == -(-least // unit) * unit


def find_unit(program: Program, buffer: str) -> int:
    """The bytes of the largest structure that a kernel sees in a buffer."""
    homes = program.scratch_homes()
    bindings = (b for kernel in program.manifest()["kernels"] for b in kernel["buffers"])
    seen = [
        b["structure_bytes"]
        for b in bindings
        if homes.get(b["tensor"], b["tensor"]) == buffer
    ]  # fmt: skip
    return max([4, *seen])


def count_bytes(program: Program, name: str, sizes: Mapping[str, int]) -> int:
    (described,) = (t for t in program.manifest()["tensors"] if t["name"] == name)
    if described["bytes"] is not None:
        return described["bytes"]
    return evaluate_formula(described["formulas"]["bytes"], sizes)


def test_launches(runs: list[Run]) -> None:
    formulas = 0
    for run in runs:
        program, homes = run.program, run.program.scratch_homes()
        manifest, names = program.manifest()["kernels"], list_buffers(run.program)
        assert run.kernels == [
            [k["name"], k["entry_point"], " ".join(k["compile"]["arguments"])] for k in manifest
        ]
        made = [call for call in run.calls if isinstance(call, Dispatch)]
        for call, (number, step) in zip(made, program.order(run.sizes), strict=True):
            described: dict[str, Any] = manifest[number]
            sizes, launch = {**run.sizes, **step}, described["dispatch"]
            assert call.kernel == described["name"]
            groups = launch["groups"] or [evaluate_formula(f, sizes) for f in launch["formulas"]]
            assert call.groups == tuple(groups)
            formulas += launch["groups"] is None
            values = {s["offset"]: evaluate_size(s["value"], sizes) for s in described["scalars"]}
            assert {4 * place: value for place, value in enumerate(call.constants)} == values
            bound = {b["register"]: homes.get(b["tensor"], b["tensor"])
                     for b in described["buffers"]}  # fmt: skip
            assert {place: names[buffer] for place, (buffer, _) in call.views.items()} == bound
            for buffer, offset in call.views.values():
                assert offset == 1024 * find_unit(program, names[buffer])
    assert formulas > 20


def spell_root_signature(call: Dispatch) -> str:
    """The root signature that a launch was recorded with, as HLSL has it."""
    kinds = {"t": "SRV", "u": "UAV"}
    constants = [f"RootConstants(num32BitConstants={len(call.constants)}, b0)"] * bool(
        call.constants
    )
    return ", ".join([*constants, *(f"{kinds[view[0]]}({view})" for view in call.views)])


def compile_with(kernel: KernelSource, root_signature: str) -> None:
    """Has DXC hold a shader to a root signature."""
    source = kernel.source.replace(
        "[numthreads", f'[RootSignature("{root_signature}")]\n[numthreads'
    )
    compile_dxil(source, kernel.entry_point, shader_model=kernel.shader_model)


def test_root_signatures_have_what_shaders_bind(runs: list[Run]) -> None:
    kernels: dict[str, tuple[KernelSource, Dispatch]] = {}
    for run in runs:
        calls = {call.kernel: call for call in run.calls if isinstance(call, Dispatch)}
        kernels |= {k.name: (k, calls[k.name]) for k in run.program.kernels}
    assert len(kernels) > 25
    for kernel, call in kernels.values():
        compile_with(kernel, spell_root_signature(call))
    kernel, call = kernels["ACTIVATION_RELU"]
    with pytest.raises(InternalError, match=r"(?i)root signature"):
        compile_with(kernel, spell_root_signature(call).rpartition(", ")[0])


def find_races(
    program: Program, sizes: Mapping[str, int], calls: list[Dispatch | int]
) -> list[tuple[int, int, int]]:
    """Launches, by their places among the calls, and the buffers that the later one uses before it
    may: what is read of a launch before, what `after` names, and what the step before used."""
    races: list[tuple[int, int, int]] = []
    done: list[tuple[int, int, Dispatch]] = []
    ordered = program.order(sizes)
    for place, call in enumerate(calls):
        if isinstance(call, int):
            continue
        number, _ = next(ordered)
        after = program.kernels[number].after
        for earlier, other, launch in done:
            # Kernels run in order: of two, what does not come before the other is of another step.
            waits = other in after or other >= number
            races += [
                (earlier, place, buffer)
                for buffer in share(call, launch, unordered=not waits)
                if buffer not in calls[earlier:place]
            ]
        done.append((place, number, call))
    return races


def share(late: Dispatch, early: Dispatch, *, unordered: bool) -> set[int]:
    """The buffers that both use and one of them stores. Of those that nothing says to be ordered,
    what the late one reads through a view of its own."""
    late_stored, early_stored = (
        {buffer for register, (buffer, _) in each.views.items() if register[0] == "u"}
        for each in (late, early)
    )
    late_all, early_all = ({buffer for buffer, _ in e.views.values()} for e in (late, early))
    if unordered:
        return (late_all - late_stored) & early_stored
    return late_all & early_all & (late_stored | early_stored)


def test_barriers(runs: list[Run]) -> None:
    for run in runs:
        assert find_races(run.program, run.sizes, run.calls) == []
        uses: dict[int, list[int]] = {}
        for place, call in enumerate(run.calls):
            if isinstance(call, Dispatch):
                for register, (buffer, _) in call.views.items():
                    # What is in the state for reading in the end may be read by whoever follows.
                    if register[0] == "u" or run.states[buffer] == STORED:
                        uses.setdefault(buffer, []).append(place)
        for buffer, places in uses.items():
            assert buffer in run.calls[places[-1] + 1 :]


def test_a_missing_barrier_is_a_race(runs: list[Run]) -> None:
    # In a loop two barriers a step wait on the same: they bring a buffer to a state, and back.
    for run in (run for run in runs if not run.program.repeats):
        places = [n for n, call in enumerate(run.calls) if not isinstance(call, Dispatch)]
        last = max(n for n, call in enumerate(run.calls) if isinstance(call, Dispatch))
        for place in (n for n in places if n < last):
            without = [*run.calls[:place], *run.calls[place + 1 :]]
            assert find_races(run.program, run.sizes, without)


def test_buffers_are_left_as_they_are_taken(runs: list[Run]) -> None:
    for run in runs:
        assert run.again == run.calls
        stated = [int(line.split()[5], 16) for line in run.tensors]
        used = {b for call in run.calls if isinstance(call, Dispatch)
                for b, _ in call.views.values()}  # fmt: skip
        assert {b: run.states[b] for b in used} == {b: stated[b] for b in used}
        for name, state in zip(list_buffers(run.program), stated, strict=True):
            role = run.program.tensor(name).role
            assert state == STORED or (state == READ and role is not Role.OUTPUT)
            assert state == READ or role in (Role.OUTPUT, Role.SCRATCH)


@pytest.mark.parametrize("name", ["CHAIN", "TWO_STATES"])
def test_what_is_recorded_computes_the_results(runs: list[Run], name: str) -> None:
    """Tensors that share a buffer, and a loop, with what memory holds of the run before."""
    (run,) = (run for run in runs if run.program.name == name)
    text = {"CHAIN": programs.CHAIN, "TWO_STATES": programs.LOOP}[name]
    sizes = (run.sizes["T"], 5) if run.sizes else (40, 40)
    function = programs.read_text(text, X=programs.tensor("FLOAT32", *sizes))
    x = np.random.default_rng(3).standard_normal(sizes).astype(np.float32) / 4
    places = {buffer: place for place, buffer in enumerate(list_buffers(run.program))}
    memory = [np.full(size, 0xFF, np.uint8) for size in run.bytes]
    memory[places["X"]][:] = x.reshape(-1).view(np.uint8)
    for calls in (run.calls, run.again):
        memory[places["Y"]][:] = 0xFF
        runner.replay(calls, run.program, memory)
        found = memory[places["Y"]].view(np.float32).reshape(sizes)
        np.testing.assert_allclose(found, evaluate_ir(function, {"X": x})["Y"], 1e-4, 1e-6)


def test_what_a_loop_reads_of_no_step_begins_in_the_state_for_reading() -> None:
    program = programs.bind_text(programs.LOOP, X=programs.tensor("FLOAT32", 7, 5))
    assert program.repeats == (Repeat(0, 1, 7, backwards=True),)
    schedule = plan_barriers(program)
    assert schedule.stored == {"a", "a_sum", "Y"}


def test_a_kernel_without_work_is_left_out() -> None:
    program = programs.bind_text(programs.CHAIN, X=programs.tensor("FLOAT32", 40, 40))
    nothing = dataclasses.replace(program.kernels[0].dispatch, count=0)
    kernels = (dataclasses.replace(program.kernels[0], dispatch=nothing), *program.kernels[1:])
    text = write_header(dataclasses.replace(program, kernels=kernels))
    assert re.findall(r"    (\w+)::dispatch\(", text) == ["CHAIN_2", "CHAIN_3", "CHAIN_4"]


def test_names_of_the_language_and_of_windows() -> None:
    for name in ("class", "small", "OUT", "D3D12_X", "E_FAIL", "grp1", "UINT"):
        assert is_reserved(name)
    for name in ("src", "InputTensor", "grp", "x"):
        assert not is_reserved(name)


def test_every_name_is_given_once(runs: list[Run]) -> None:
    (run, *_) = (run for run in runs if run.program.name == "class")
    slots = re.search(r"enum Slot.*?\{(.*?)\}", write_header(run.program), re.DOTALL)
    assert slots
    names = re.findall(r"^    (\w+),", slots[1], re.MULTILINE)
    assert names[:6] == ["min_", "OUT_", "sizes", "class_", "record", "t_D3D12_X"]
    assert len(set(names)) == len(names)


def test_lines_are_no_longer_than_they_need_be(all_runs: list[Run]) -> None:
    programs_ = {run.program.name: run.program for run in all_runs}.values()
    lines = list(itertools.chain(*(write_header(p).splitlines() for p in programs_)))
    assert all(len(line) <= 100 for line in lines if '"' not in line and "// " not in line)
    assert all(line == line.rstrip() for line in lines)


def test_another_language_is_refused() -> None:
    program = programs.bind("onednn.ReLU", {}, target="opencl", src=programs.tensor("FLOAT32", 4))
    with pytest.raises(UnsupportedError) as raised:
        write_header(program)
    assert str(raised.value) == (
        "error: C++ for Direct3D 12 runs HLSL, and ReLU is compiled to OpenCL [E0901]\n"
        "  note: compile it for the target hlsl"
    )


def test_more_root_arguments_than_there_may_be_are_refused() -> None:
    program = programs.bind("onednn.MatMul", {}, src=programs.tensor("FLOAT32", "B", 4, 8),
                            weights=programs.tensor("FLOAT32", "B", 8, 4))  # fmt: skip
    kernel = program.kernels[0]
    many = tuple(dataclasses.replace(kernel.buffers[0], slot=n) for n in range(32))
    kernel = dataclasses.replace(kernel, buffers=many)
    with pytest.raises(UnsupportedError) as raised:
        write_header(dataclasses.replace(program, kernels=(kernel,)))
    assert "has 32 buffers and" in str(raised.value)
    assert "Direct3D 12 allows 64 (D3D12_MAX_ROOT_COST)" in str(raised.value)
