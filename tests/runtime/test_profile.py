"""The times of kernels: what is made of a clock's readings, and that devices give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import cli
from dmlc.building import GraphBuilder
from dmlc.runtime.profile import Interval, measure, read_ticks
from dmlc.source import DmlcError, UnsupportedError


def make_program(target: str = "opencl") -> dmlc.Program:
    """Sums of rows of one tensor and of another, in kernels of their own."""
    g = GraphBuilder("sums")
    for name, rows in (("a", 4), ("b", 8)):
        g.output(f"{name}_sum", g.sum(g.input(name, "FLOAT32", [rows, 512]), axes=[1]))
    return dmlc.compile(g.build(), target)


INPUTS = {"a": np.ones((4, 512), np.float32), "b": np.ones((8, 512), np.float32)}


class FakeCall:
    """A run whose launches take what a list says: those of a run, then those of the next."""

    def __init__(self, runs: list[list[Interval]], sizes: Mapping[str, int]) -> None:
        self._runs = iter(runs)
        self.sizes = sizes

    def time_launches(self) -> list[Interval]:
        return next(self._runs)


def test_the_median_of_runs_is_told_by_kernel() -> None:
    program = make_program()
    first, second = program.kernels
    # The first run warms up; in each, the second kernel is launched twice.
    seconds = [(9e-3, 9e-3), (1e-6, 2e-6), (3e-6, 1e-6), (2e-6, 3e-6)]
    runs = [[Interval(0, a), Interval(1, b), Interval(1, b)] for a, b in seconds]
    found = measure(program, "device", FakeCall(runs, {}), 3)
    one, other = found.kernels
    assert (one.name, other.name) == (first.name, second.name)
    assert (one.launches, other.launches) == (1, 2)
    assert [k.microseconds for k in found.kernels] == pytest.approx([2, 4])
    assert [k.percent for k in found.kernels] == pytest.approx([100 / 3, 200 / 3])
    assert (one.stages, other.stages) == (("a_sum",), ("b_sum",))
    assert (one.bytes, other.bytes) == (4 * 513 * 4, 8 * 513 * 4)
    assert one.gigabytes_a_second == pytest.approx(4 * 513 * 4 / 2e-6 / 1e9)
    title, header, *lines, last = str(found).splitlines()
    assert title == "device, the median of 3 runs"
    assert header.split() == ["kernel", "us", "%", "launches", "bytes", "GB/s", "stages"]
    assert [line.split()[0] for line in lines] == [first.name, second.name]
    assert last.split() == ["all", "6.0"]
    assert json.loads(json.dumps(found.to_json()))["kernels"][1]["launches"] == 2


def test_bytes_of_sizes_that_a_run_decides() -> None:
    program = dmlc.compile("directml.ACTIVATION_RELU", "opencl")
    (symbol,) = {e for t in program.inputs for e in t.extents}
    runs = [[Interval(0, 0.0)]] * 2
    (kernel,) = measure(program, "device", FakeCall(runs, {str(symbol): 100}), 1).kernels
    assert kernel.bytes == 800
    assert kernel.gigabytes_a_second is None
    assert kernel.percent == 0


def test_the_readings_of_a_clock() -> None:
    found = read_ticks([0, 2, 1], [10, 15, 15, 35], 100.0)
    assert [(i.kernel, i.seconds) for i in found] == [
        (0, pytest.approx(5e-7)), (2, 0), (1, pytest.approx(2e-6)),
    ]  # fmt: skip


@pytest.mark.parametrize(("target", "device"), [("opencl", "opencl"), ("hlsl", "vulkan")])
def test_devices_time_each_kernel(target: str, device: str) -> None:
    program = make_program(target)
    executable = dmlc.load_program(program, device)
    found = executable.profile(INPUTS, runs=2)
    assert found.device
    assert [k.name for k in found.kernels] == [k.name for k in program.kernels]
    assert all(k.launches == 1 and k.microseconds >= 0 for k in found.kernels)
    with pytest.raises(DmlcError, match="runs"):
        executable.profile(INPUTS, runs=0)


def test_a_device_without_a_clock_is_refused() -> None:
    function = dmlc.operator("directml.ACTIVATION_RELU").bind({"InputTensor": (4,)})
    from dmlc.devices import compile_for, find_device, load_on

    device = find_device("strict")
    assert device is not None
    executable = load_on(compile_for(function, device), device)
    with pytest.raises(UnsupportedError, match="has no clock that kernels can be timed by"):
        executable.profile([np.ones(4, np.float32)])


def test_the_command_takes_what_run_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.ones(100, np.float32))
    given = ["profile", "directml.ACTIVATION_RELU", "--input", f"InputTensor={tmp_path / 'x.npy'}"]
    assert cli.run([*given, "--runs", "1"]) == 0
    assert "the median of 1 run" in capsys.readouterr().out
    assert cli.run([*given, "--runs", "2", "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (kernel["bytes"], kernel["launches"]) == (800, 1)
    assert cli.run([*given, "--device", "reference"]) == 1
    assert "the reference has no clock" in capsys.readouterr().err
