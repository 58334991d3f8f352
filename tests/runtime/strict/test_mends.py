"""Two classes of defects that drivers on CPUs never showed are found with no GPU: here each mend is
taken out, and the calls that went wrong on a GPU go wrong on the simulated device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc.codegen.dialect import Entry
from dmlc.codegen.quotients import Quotients
from dmlc.devices import find_promises
from dmlc.kernel import nodes as k
from dmlc.program import KernelSource
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.strict import executable
from dmlc.scalars import Array, DataType
from dmlc.testing.verify import verify

NAN = np.array([[np.nan, -1.0, 0.25], [2.0, np.nan, -np.inf]], np.float32)
GRID = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
PADDED: Mapping[str, object] = {
    "PaddingMode": "REFLECTION", "DimensionCount": 4, "StartPadding": [0, 0, 3, 2],
    "EndPadding": [0, 0, 3, 3],
}  # fmt: skip

Call = tuple[str, Mapping[str, Array], Mapping[str, object]]
REMAINDERS: Mapping[str, Call] = {
    "reflection": ("directml.PADDING", {"InputTensor": GRID}, PADDED),
    "symmetry": ("directml.PADDING", {"InputTensor": GRID},
                 {**PADDED, "PaddingMode": "SYMMETRIC"}),
}  # fmt: skip
CHOICES: Mapping[str, Call] = {
    "RELU": ("directml.ACTIVATION_RELU", {"InputTensor": NAN}, {}),
    "CLIP": ("directml.ELEMENT_WISE_CLIP", {"InputTensor": NAN}, {"Min": -0.5, "Max": 0.5}),
    "THRESHOLD": ("directml.ELEMENT_WISE_THRESHOLD", {"InputTensor": NAN}, {"Min": 0.5}),
    "HARD_SIGMOID": ("directml.ACTIVATION_HARD_SIGMOID", {"InputTensor": NAN},
                     {"Alpha": 0.2, "Beta": 0.5}),
}  # fmt: skip


def find_wrong(call: Call) -> list[int]:
    """The seeds of the simulated devices that give a wrong result, of four."""
    name, inputs, attributes = call
    found: list[int] = []
    for seed in range(4):
        device = f"strict:{seed}"
        results = dmlc.run(name, inputs, attributes, device=device)
        floats = find_promises(device)
        verdicts = verify(dmlc.operator(name), inputs, attributes, results, floats=floats)
        if not all(verdict.holds for verdict in verdicts.values()):
            found.append(seed)
    return found


@pytest.mark.parametrize("name", REMAINDERS)
def test_signed_remainders(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_wrong(REMAINDERS[name]) == []

    def find_operation(self: Quotients, expression: k.Operate) -> tuple[Entry, DataType]:
        """How positions were divided: as they stand, with their sign."""
        dtype = expression.operands[0].type.dtype
        entry = self._dialect.operations[expression.operation.name, dtype]
        return entry, self.index_integer if dtype is DataType.INDEX else dtype

    def find_counted(self: Quotients, expression: k.Expression) -> DataType | None:
        return None

    monkeypatch.setattr(Quotients, "find_operation", find_operation)
    monkeypatch.setattr(Quotients, "find_counted", find_counted)
    assert find_wrong(REMAINDERS[name]) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", CHOICES)
def test_nan_in_a_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_wrong(CHOICES[name]) == []

    def ask_nothing(kernel: KernelSource, floats: FloatPromises) -> tuple[int, ...]:
        """What SPIR-V asked of drivers before it had modes."""
        return ()

    monkeypatch.setattr(executable, "list_special", ask_nothing)
    assert find_wrong(CHOICES[name])
