"""The ten kernels that are timed, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dmlc import ir
from dmlc.devices import find_device
from dmlc.oracle import find_expected
from dmlc.qualify import speed
from dmlc.qualify.speed import TimedFunction, list_subjects, time_subjects
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing import timing
from dmlc.testing.timing import fill_function

SMALL = 32


def test_there_are_ten_of_every_size() -> None:
    small, usual = list_subjects(SMALL), list_subjects()
    assert len({subject.name for subject in usual}) == len(usual) == 10
    assert [subject.name for subject in small] == [subject.name for subject in usual]
    for subject in usual:
        tensors = subject.make().tensors().values()
        assert all(isinstance(extent, int) for tensor in tensors for extent in tensor.extents)


@pytest.mark.parametrize("subject", list_subjects(SMALL), ids=lambda subject: subject.name)
def test_what_they_compute_is_finite(subject: TimedFunction) -> None:
    function = subject.make()
    inputs, outputs = fill_function(function)
    found = find_expected(function, inputs)
    assert all(np.isfinite(array).all() for array in found.values())
    assert {name: a.shape for name, a in found.items()} == {
        name: a.shape for name, a in outputs.items()
    }


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_times_of_a_device(device: str) -> None:
    found = find_device(device)
    assert found is not None
    subjects = [s for s in list_subjects(SMALL) if s.name in ("softmax", "transpose")]
    told: list[str] = []
    speeds = time_subjects(found, subjects, 2, told.append)
    assert told == ["softmax", "transpose"]
    assert (speeds.clock, speeds.rounds) == ("device", 2)
    for each in speeds.kernels:
        assert (each.problem, each.sizes) == ("", "32 x 32")
        assert each.bytes == 2 * 4 * SMALL * SMALL
        assert 0 < each.low <= each.ratio <= each.high
        assert each.seconds > 0 < each.copy_seconds


class _Kernel:
    """A program on a device that is made up, whose clock says what it is told to."""

    def __init__(self, program: Any, times: Mapping[str, list[float]], value: float = 0.0) -> None:
        self.times, self.value = times["copy" if program.name == "copy" else "kernel"], value

    def bind(self, inputs: Any, outputs: Mapping[str, Any]) -> Any:
        for array in outputs.values():
            array[...] = self.value
        call = lambda: dict(outputs)  # noqa: E731
        return _Call(call, self.times)


class _Call:
    def __init__(self, call: Any, times: list[float]) -> None:
        self.call, self.left = call, list(times)

    def __call__(self) -> Any:
        return self.call()

    def time_kernels(self, turns: int) -> float:
        return self.left.pop(0)


NOTHING = TimedFunction("nothing", "4", lambda: ir.parse(
    "func @nothing(%x: f32[4]) -> (%y) {\n  %y: f32[i0 < 4] = sub(%x[i0], %x[i0])\n}"
))  # fmt: skip


def _time(monkeypatch: pytest.MonkeyPatch, load: Any, rounds: int = 3) -> speed.Speeds:
    device = find_device("opencl")
    assert device is not None
    for module in (speed, timing):
        monkeypatch.setattr(module, "load_on", load)
    return time_subjects(device, [NOTHING, NOTHING], rounds)


def test_a_ratio_is_the_median_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two times to warm up and to see how long a run takes, then one a round.
    times = {"kernel": [9.0, 1.0, 2.0, 60.0, 3.0], "copy": [9.0, 1.0, 1.0, 20.0, 1.0]}
    found = _time(monkeypatch, lambda program, _: _Kernel(program, times)).kernels[0]
    assert (found.ratio, found.low, found.high) == (3.0, 2.0, 3.0)
    assert (found.seconds, found.copy_seconds, found.bytes) == (3.0, 1.0, 32)


def test_without_a_clock_the_host_s_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_Call, "time_kernels")
    found = _time(monkeypatch, lambda program, _: _Kernel(program, {"kernel": [], "copy": []}))
    assert found.clock == "host"
    assert all(each.seconds > 0 and not each.problem for each in found.kernels)


def test_what_goes_wrong_is_said_and_the_rest_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception | float] = [
        UnsupportedError("it is too large"), DmlcError("the device was lost"), np.inf, 3.0,
        RuntimeError("driver\n  says no"),
    ]  # fmt: skip

    def load(program: Any, _: object) -> _Kernel:
        error = errors[0]
        if isinstance(error, Exception):
            raise error
        times = {"kernel": [1.0] * 9, "copy": [1.0] * 9}
        return _Kernel(program, times, error)

    said: list[tuple[str, bool]] = []
    while errors:
        first = _time(monkeypatch, load).kernels[0]
        said.append((first.problem.partition(", by ")[0], first.unsupported))
        assert first.seconds == first.ratio == 0
        errors.pop(0)
    assert said == [
        ("it is too large", True),
        ("the device was lost", False),
        ("y has elements that are infinite or NaN", False),
        ("y: 4 of 4 elements differ", False),
        ("RuntimeError: driver says no", False),
    ]
