"""Operators written down in a test, and what binding them says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.language.check import check_text
from dmlc.source import Diagnostic, DmlcError

MODE = "enum MODE { LOW = 0, HIGH = 1 }\n"


def declare(
    compute: str,
    *rows: str,
    attributes: str = "",
    constraints: str = "",
    types: str = "",
    before: str = MODE,
) -> Operator:
    """An operator of these tensor rows: `X | Input | Ranks | Types`, with Dimensions last."""
    table = "\n".join(f"| {row}{' |' * (5 - row.count('|') - 1)} |" for row in rows)
    columns = "| Attribute | Type | Default | Values |"
    attribute_table = f"attributes {{\n{columns}\n{attributes}\n}}" if attributes else ""
    type_table = f"types {{\n{types}\n}}" if types else ""
    text = f"""{before}
operator OP {{
    {attribute_table}
    tensors {{
        | Tensor | Kind | Ranks | Types | Dimensions |
{table}
    }}
    {type_table}
    constraints {{ {constraints} }}
    compute {{
        {compute}
    }}
}}
"""
    return Operator(check_text(text, "op.dml").operators["OP"])


ANY = "FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT32, UINT8, INT8, BOOL"
X = f"X | Input | 1 to 8 | {ANY}"
Z = f"Z | Input | 1 to 8 | {ANY}"
Y = f"Y | Output | 1 to 8 | {ANY}"


def f32(*sizes: int, strides: tuple[int, ...] | None = None) -> TensorDesc:
    return TensorDesc("FLOAT32", sizes, strides)


def refusals(call: Callable[[], ir.Function]) -> list[Diagnostic]:
    """The mistakes that binding reports."""
    with pytest.raises(DmlcError) as caught:
        call()
    return list(caught.value.diagnostics)


def refusal(
    operator: Operator,
    tensors: Mapping[str, TensorDesc] | None = None,
    attributes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Diagnostic:
    """The one mistake of a binding."""
    (diagnostic,) = refusals(lambda: operator.bind(tensors, attributes, **more))
    return diagnostic


def says(diagnostic: Diagnostic) -> tuple[str, ...]:
    """The message and the notes of a diagnostic."""
    return (diagnostic.message, *(n.message for n in diagnostic.notes))
