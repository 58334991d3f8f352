"""The tensor IR: its nodes, its text and JSON forms, and its verifier.

`parse(str(function)) == function`, and `from_json(to_json(function)) == function`.
"""

from dmlc.ir.function import Function
from dmlc.ir.json import from_json, to_json
from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    operands,
    packed_strides,
    value_type,
    with_operands,
)
from dmlc.ir.parse import parse
from dmlc.ir.verify import verify

__all__ = [
    "Apply",
    "Body",
    "Cast",
    "Constant",
    "Extent",
    "Function",
    "Index",
    "Instruction",
    "Load",
    "Parameter",
    "Reduction",
    "Result",
    "Select",
    "Stage",
    "from_json",
    "operands",
    "packed_strides",
    "parse",
    "to_json",
    "value_type",
    "verify",
    "with_operands",
]
