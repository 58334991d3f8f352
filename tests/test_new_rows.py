"""What follows of a row that is added to a table, and what each part of the compiler says of a row
that it does not know yet.

A child process adds a row to a table, a scalar operation to that of `scalars` say, and nothing
else. So every part must either derive what it needs of the row, or name what is missing: no import
fails, no text is written that an outside compiler refuses, and no derivative is taken for 0.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from dmlc.language.attribute_types import ATTRIBUTE_TYPES, AttributeType
from dmlc.scalars import OPERATIONS, Record
from dmlc.scalars.functions import REGISTRY

_ROW = """
import json
import numpy as np
from dmlc import scalars
from dmlc.scalars.operation import SMOOTH
row = scalars.Record(
    "cube", 1, scalars.Operands.FLOAT, lambda x: x * x * x,
    boolean=False, symbol=None, narrows=None, internal=False,
    meaning="the third power", edges={"float": "cube(2) = 8"},
    derivative=lambda p: p.d * 3 * (p.x * p.x), kinks=SMOOTH, cost=2,
    error=scalars.Error.FUNCTION, range=None, never_negative=scalars.Keeps.NEVER,
    whole=scalars.Keeps.OPERANDS, limits=(), formula=FORMULA,
    float32=ROUTINE, float64=None, infix=None, hlsl=WAY, opencl=WAY,
    wgsl=WAY, onnx=None, cgc=(), mlir=("", "", ""), torch=None, pages=("cube",),
)
scalars.OPERATIONS = {**scalars.OPERATIONS, "cube": row}
"""

_ROUTINE = "from dmlc.scalars.operation import Way\nWAY = Way.ROUTINE\n"
_HELPER = "from dmlc.scalars.operation import Way\nWAY = Way.HELPER\n"

_LACKING = "ROUTINE = FORMULA = None\n"

_WHOLE = """
def cube(x):
    return x * x * x

from dmlc.scalars import expression
FORMULA, ROUTINE = cube, expression.define(cube)
"""

_NOTE = """
import dmlc
from dmlc import ir
from dmlc.ir.json import from_json, to_json
from dmlc.language.builtins import BUILT_IN
from dmlc.reference import evaluate
from dmlc.transform.differentiate import differentiate
text = "func @f(%A: TYPE[3]) -> (%Y) {\\n  %Y: TYPE[i0 < 3] = cube(%A[i0])\\n}"
single, double = (ir.parse(text.replace("TYPE", name)) for name in ("f32", "f64"))

def note(act):
    try:
        return act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

values = {"A": np.array([1, 2, 3], np.float32)}
found = {
    "reference": note(lambda: evaluate(single, values)["Y"].tolist()),
    "text": note(lambda: ir.parse(str(single)) == single),
    "json": note(lambda: from_json(to_json(single)) == single),
    "language": "cube" in BUILT_IN,
    "derivative": note(lambda: str(
        differentiate(single, ["A"], {"Y": "dY"}, {"A": "dA"}, {}).function
    )),
    "mlir": note(lambda: dmlc.mlir.export(single)),
    "onnx": note(lambda: dmlc.onnx.export(single)),
}
for target in ("hlsl", "wgsl", "opencl"):
    found[target] = note(lambda: str(dmlc.compile(single, target)))
    found[target + " f64"] = note(lambda: str(dmlc.compile(double, target)))
print(json.dumps(found))
"""

_RUN = """
import dmlc
from dmlc import ir
single = ir.parse("func @f(%A: f32[n]) -> (%Y) {\\n  %Y: f32[i0 < n] = cube(%A[i0])\\n}")
values = np.arange(100, dtype=np.float32)
program = dmlc.compile(single, "opencl")
found = dmlc.load_program(program)({"A": values})["Y"]
right = (found == values * values * values).all().item()
texts = [dmlc.compile(single, target).kernels[0].source for target in ("hlsl", "wgsl")]
fixed = ir.parse("func @f(%A: f32[4]) -> (%Y) {\\n  %Y: f32[i0 < 4] = cube(%A[i0])\\n}")
others = [dmlc.mlir.export(fixed), str(dmlc.onnx.export(fixed))]
print(json.dumps([right, program.kernels[0].source, texts, others]))
"""

_TYPE = """
import json
import numpy as np
from dmlc import scalars
from dmlc.language import attribute_types as types
row = types.AttributeType(
    name="DOUBLE", also=("f64",), what=types.What.NUMBER, holds=types.Holds.FLOAT,
    must_be="a number", limits=(0, 0), rounds_to=scalars.DataType.FLOAT64, opens=False,
    torch="float",
)
types.ATTRIBUTE_TYPES = {**types.ATTRIBUTE_TYPES, "DOUBLE": row}
import dmlc
from dmlc.testing.draw_values import draw_one
(operator,) = dmlc.parse('''
operator SCALE {
    attributes {
        | Attribute | Type   | Default |
        | Factor    | double | 0.1     |
    }
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f64   |
        | y      | Output | f64   |
    }
    compute { y = x * Factor }
}
''').operators.values()

