"""The JSON form of the kernel IR, with the same content as the text form.

Statements and expressions are objects that name their kind in `op`; types are strings, as in the
text.
"""

from __future__ import annotations

from typing import Any, get_args

from dmlc.ir.records import Records, Shape, Word, find_fields, read_number
from dmlc.ir.schema import describe
from dmlc.kernel import nodes as k
from dmlc.kernel.parse import parse_type
from dmlc.kernel.print import show_type
from dmlc.parameters import expect, expect_text
from dmlc.scalars import DataType


def kernel_to_json(kernel: k.Kernel) -> str:
    """Kernel as JSON text, indented by two."""
    return _RECORDS.write(expect("kernel", kernel, k.Kernel, "a kernel.nodes.Kernel"))


def kernel_from_json(text: str) -> k.Kernel:
    """Kernel from the text that `kernel_to_json` wrote. Raises `DmlcError` for any other text. It
    does not verify the kernel."""
    return _RECORDS.read(expect_text("text", text), k.Kernel)


def kernel_schema() -> dict[str, Any]:
    """JSON Schema of the documents that `kernel_to_json` writes."""
    return describe(_RECORDS, k.Kernel, "A kernel of dmlc's kernel IR")


def _make_literal(fields: dict[str, Any], where: str) -> k.Literal:
    type = fields["type"]
    return k.Literal(type, read_number(type.dtype, fields["value"], where, "value"))


_RECORDS = Records(
    shapes={k.Literal: Shape(find_fields(k.Literal), _make_literal)},
    words={
        k.Type: Word(
            show_type,
            parse_type,
            "a type such as 'f32' or 'f32x16'",
            {"type": "string", "pattern": rf"^({'|'.join(t.short for t in DataType)})(x[0-9]+)?$"},
        )
    },
    nouns={"statement": get_args(k.Statement), "expression": get_args(k.Expression)},
    tuples={"scalars": "pairs of a scalar and what it is"},
)
