"""The tensor IR: nodes, builder, text and JSON forms, verifier and analyses. `import dmlc.ir` loads
NumPy and ml_dtypes, and no other third-party package.

`parse(str(function)) == function`, and `from_json(to_json(function)) == function`. Passes over it,
fusion and the kernel IR are in `dmlc.compiler`.
"""

from dmlc.index.affine import Affine
from dmlc.index.intervals import Interval
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.driver import LocalRule, apply_rules
from dmlc.ir.function import Function, print_function
from dmlc.ir.index import IndexFacts, find_affine
from dmlc.ir.json import from_json, function_schema, to_json
from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Delay,
    Extent,
    Index,
    Instruction,
    Load,
    Loop,
    OneStep,
    Parameter,
    Reduction,
    Result,
    Row,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    Tensor,
    fixed_strides,
    operands,
    packed_strides,
    value_type,
    with_operands,
)
from dmlc.ir.parse import parse
from dmlc.ir.places import reads_own_place
from dmlc.ir.ranges import Ranges
from dmlc.ir.specialize import specialize
from dmlc.ir.verify import Fault, check_in_place, find_fault, verify
from dmlc.scalars import (
    COMBINERS,
    CONVERSIONS,
    OPERATIONS,
    TENSOR_TYPES,
    Combiner,
    DataType,
    Kind,
    Operands,
    Operation,
    Record,
    combiner_identity,
)

__all__ = [
    "COMBINERS", "CONVERSIONS", "OPERATIONS", "TENSOR_TYPES", "Affine", "Apply", "Body",
    "BodyBuilder", "Cast", "Combiner", "Constant", "DataType", "Delay", "Extent", "Fault",
    "Function", "Index", "IndexFacts", "Instruction", "Interval", "Kind", "Load", "LocalRule",
    "Loop", "OneStep", "Operands", "Operation", "Parameter", "Ranges", "Record", "Reduction",
    "Result", "Row", "Select", "Stage", "Step", "Symbol", "Table", "Tensor", "apply_rules",
    "check_in_place", "combiner_identity", "find_affine", "find_fault", "fixed_strides",
    "from_json", "function_schema", "operands", "packed_strides", "parse", "print_function",
    "reads_own_place", "specialize", "to_json", "value_type", "verify", "with_operands",
]  # fmt: skip