def run(**given):
    try:
        arrays = {"x": np.ones(1)}
        return dmlc.run(operator, arrays, attributes=given, device="reference")["y"].item()
    except dmlc.DmlcError as error:
        return str(error)

random = np.random.default_rng(1)
drawn = [draw_one(random, operator.definition.attributes[0]) for _ in range(50)]
whole = all(float(value).is_integer() for value in drawn)
print(json.dumps([run(), run(Factor=1e300), run(Factor=3), run(Factor="x"), whole]))
"""


def _run(*parts: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", "".join(parts)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers() -> dict[str, object]:
    return cast("dict[str, object]", _run(_ROUTINE, _LACKING, _ROW, _NOTE))


def test_what_follows_from_the_row_alone(answers: dict[str, object]) -> None:
    assert answers["reference"] == [1, 8, 27]
    assert answers["text"] is answers["json"] is answers["language"] is True
    assert "mul(mul(%dY[i0], 3.0), mul(v0, v0))" in str(answers["derivative"])


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("hlsl", "the record of 'cube' has no routine of FLOAT32"),
        ("wgsl", "the record of 'cube' has no routine of FLOAT32"),
        ("opencl", "the record of 'cube' has no routine of FLOAT32"),
        ("opencl f64", "the record of 'cube' has no routine of FLOAT64"),
        ("hlsl f64", "the record of 'cube' has no routine of FLOAT64"),
        ("wgsl f64", "WGSL has no 64-bit floats"),
        ("mlir", "MLIR's dialects arith and math have no 'cube'"),
        ("onnx", "ONNX has no operator that computes 'cube'"),
    ],
)
def test_what_is_missing_is_named(answers: dict[str, object], part: str, says: str) -> None:
    assert says in str(answers[part])


def test_a_function_that_templates_lack_is_named() -> None:
    answers = cast("dict[str, object]", _run(_HELPER, _LACKING, _ROW, _NOTE))
    for target in ("hlsl", "opencl", "wgsl"):
        assert f"the templates of '{target}' have no function 'cube'" in str(answers[target])


def test_a_record_is_all_that_a_kernel_of_vectors_needs() -> None:
    right, source, texts, others = cast(
        "tuple[bool, str, list[str], list[str]]", _run(_ROUTINE, _WHOLE, _ROW, _RUN)
    )
    assert right
    assert all("portable_cube(" in text for text in texts)
    assert "arith.mulf" in others[0]
    assert '"Mul"' in others[1]
    assert "portable_cube_x16(" in source


def test_a_type_of_attributes_is_a_row() -> None:
    default, large, whole, refused, draws_whole = cast("list[object]", _run(_TYPE))
    assert (default, large, whole) == (0.1, 1e300, 3.0)
    assert "attribute 'Factor' must be a number, but is 'x'" in str(refused)
    assert not draws_whole


RECORDS = (OPERATIONS["exp"], ATTRIBUTE_TYPES["FLOAT"])
FIELDS = [(record, field.name) for record in RECORDS for field in dataclasses.fields(record)]


@pytest.mark.parametrize(("record", "field"), FIELDS, ids=str)
def test_a_record_without_a_field_is_an_error_that_names_it(
    record: Record | AttributeType, field: str
) -> None:
    """And no field has a value where a record leaves it out."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    del fields[field]
    make = cast("Callable[..., object]", type(record))
    with pytest.raises(TypeError, match=rf"missing 1 required .*argument: '{field}'$"):
        make(**fields)


def test_an_operation_has_one_record() -> None:
    with pytest.raises(ValueError, match="two records of the scalar operation 'exp'"):
        REGISTRY.add(OPERATIONS["exp"])
