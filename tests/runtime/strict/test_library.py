"""The examples of the library and of `examples/` on simulated devices that take every freedom, each
by a seed of its own. `dmlc test --device strict` runs the calls that are drawn, too."""

from __future__ import annotations

import zlib

import pytest

import dmlc
from dmlc.devices import find_promises
from dmlc.testing.outcome import Status
from dmlc.testing.verify import verify
from tests.example_runs import run_examples
from tests.examples.graphs import NAMES, make_case


def choose_device(name: str) -> str:
    return f"strict:{zlib.crc32(name.encode()) % 1000}"


@pytest.mark.grid(12)
@pytest.mark.parametrize("name", sorted(dmlc.operators()))
def test_examples_of_the_library(name: str) -> None:
    outcomes = list(run_examples(dmlc.operator(name), choose_device(name)))
    assert [o.message for o in outcomes if o.status is Status.FAILED] == []


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", NAMES)
def test_graphs(name: str) -> None:
    case, device = make_case(name), choose_device(name)
    results = case.run(device)
    verdicts = verify(case.graph, case.inputs, {}, results, case.dims, floats=find_promises(device))
    for output, verdict in verdicts.items():
        assert verdict.holds, (output, str(verdict))
