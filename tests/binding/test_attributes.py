from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dmlc.binding import TensorDesc
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from tests.binding.declare import X, Y, declare, f32, refusal, refusals, says

ROWS = """
| Alpha  | FLOAT    | | |
| Count  | INT      | 2 | 1, 2, 3 |
| Axis   | UINT     | Count + 1 | |
| Mode   | MODE     | HIGH | |
| Flag   | BOOL     | false | |
| Layout | string   | NCX | `NCX`, `NXC` |
| Scales | FLOAT[X.DimensionCount] | | |
| Free   | UINT[]   | [] | |
| Modes  | MODE[]   | [LOW, DML_X] | |
""".replace(", DML_X", "")
COMPUTE = """
    base = Mode == HIGH ? 100 : 200
    layout = Layout == "NXC" ? 10 : 0
    Y = X * 0 + Alpha + Count + Axis + base + layout + (Flag ? 1000 : 0) + Scales[0] + sum(Free)
"""
OP = declare(
    COMPUTE, X, Y, attributes=ROWS, constraints="X and Y must have the same DataType and Sizes."
)


def value(**attributes: Any) -> float:
    given = {"Alpha": 0.5, "Scales": [0.0]} | attributes
    function = OP.bind({"X": f32(1)}, given)
    return float(evaluate(function, {"X": np.zeros(1, np.float32)})["Y"][0])


def test_defaults() -> None:
    assert value() == 0.5 + 2 + 3 + 100


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"Mode": "LOW"}, 205.5),
        ({"Mode": "MODE_LOW"}, 205.5),
        ({"Mode": 0}, 205.5),
        ({"Mode": np.int32(0)}, 205.5),
        ({"Flag": True}, 1105.5),
        ({"Flag": np.True_}, 1105.5),
        ({"Flag": 1}, 1105.5),
        ({"Flag": -2}, 1105.5),
        ({"Flag": 0}, 105.5),
        ({"Layout": "NXC"}, 115.5),
        ({"Count": 3}, 107.5),
        ({"Count": 3.0, "Axis": 0}, 103.5),
        ({"Alpha": 1}, 106.0),
        ({"Alpha": np.float32(2)}, 107.0),
        ({"Scales": np.array([4.0])}, 109.5),
        ({"Free": (1, 2, 3)}, 111.5),
    ],
)
def test_values_of_every_type(given: dict[str, Any], expected: float) -> None:
    assert value(**given) == expected


