"""Host code for Direct3D 12 in C++: it compiles without a warning, and what it does is what the
manifest says, call by call."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.interop.cpp_header import header_name, write_header
from dmlc.program import Program, Role
from dmlc.runtime.arrays import constant_array
from dmlc.sizes import evaluate_size
from dmlc.source import UnsupportedError
from tests.interop.d3d12 import programs, recording
from tests.interop.d3d12.recording import Dispatch, Run

READ, STORED = 0x40, 0x8
E_INVALIDARG = 0x80070057
LARGEST = 2**31 - 2**16


def choose_sizes(program: Program) -> list[Mapping[str, int]]:
    """Random sizes of a program's symbols, small and large."""
    if not program.symbols:
        return [{}]
    random_ = random.Random(program.name)
    most = int((program.max_count // 100) ** (1 / len(program.symbols)))
    return [
        {symbol: random_.randint(3, limit) for symbol in program.symbols}
        for limit in (9, 9, most, most)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    made = programs.make_programs()
    folder = tmp_path_factory.mktemp("host")
    recording.write_headers(made, folder)
    return recording.record(made, [choose_sizes(p) for p in made], folder)


def test_programs_of_every_kind(runs: list[Run]) -> None:
    made = [run.program for run in runs]
    assert all(run.status == 0 for run in runs)
    assert any(p.counted for p in made)
    assert any(p.checks for p in made)
    assert any(p.constants for p in made)
    assert any(r.backwards for p in made for r in p.repeats)
    assert any(len(p.kernels) >= 10 for p in made)
    assert any(t.dtype.name == "INT8" for p in made for t in p.tensors)
    homes = [p.scratch_homes() for p in made]
    assert any(len(set(h.values())) < len(h) for h in homes)


def test_tensors(runs: list[Run]) -> None:
    for run in runs:
        program, homes = run.program, run.program.scratch_homes()
        tensors = [t for t in program.tensors if homes.get(t.name, t.name) == t.name]
        assert len(run.tensors) == len(tensors)
        for tensor, line, size in zip(tensors, run.tensors, run.bytes, strict=True):
            extents = [evaluate_size(e, run.sizes) for e in tensor.extents]
            empty = np.broadcast_to(np.zeros((), tensor.dtype.dtype), extents)
            packed = [int(np.prod(extents[axis + 1 :], dtype=object)) for axis in range(empty.ndim)]
            strides = packed if tensor.strides is None else list(tensor.strides)
            found = re.fullmatch(
                r"(\S+) (\d) (\w+) (\d+) (\d+) (\w+) sizes ?([\d ]*) strides ?([\d ]*) values (\w*)",
                line,
            )
            assert found
            assert found[1] == tensor.name
            assert list(Role)[[0, 1, 2, 3][int(found[2])]] is tensor.role
            assert found[3] == tensor.dtype.name
            assert int(found[4]) == tensor.dtype.bytes
            assert [int(n) for n in found[7].split()] == extents
            assert [int(n) for n in found[8].split()] == strides
            values = constant_array(tensor).tobytes() if tensor.values else b""
            assert bytes.fromhex(found[9]) == values
            seen = [b.structure_bytes for k in program.kernels for b in k.buffers
                    if homes.get(b.tensor, b.tensor) == tensor.name]  # fmt: skip
            unit = max([4, *seen])
            assert int(found[5]) == unit
            held = [t for t in program.tensors if homes.get(t.name, t.name) == tensor.name]
            least = max(_count_bytes(t, run.sizes) for t in held)
            assert size == -(-least // unit) * unit
            ends = [t.lifetime for t in held if t.lifetime is not None]
            for one, other in zip(sorted(ends), sorted(ends)[1:], strict=False):
                assert one[1] < other[0], "tensors that share a buffer are never needed together"


def _count_bytes(tensor: dmlc.program.TensorSpec, sizes: Mapping[str, int]) -> int:
    described = dmlc.program._describe_tensor(tensor)
    if described["bytes"] is not None:
        return described["bytes"]
    return eval(described["formulas"]["bytes"].replace("/", "//"), {}, dict(sizes))


def test_launches(runs: list[Run]) -> None:
    for run in runs:
        program, homes = run.program, run.program.scratch_homes()
        manifest = program.manifest()["kernels"]
        names = [line.split()[0] for line in run.tensors]
        assert run.kernels == [
            [k["name"], k["entry_point"], " ".join(k["compile"]["arguments"])] for k in manifest
        ]
        made = [call for call in run.calls if isinstance(call, Dispatch)]
        ordered = list(program.order())
        assert [call.kernel for call in made] == [program.kernels[n].name for n, _ in ordered]
        for call, (number, step) in zip(made, ordered, strict=True):
            kernel, described = program.kernels[number], manifest[number]
            sizes = {**run.sizes, **step}
            assert call.groups == kernel.dispatch.groups(run.sizes)
            values = {s["offset"] // 4: evaluate_size(s["value"], sizes) for s in described["scalars"]}
            assert dict(enumerate(call.constants)) == values
            wanted = {b["register"]: homes.get(b["tensor"], b["tensor"]) for b in described["buffers"]}
            assert {place: names[buffer] for place, (buffer, _) in call.views.items()} == wanted
            for buffer, offset in call.views.values():
                assert offset == 1024 * int(run.tensors[buffer].split()[4])


def test_formulas_of_the_manifest(runs: list[Run]) -> None:
    """What host code computes from count, group and row, the manifest says in C."""
    compared = 0
    for run in runs:
        groups = {c.kernel: c.groups for c in run.calls if isinstance(c, Dispatch)}
        for kernel in run.program.manifest()["kernels"]:
            for formula, number in zip(
                kernel["dispatch"].get("formulas", ()), groups[kernel["name"]], strict=False
            ):
                assert _evaluate(formula, run.sizes) == number
                compared += 1
    assert compared > 60


def _evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """A formula of the manifest, in C."""
    choice = re.fullmatch(r"(.+) \? (.+) : (.+)", formula.replace("/", "//"))
    if choice is None:
        return eval(formula.replace("/", "//"), {}, dict(sizes))
    return eval(f"({choice[2]}) if ({choice[1]}) else ({choice[3]})", {}, dict(sizes))


def test_barriers(runs: list[Run]) -> None:
    """Whatever one kernel leaves to another one is behind a barrier: what is read, what `after`
    says, and what a step leaves to the next. The mock knows the states."""
    for run in runs:
        ordered = list(run.program.order())
        last_step: int | None = None
        done: list[tuple[int, int, Dispatch]] = []
        barriers: list[tuple[int, int]] = []
        launches = iter(ordered)
        for place, call in enumerate(run.calls):
            if isinstance(call, int):
                barriers.append((place, call))
                continue
            number, step = next(launches)
            for before, earlier, other in done:
                for buffer in _share(call, other):
                    reads = any(
                        v[0] == buffer and register[0] == "t" for register, v in call.views.items()
                    )
                    asked = earlier in run.program.kernels[number].after
                    if reads or asked or _is_in_other_step(run.program, number, earlier):
                        assert any(before < at < place and b == buffer for at, b in barriers)
            done.append((place, number, call))
            last_step = step.get("step", last_step)
        stored = {b for _, _, call in done for register, (b, _) in call.views.items() if register[0] == "u"}
        for buffer in stored:
            uses = [at for at, _, call in done if any(v[0] == buffer for v in call.views.values())]
            assert any(at > uses[-1] and b == buffer for at, b in barriers) or (
                run.tensors[buffer].split()[5] == f"{READ:x}"
            )


def _share(one: Dispatch, other: Dispatch) -> list[int]:
    """The buffers that both use, and one of them stores."""
    stored = {v[0] for call in (one, other) for r, v in call.views.items() if r[0] == "u"}
    return [b for b in stored if all(b in {v[0] for v in c.views.values()} for c in (one, other))]


def _is_in_other_step(program: Program, number: int, earlier: int) -> bool:
    """Whether an earlier launch was of a step before: kernels of a step are in order."""
    return any(r.first <= n <= r.last for r in program.repeats for n in [number]) and earlier >= number


def test_buffers_are_left_as_they_are_taken(runs: list[Run]) -> None:
    for run in runs:
        assert run.again == run.calls
        states = [int(line.split()[5], 16) for line in run.tensors]
        used = {b for c in run.calls if isinstance(c, Dispatch) for b, _ in c.views.values()}
        assert [run.states[b] for b in used] == [states[b] for b in used]
        roles = [int(line.split()[1]) for line in run.tensors]
        assert all(s in (READ, STORED) for s in states)
        assert all(s == READ for s, role in zip(states, roles, strict=True) if role in (0, 3))
