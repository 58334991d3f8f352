"""What follows of a row that is added to a table, and what each part of the compiler says of a row
that it does not know yet.

A child process adds a row to a table, a scalar operation to that of `scalars` say, and nothing
else. So every part must either derive what it needs of the row, or name what is missing: no import
fails, no text is written that an outside compiler refuses, and no derivative is taken for 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

_ROW = """
import json
import numpy as np
from dmlc import scalars
row = scalars.Operation(
    "cube", 1, scalars.Operands.FLOAT, lambda x: x * x * x, transcendental=True
)
scalars.OPERATIONS = {**scalars.OPERATIONS, "cube": row}
"""

_DEFINITION = """
from dmlc.codegen import float32, trace
@trace.define
def cube(x):
    return x * x * x

float32.FUNCTIONS = {**float32.FUNCTIONS, "cube": cube}
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
    "derivative": note(lambda: str(differentiate(single, ["A"], {"Y": "dY"}, {"A": "dA"}, {}))),
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
print(json.dumps([right, program.kernels[0].source]))
"""

_TYPE = """
import json
import numpy as np
from dmlc.language import definitions
row = definitions.AttributeType(("f64",), "float", "a number")
definitions.ATTRIBUTE_TYPES = {**definitions.ATTRIBUTE_TYPES, "DOUBLE": row}
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
    return cast("dict[str, object]", _run(_ROW, _NOTE))


def test_what_follows_from_the_row_alone(answers: dict[str, object]) -> None:
    assert answers["reference"] == [1, 8, 27]
    assert answers["text"] is answers["json"] is answers["language"] is True


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("hlsl", "codegen/float32.py has no definition of 'cube'"),
        ("wgsl", "codegen/float32.py has no definition of 'cube'"),
        ("opencl", "codegen/float32.py has no definition of 'cube'"),
        ("opencl f64", "OpenCL C has no 'cube', nor has templates/opencl.functions.cl"),
        ("hlsl f64", "HLSL only has + - * / and comparisons of double precision"),
        ("wgsl f64", "WGSL has no 64-bit floats"),
        (
            "derivative",
            "DmlcError: <ir>:2:3: error: 'cube' has no derivative, and a gradient goes through it",
        ),
        ("mlir", "MLIR's dialects arith and math have no 'cube'"),
        ("onnx", "ONNX has no operator that computes 'cube'"),
    ],
)
def test_what_is_missing_is_named(answers: dict[str, object], part: str, says: str) -> None:
    assert says in str(answers[part])


def test_a_definition_is_all_that_a_kernel_of_vectors_needs() -> None:
    right, source = cast("tuple[bool, str]", _run(_ROW, _DEFINITION, _RUN))
    assert right
    assert "portable_cube_x16(" in source


def test_a_type_of_attributes_is_a_row() -> None:
    default, large, whole, refused, draws_whole = cast("list[object]", _run(_TYPE))
    assert (default, large, whole) == (0.1, 1e300, 3.0)
    assert "attribute 'Factor' must be a number, but is 'x'" in str(refused)
    assert not draws_whole
