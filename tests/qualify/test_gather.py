"""What is found out of a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from dmlc import operators
from dmlc.devices import find_device
from dmlc.program import VERSION
from dmlc.qualify import gather
from dmlc.qualify.gather import ask_answers, describe_device, make_record, run_tests
from dmlc.qualify.record import Answers, Limit, Reason, parse_record, write_record
from dmlc.runtime.d3d12.device import D3D12Device
from dmlc.runtime.d3d12.device import DeviceType as D3D12Type
from dmlc.runtime.wgpu.device import DeviceType, Limits, WgpuDevice
from dmlc.source import UnavailableError
from dmlc.testing.harness import Settings
from dmlc.testing.jobs import Done, Target, run_targets
from dmlc.testing.outcome import Status
from tests.qualify.records import SPEEDS, TESTS

WRONG = str(Path(__file__).resolve().parent.parent / "data" / "testing" / "wrong.dml")
SETTINGS = Settings(("reference",), 0, 2, None, 0)
WGPU = WgpuDevice(
    0, "Card", DeviceType.DISCRETE_GPU, "Vulkan", "1.2", Limits(1, 2, 3, 4, 5, 6, 7), float16=True
)
D3D12 = D3D12Device(1, "Card", D3D12Type.DISCRETE_GPU, 0x10DE, 1 << 33, 0)


@pytest.mark.parametrize("name", ["opencl", "vulkan", WGPU, D3D12], ids=str)
def test_what_a_device_is_survives_the_file(name: str | WgpuDevice | D3D12Device) -> None:
    device = find_device(name) if isinstance(name, str) else name
    assert device is not None
    record = make_record(device, Answers((), "", 0.0), TESTS, SPEEDS)
    assert record.dmlc == VERSION
    assert (record.machine.name, record.machine.floats) == (device.name, device.floats)
    assert parse_record(write_record(record)) == record


def test_limits_are_those_of_the_runtime() -> None:
    assert describe_device(WGPU).limits == (
        Limit("type", "discrete GPU"), Limit("backend", "Vulkan"),
        Limit("limits.groups", "1"), Limit("limits.group_size", "2"),
        Limit("limits.group_shared", "3"), Limit("limits.storage_buffers", "4"),
        Limit("limits.storage_range", "5"), Limit("limits.uniform_range", "6"),
        Limit("limits.buffer", "7"), Limit("float16", "yes"),
    )  # fmt: skip
    assert describe_device(WGPU).selector == "wgpu:0"


def test_known_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "find_all_wrong", lambda _: ("sqrt(A) is 1",))
    found = ask_answers(WGPU)
    assert (found.wrong, found.problem) == (("sqrt(A) is 1",), "")

    def miss(_: object) -> tuple[str, ...]:
        raise UnavailableError("dxc is missing")

    monkeypatch.setattr(gather, "find_all_wrong", miss)
    found = ask_answers(WGPU)
    assert (found.wrong, found.problem) == ((), "dxc is missing")


def test_tests_are_counted_and_failures_described() -> None:
    targets = [Target("onednn.ReLU"), Target("DOUBLE", WRONG)]
    tests = run_tests(targets, SETTINGS, 1, None)
    double, relu = tests.operators
    assert (double.name, relu.name) == ("DOUBLE", "onednn.ReLU")
    assert double.failed == len(tests.failures) == 1
    assert relu.passed == relu.cases > 2
    assert tests.failures[0].cause == "the example, or the formula, is wrong"
    assert (tests.left, tests.stopped, tests.allowed) == ((), "", None)
    assert tests.known == len(operators()) + 1


def test_what_cannot_be_run_is_counted_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "/a/ReLU.dml:9:11: error: WGSL has no bfloat16 [E0901]\n    9 | src",
        "/a/Abs.dml:7:1: error: WGSL has no bfloat16 [E0901]",
        "error: it is too large",
        "something else",
    )

    def run(targets: Sequence[Target], settings: Settings, jobs: int) -> Iterator[Done]:
        for done in run_targets(targets, settings, 1):
            changed = (
                dataclasses.replace(outcome, status=Status.UNSUPPORTED, message=message)
                for outcome, message in zip(done.outcomes, said, strict=False)
            )
            yield dataclasses.replace(done, outcomes=tuple(changed))

    monkeypatch.setattr(gather, "run_targets", run)
    tests = run_tests([Target("onednn.ReLU")], SETTINGS, 1, None)
    assert tests.operators[0].unsupported == 4
    assert tests.unsupported == (
        Reason("WGSL has no bfloat16", 2), Reason("it is too large", 1),
        Reason("something else", 1),
    )  # fmt: skip


@dataclasses.dataclass
class _Clock:
    """A clock that a test advances."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_time_ends_the_tests_and_the_seed_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(gather, "time", clock)
    empty: list[str] = []

    def run(targets: Sequence[Target], settings: Settings, jobs: int) -> Iterator[Done]:
        summary = run_summary
        for target in targets:
            empty.append(target.name)
            clock.now += 60
            yield Done(target.name, (), summary)

    (one,) = run_targets([Target("onednn.ReLU")], SETTINGS, 1)
    run_summary = one.summary
    monkeypatch.setattr(gather, "run_targets", run)
    targets = [Target(f"a.{letter}") for letter in "ABCDEFGH"]
    orders: list[list[str]] = []
    for seed in (0, 0, 1):
        empty.clear()
        settings = dataclasses.replace(SETTINGS, seed=seed)
        tests = run_tests(targets, settings, 1, 100)
        assert len(tests.operators) == 2
        assert sorted([*tests.left, *empty]) == [t.name for t in targets]
        assert tests.seconds == 120
        orders.append(list(empty))
    assert orders[0] == orders[1] != orders[2]
    empty.clear()
    assert run_tests(targets, SETTINGS, 1, None).left == ()
    assert empty == [t.name for t in targets]


def test_a_driver_that_ends_the_process_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(targets: Sequence[Target], settings: Settings, jobs: int) -> Iterator[Done]:
        yield from run_targets(targets[:1], settings, 1)
        raise BrokenProcessPool

    monkeypatch.setattr(gather, "run_targets", run)
    tests = run_tests([Target("onednn.ReLU"), Target("onednn.Abs")], SETTINGS, 1, None)
    assert [tested.name for tested in tests.operators] == ["onednn.ReLU"]
    assert tests.left == ("onednn.Abs",)
    assert tests.stopped == (
        "a process that tested operators was ended, by the driver perhaps, near onednn.Abs"
    )