def test_a_float_is_rounded_to_float32() -> None:
    assert value(Alpha=1e10 + 1) == float(np.float32(np.float32(1e10) + 105))
    assert math.isinf(value(Alpha=math.inf))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Mode": "MEDIUM"}, "unknown member of MODE 'MEDIUM'"),
        ({"Mode": 7}, "attribute 'Mode' must be a MODE (LOW = 0, HIGH = 1), but is 7"),
        ({"Mode": True}, "attribute 'Mode' must be a MODE (LOW = 0, HIGH = 1), but is True"),
        ({"Flag": "yes"}, "attribute 'Flag' must be true or false, but is 'yes'"),
        ({"Flag": 2.0}, "attribute 'Flag' must be true or false, but is 2.0"),
        ({"Alpha": "x" * 90}, "attribute 'Alpha' must be a number, but is '" + "x" * 56 + "..."),
        ({"Alpha": True}, "attribute 'Alpha' must be a number, but is True"),
        ({"Alpha": 1e39}, "attribute 'Alpha' must be a FLOAT of at most 3.40282347e+38, but is "
         "1e+39"),
        ({"Axis": -1}, "attribute 'Axis' must be a whole number of 0 or more, but is -1"),
        ({"Axis": 2**70}, "attribute 'Axis' must be at most 18446744073709551615, but is "
         "1180591620717411303424"),
        ({"Axis": 1.5}, "attribute 'Axis' must be a whole number of 0 or more, but is 1.5"),
        ({"Axis": True}, "attribute 'Axis' must be a whole number of 0 or more, but is True"),
        ({"Count": 7}, "attribute 'Count' must be one of 1, 2, 3, but is 7"),
        ({"Layout": "NCZ"}, "unknown value 'NCZ'"),
        ({"Layout": 3}, "attribute 'Layout' must be a string, but is 3"),
        ({"Scales": [1, 2]}, "attribute 'Scales' needs 1 values, but has 2"),
        ({"Scales": 1.0}, "attribute 'Scales' must be a list of values, but is 1.0"),
        ({"Scales": "12"}, "attribute 'Scales' must be a list of values, but is '12'"),
        ({"Scales": ["a"]}, "attribute 'Scales' must be a number, but is 'a'"),
        ({"Alfa": 1}, "unknown attribute 'Alfa'"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(given: dict[str, Any], message: str) -> None:
    attributes = {"Alpha": 1, "Scales": [1.0]} | given
    assert refusal(OP, {"X": f32(1)}, attributes).message == message


def test_notes_say_where_an_attribute_is_declared() -> None:
    found = refusal(OP, {"X": f32(1)}, {"Alpha": 1, "Scales": [1.0], "Mode": "HIHG"})
    assert says(found)[1:] == ("did you mean 'HIGH'?", "attribute 'Mode' is declared here")
    span = found.notes[-1].span
    assert span is not None
    assert span.text == "Mode"


def test_an_attribute_without_a_default_must_be_given() -> None:
    found = refusals(lambda: OP.bind({"X": f32(1)}))
    assert [says(d) for d in found] == [
        (
            "attribute 'Alpha' is not given, and has no default",
            "give it: --attr Alpha=..., or attributes={'Alpha': ...} in Python",
            "declared here",
        ),
        (
            "attribute 'Scales' is not given, and has no default",
            "give it: --attr Scales=..., or attributes={'Scales': ...} in Python",
            "declared here",
        ),
    ]


def test_numbers_listed_as_values() -> None:
    rows = "| A | FLOAT | | 0.1, 2 |\n| B | FLOAT | 0 | any |\n"
    op = declare("Y = X + A + B", X, Y, attributes=rows)
    assert op.bind({"X": f32(1)}, {"A": 0.1})
    assert refusal(op, {"X": f32(1)}, {"A": 0.2}).message.startswith(
        "attribute 'A' must be one of 0.1, 2, but is 0.2"
    )
    flags = declare("Y = A ? X : 0", X, Y, attributes="| A | bool | true | true |\n")
    assert refusal(flags, {"X": f32(1)}, {"A": False}).message == (
        "attribute 'A' must be one of true, but is False"
    )


LENGTHS = declare(
    "Y = X * 0 + AxisCount + sum(Axes)", X, Y,
    attributes="| AxisCount | UINT | | |\n| Axes | UINT[AxisCount] | | |",
    constraints="X and Y must have the same DataType and Sizes.",
)  # fmt: skip


def test_an_array_that_is_given_says_its_length() -> None:
    for given in ({"Axes": [1, 2, 3]}, {"AxisCount": 3, "Axes": [1, 2, 3]}):
        function = LENGTHS.bind({"X": f32(1)}, given)
        assert evaluate(function, {"X": np.zeros(1, np.float32)})["Y"].tolist() == [9]
    assert refusal(LENGTHS, {"X": f32(1)}, {"AxisCount": 2, "Axes": [0]}).message == (
        "attribute 'Axes' needs 2 values, but has 1"
    )
    assert refusal(LENGTHS, {"X": f32(1)}, {}).message == (
        "attribute 'Axes' is not given, and has no default"
    )
    assert refusal(LENGTHS, {"X": f32(1)}, {"Axes": 1}).message == (
        "attribute 'Axes' must be a list of values, but is 1"
    )


TYPED = declare(
    "Y = X + cast(Value, Kind)",
    "X | Input | 1 to 8 | FLOAT32, INT64, UINT64, INT8",
    "Y | Output | 1 to 8 | FLOAT32, INT64, UINT64, INT8",
    attributes="| Kind | TYPE | X.DataType | |\n| Value | NUMBER | 0 | |",
    constraints="""
        X and Y must have the same DataType and Sizes.
        require Kind == X.DataType, "Kind must be that of X"
    """,
)


def add(dtype: Any, **attributes: Any) -> Any:
    function = TYPED.bind({"X": TensorDesc(dtype, (1,))}, attributes)
    return evaluate(function, {"X": np.zeros(1, np.dtype(dtype))})["Y"][0]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("int64", -(2**63)), ("int64", 2**53 + 1), ("uint64", 2**64 - 1), ("uint64", np.uint64(7)),
     ("float32", 0.1), ("float32", math.inf), ("int8", -128), ("int8", np.float64(3.0))],
)  # fmt: skip
def test_a_number_is_of_any_type_exactly(dtype: str, number: Any) -> None:
    assert add(dtype, Value=number) == np.dtype(dtype).type(number)


@pytest.mark.parametrize("kind", ["INT8", "s8", np.int8, np.dtype("int8"), DataType.INT8])
def test_a_type_is_given_as_tensors_types_are(kind: Any) -> None:
    assert add("int8", Kind=kind, Value=5) == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Value": 2**64}, "attribute 'Value' must be at most 18446744073709551615, but is "
         "18446744073709551616"),
        ({"Value": -(2**63) - 1}, "attribute 'Value' must be at least -9223372036854775808, but is "
         "-9223372036854775809"),
        ({"Value": "1"}, "attribute 'Value' must be a number, but is '1'"),
        ({"Value": True}, "attribute 'Value' must be a number, but is True"),
        ({"Kind": "FLOTA32"}, "unknown data type 'FLOTA32'"),
        ({"Kind": 1}, "attribute 'Kind' must be a data type: a dmlc.DataType, a name such as "
         "'FLOAT32', or a NumPy dtype, not 1"),
        ({"Kind": "INT64"}, "broken constraint: Kind must be that of X"),
    ],
)  # fmt: skip
def test_numbers_and_types_that_cannot_be(given: dict[str, Any], message: str) -> None:
    assert refusal(TYPED, {"X": TensorDesc("FLOAT32", (1,))}, given).message == message
