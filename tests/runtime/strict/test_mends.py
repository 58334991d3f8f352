"""Three classes of defects that drivers on CPUs never showed are found with no GPU: here each mend
is taken out, and the calls that went wrong on a GPU, or may on one, go wrong on the simulated
device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import pipeline
from dmlc.binding import Operator
from dmlc.codegen.quotients import Quotients
from dmlc.devices import compile_for, find_promises, load_on
from dmlc.ir import Function
from dmlc.kernel import nodes as k
from dmlc.program import KernelSource
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.strict import StrictDevice, executable
from dmlc.scalars import Array, DataType
from dmlc.scalars.operation import Entry
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


PIXELS = np.arange(2, dtype=np.float32).reshape(1, 1, 1, 2)
REGION = {"ROITensor": np.array([[0, 0, 2, 0]], np.float32),
          "BatchIndicesTensor": np.zeros(1, np.uint32)}  # fmt: skip
SAMPLED: Mapping[str, object] = {
    "ReductionFunction": "AVERAGE", "InterpolationMode": "NEAREST_NEIGHBOR", "SpatialScaleX": 1,
    "SpatialScaleY": 1, "OutOfBoundsInputValue": 0, "MinimumSamplesPerOutput": 1,
    "MaximumSamplesPerOutput": 1,
}  # fmt: skip
MOVED: Mapping[str, object] = {
    **SAMPLED, "InputPixelOffset": 0.5, "OutputPixelOffset": -0.5, "AlignRegionsToCorners": False,
}  # fmt: skip
QUOTIENTS: Mapping[str, Call] = {
    "ROI_ALIGN": ("directml.ROI_ALIGN", {"InputTensor": PIXELS, **REGION}, SAMPLED),
    "ROI_ALIGN1": ("directml.ROI_ALIGN1", {"InputTensor": PIXELS, **REGION}, MOVED),
}
PLACES = """
operator PLACES {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | y      | Output | f32   |
    }
    compute { y[i : x.Sizes[0]] = x[cast(floor(cast(i, FLOAT32) * 3 / 3), INT32)] else -1 }
}"""


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


def find_moved(
    operator: Operator,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object],
    function: Function,
) -> list[int]:
    """The seeds of the simulated devices that give a wrong result, of eight, compiled anew."""
    found: list[int] = []
    program = compile_for(function, StrictDevice())
    for seed in range(8):
        device = StrictDevice(seed)
        results = load_on(program, device)(inputs)
        verdicts = verify(operator, inputs, attributes, results, floats=device.floats)
        if not all(verdict.holds for verdict in verdicts.values()):
            found.append(seed)
    return found


def keep_all(function: Function) -> Function:
    """Quotients as they were divided: as devices like."""
    return function


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_of_elements_in_positions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, inputs, attributes = QUOTIENTS[name]
    given = {n: dmlc.TensorDesc(a.dtype, a.shape) for n, a in inputs.items()}
    given["OutputTensor"] = dmlc.TensorDesc("FLOAT32", (1, 1, 1, 1))
    described = dmlc.operator(operator)
    bound = described.bind(given, attributes)
    assert find_moved(described, inputs, attributes, bound) == []
    monkeypatch.setattr(pipeline, "round_quotients", keep_all)
    assert find_moved(described, inputs, attributes, bound)


def test_quotients_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    described = dmlc.parse(PLACES).operators["PLACES"]
    bound = described.bind({"x": dmlc.TensorDesc("FLOAT32", ["N"])})
    inputs = {"x": np.arange(40, dtype=np.float32)}
    assert find_moved(described, inputs, {}, bound) == []
    monkeypatch.setattr(pipeline, "round_quotients", keep_all)
    assert find_moved(described, inputs, {}, bound)
