"""The tensor IR: its nodes, its text and JSON forms, and its verifier.

`parse(str(function)) == function`, and `from_json(to_json(function)) == function`.
"""

from dmlc.ir.builder import BodyBuilder
from dmlc.ir.function import Function, print_function
from dmlc.ir.json import from_json, to_json
from dmlc.ir.nodes import (
    POSITIONAL_COMBINERS,
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
    Symbol,
    Table,
    Tensor,
    operands,
    packed_strides,
    value_type,
    with_operands,
)
from dmlc.ir.parse import parse
from dmlc.ir.verify import Fault, check_in_place, find_fault, reads_own_place, verify

__all__ = [
    "POSITIONAL_COMBINERS",
    "Apply",
    "Body",
    "BodyBuilder",
    "Cast",
    "Constant",
    "Extent",
    "Fault",
    "Function",
    "Index",
    "Instruction",
    "Load",
    "Parameter",
    "Reduction",
    "Result",
    "Select",
    "Stage",
    "Symbol",
    "Table",
    "Tensor",
    "check_in_place",
    "find_fault",
    "from_json",
    "operands",
    "packed_strides",
    "parse",
    "print_function",
    "reads_own_place",
    "to_json",
    "value_type",
    "verify",
    "with_operands",
]
