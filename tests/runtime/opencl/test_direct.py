"""Programs over addresses: the results of `Executable`, with nothing looked at."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dmlc
from dmlc.runtime import opencl
from dmlc.runtime.opencl.device import Memory
from dmlc.runtime.opencl.driver import Launcher, open_session
from dmlc.runtime.opencl.executable import Executable
from tests.runtime import handmade

Array = npt.NDArray[Any]
GRAPHS = Path(__file__).parents[3] / "examples" / "graphs"


def addresses(*arrays: Array) -> list[int]:
    return [a.ctypes.data for a in arrays]


def load(function: dmlc.ir.Function) -> Executable:
    return opencl.load(dmlc.compile(function))


def test_a_count_is_given_once() -> None:
    executable = opencl.load(handmade.relu_grad())
    (symbol,) = executable.program.symbols
    direct = executable.direct({symbol: 1003})
    assert direct is not None
    for seed in range(3):
        x, dy = np.random.default_rng(seed).standard_normal((2, 1003), np.float32)
        out = np.full_like(x, 9)
        direct(addresses(x, dy, out))
        np.testing.assert_array_equal(out, np.where(x > 0, dy, 0))


def test_strides() -> None:
    operator = dmlc.operator("directml.ACTIVATION_RELU")
    layout = dmlc.TensorDesc("FLOAT32", (2, 3, 4, 5), (60, 1, 15, 3))
    direct = load(operator.bind({"InputTensor": layout, "OutputTensor": layout})).direct({})
    assert direct is not None
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 3), np.float32)
    out = np.full_like(x, 9)
    direct(addresses(x, out))
    np.testing.assert_array_equal(out, np.maximum(x, 0))


def test_memory_between_kernels_is_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "softmax_cross_entropy_backward"
    graph = dmlc.load(GRAPHS / f"{name}.dml").graphs[name]
    executable = load(graph.bind())
    assert len(executable.program.kernels) > 1
    assert executable.program.scratch
    direct = executable.direct({"N": 6, "K": 9})
    assert direct is not None
    monkeypatch.setattr(Launcher, "keep_buffers", None)
    monkeypatch.setattr(Launcher, "set_sizes", None)
    for seed in range(3):
        random = np.random.default_rng(seed)
        logits = random.standard_normal((6, 9), np.float32)
        labels = random.integers(0, 9, (6, 1), np.int32)
        expected = dmlc.run(graph, [logits, labels], device="reference")
        found = {n: np.full_like(a, np.nan) for n, a in expected.items()}
        direct(addresses(logits, labels, *(found[t.name] for t in executable.program.outputs)))
        for output, array in expected.items():
            np.testing.assert_allclose(found[output], array, 1e-5, 1e-6)


def test_threads_have_launchers_of_their_own() -> None:
    executable = opencl.load(handmade.relu_grad())
    (symbol,) = executable.program.symbols
    direct = executable.direct({symbol: 5000})
    assert direct is not None
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full(5000, number, np.float32)
        out = np.zeros_like(x)
        for _ in range(50):
            out[...] = 0
            direct(addresses(x, x, out))
            if not (out == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_to_compute() -> None:
    function = dmlc.operator("directml.ACTIVATION_RELU").bind(
        {"InputTensor": dmlc.TensorDesc("FLOAT32", (0, 3))}
    )
    direct = load(function).direct({})
    assert direct is not None
    direct([0, 0])


def test_only_over_the_memory_of_the_host() -> None:
    device = opencl.find_device()
    program = handmade.relu_grad()
    (symbol,) = program.symbols
    for other in (
        dataclasses.replace(device, memory=Memory.COPIED),
        dataclasses.replace(device, max_allocation=4000),
    ):
        executable = Executable(program, open_session(other))
        assert executable.direct({symbol: 1001}) is None
    assert opencl.load(program).direct({symbol: program.max_count + 1}) is None


def test_sizes_are_held_to_the_checks() -> None:
    program = dataclasses.replace(handmade.relu_grad(), checks=("n != 5",))
    assert program.symbols == ("n",)
    with pytest.raises(dmlc.DmlcError, match="was made for sizes where n != 5"):
        opencl.load(program).direct({"n": 5})
