from __future__ import annotations

import pytest

from dmlc.binding import Module, TensorDesc
from dmlc.language.check import check_text
from dmlc.source import DmlcError

# The rows and the sentence of the reference page, emphasis marks and all.
SENTENCE = (
    "*InputGradientTensor*, *InputTensor*, and *OutputGradientTensor* must have the same "
    "*DataType*, *DimensionCount*, and *Sizes*."
)
PAGE = """
module directml

operator ACTIVATION_RELU_GRAD {
    "Lets the gradient through where the input is positive."
    forward ACTIVATION_RELU
    tensors {
| Tensor | Kind | Supported dimension counts | Supported data types |
| ------ | ---- | -------------------------- | -------------------- |
| InputTensor | Input | 1 to 8 | FLOAT32, FLOAT16 |
| InputGradientTensor | Input | 1 to 8 | FLOAT32, FLOAT16 |
| OutputGradientTensor | Output | 1 to 8 | FLOAT32, FLOAT16 |
    }
    constraints {
SENTENCE
    }
    compute {
        X = InputTensor
        dY = InputGradientTensor
        OutputGradientTensor = (X > 0 ? dY : 0)
    }
}

graph twice[N](x: FLOAT32[N], g: FLOAT32[N]) {
    first = ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: g)
    output second = directml.ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: first)
}
""".replace("SENTENCE", SENTENCE)


def test_a_module_holds_operators_and_graphs_by_qualified_name() -> None:
    module = Module.of(check_text(PAGE, "page.dml"))
    assert list(module.operators) == ["directml.ACTIVATION_RELU_GRAD"]
    assert list(module.graphs) == ["directml.twice"]
    assert module.diagnostics == ()
    operator = module.operators["directml.ACTIVATION_RELU_GRAD"]
    assert operator.name == "directml.ACTIVATION_RELU_GRAD"
    assert operator.doc == "Lets the gradient through where the input is positive."


def test_what_a_page_says_holds_as_it_stands() -> None:
    operator = Module.of(check_text(PAGE, "page.dml")).operators["directml.ACTIVATION_RELU_GRAD"]
    half = TensorDesc("FLOAT16", (2, 3))
    function = operator.bind({"InputTensor": half, "InputGradientTensor": half})
    assert str(function).splitlines()[1].strip() == (
        "%OutputGradientTensor: f16[i0 < 2, i1 < 3] = "
        "select(gt(%InputTensor[i0, i1], 0.0), %InputGradientTensor[i0, i1], 0.0)"
    )
    with pytest.raises(DmlcError) as caught:
        operator.bind({"InputTensor": half, "InputGradientTensor": TensorDesc("FLOAT16", (3, 2))})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f'broken constraint: "{SENTENCE}"'
    assert diagnostic.notes[0].message == (
        "InputGradientTensor has Sizes [3, 2]; InputTensor has Sizes [2, 3]"
    )
