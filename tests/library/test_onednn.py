"""The operators of oneDNN Graph as its specification has them: every operation, with its inputs,
outputs and attributes; and that what broadcasts does so as NumPy has it, whatever the ranks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.pipeline import rewrite
from tests.library.run import normal, run

SPECIFICATION = Path(__file__).parent.parent / "data" / "library" / "onednn_operations.txt"

OF_SHAPES = {"src_shape", "dst_shape", "weights_shape", "sizes"}
"""What says the sizes of an output, as an input or an attribute. Here an output has its own."""

LEFT_OUT = {
    # An operator with a second output is not read as one value: graphs have softmax(x) as that.
    ("SoftMax", "stats?"),
    # Other attributes that say sizes.
    ("Interpolate", "scales"), ("InterpolateBackward", "scales"),
    ("ConvolutionBackwardData", "output_padding"),
}  # fmt: skip
"""What the operators here have not, by operation."""

COUNTS = {"DimensionCount", "Rank"}
"""The lengths of arrays, which oneDNN passes as lists."""

KINDS = {"f": "FLOAT", "i": "INT", "b": "BOOL", "s": "STRING"}
ATTRIBUTE = re.compile(
    r"(?P<name>\w+):(?P<kind>[fibs])(?P<array>s?)(?P<default>=[^(]*)?(?:\((?P<values>.*)\))?"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """A line of the specification."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[re.Match[str], ...]


def read_operation(line: str) -> Operation:
    name, inputs, outputs, attributes = (part.split() for part in line.split(";"))
    found = [ATTRIBUTE.fullmatch(text) for text in attributes]
    matched = tuple(match for match in found if match is not None)
    assert len(matched) == len(attributes), line
    return Operation(name[0], tuple(inputs), tuple(outputs), matched)


LINES = SPECIFICATION.read_text("utf-8").splitlines()
OPERATIONS = [read_operation(line) for line in LINES if line and not line.startswith("#")]


def test_every_operation_is_described() -> None:
    found = [name.removeprefix("onednn.") for name in dmlc.operators() if "onednn." in name]
    assert sorted(found) == sorted(operation.name for operation in OPERATIONS)


def show_tensor(tensor: TensorDefinition) -> str:
    return tensor.name + "[]" * tensor.array + "?" * tensor.optional


def show_default(attribute: AttributeDefinition) -> str | None:
    """A default that is a number, a boolean or a string, and nothing for what follows from other
    things."""
    default = attribute.default
    if default is None:
        return None
    if isinstance(default, syntax.String):
        return default.value
    text = default.span.text.strip()
    return text if re.fullmatch(r"-?[\d.e-]+|true|false", text) else ""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_operations_are_as_the_specification_has_them(operation: Operation) -> None:
    definition = dmlc.operator(f"onednn.{operation.name}").definition
    taken = {a["name"] for a in operation.attributes}
    inputs = [
        name.replace("src/dst", "src")
        for name in operation.inputs
        if name.rstrip("?") not in OF_SHAPES and name != "axes?"
    ]
    assert [show_tensor(t) for t in definition.newest.inputs] == inputs
    outputs = [name for name in operation.outputs if (operation.name, name) not in LEFT_OUT]
    assert [show_tensor(t) for t in definition.newest.outputs] == outputs
    attributes = {a.name: a for a in definition.attributes if a.name not in COUNTS - taken}
    wanted = {
        a["name"]: a
        for a in operation.attributes
        if a["name"] not in OF_SHAPES and (operation.name, a["name"]) not in LEFT_OUT
    }
    assert list(attributes) == [n for n in attributes if n in wanted]
    assert set(attributes) == set(wanted)
    for name, stated in wanted.items():
        attribute, default = attributes[name], stated["default"]
        assert (attribute.base, attribute.is_array) == (
            KINDS[stated["kind"]],
            bool(stated["array"]),
        )
        found = show_default(attribute)
        assert found == (None if default is None else default[1:] or found), name
        assert (found is None) == (default is None), name
        values = stated["values"]
        if values is not None:
            assert sorted(attribute.values) == sorted(values.split(",")), name


# Broadcasting -------------------------------------------------------------------------------

PAIRS = [((2, 3), (3,)), ((3,), (4, 1, 1)), ((1, 3), (2, 1)), ((2, 1, 3), (5, 1)), ((1,), (2, 2))]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_ranks_and_sizes_broadcast_as_in_numpy(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    x, y = normal(*one), normal(*other, seed=1)
    found = run("onednn.Subtract", {"src_0": x, "src_1": y}, device="opencl")["dst"]
    np.testing.assert_array_equal(found, x - y)


def test_what_does_not_broadcast_is_refused_in_words() -> None:
    subtract = dmlc.operator("onednn.Subtract")
    row, column = dmlc.TensorDesc("FLOAT32", (4,)), dmlc.TensorDesc("FLOAT32", (2, 3))
    with pytest.raises(dmlc.DmlcError, match="matched from the last, must be the same or 1"):
        subtract.bind({"src_0": column, "src_1": row})
    short = dmlc.TensorDesc("FLOAT32", (3,))
    assert subtract.bind({"src_0": column, "src_1": short}).stages
    with pytest.raises(dmlc.DmlcError, match="same sizes where auto_broadcast is none"):
        subtract.bind({"src_0": column, "src_1": short}, {"auto_broadcast": "none"})


@pytest.mark.parametrize("name", ["Add", "Maximum", "GreaterEqual", "Select"])
def test_without_broadcasting_no_sizes_are_needed(name: str) -> None:
    """One kernel for all shapes, which takes the count at run time."""
    bound = dmlc.operator(f"onednn.{name}").bind({}, {"auto_broadcast": "none"})
    assert [stage.extents for stage in bound.stages] == [("n",)]


# Scales that are attributes -------------------------------------------------------------------


def test_many_scales_are_a_table() -> None:
    """What reads a long array reads memory, and does not choose step by step."""
    given = {"src": dmlc.TensorDesc("FLOAT32", (8, 64)), "dst": dmlc.TensorDesc("INT8", (8, 64))}
    scales = [0.5 + channel for channel in range(64)]
    quantize = dmlc.operator("onednn.Quantize")
    long = rewrite(quantize.bind(given, {"qtype": "per_channel", "scales": scales}))
    assert [table.values for table in long.tables] == [tuple(scales)]
    assert len(long.stages[-1].body.instructions) < 12
    short = {n: dmlc.TensorDesc(d.data_type, (8, 2)) for n, d in given.items()}
    few = rewrite(quantize.bind(short, {"qtype": "per_channel", "scales": scales[:2]}))
    assert few.tables == ()
