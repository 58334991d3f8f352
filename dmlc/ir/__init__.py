"""The tensor IR, whole: what it is made of, how it is built, read and written, and what is known
of it. `import dmlc.ir` loads NumPy and ml_dtypes, and nothing else of other people's.

`parse(str(function)) == function`, and `from_json(to_json(function)) == function`.

The names of `_PLACES` are of later stages of the compiler, which people who embed the IR want
beside it: each is imported when it is first used. dmlc's own modules import them from their places.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dmlc.ir.builder import BodyBuilder
from dmlc.ir.driver import LocalRule, apply_rules
from dmlc.ir.function import Function, print_function
from dmlc.ir.index import Affine, IndexFacts, find_affine
from dmlc.ir.json import from_json, function_schema, to_json
from dmlc.ir.nodes import (
    POSITIONAL_COMBINERS,
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
from dmlc.ir.ranges import Interval, Ranges
from dmlc.ir.specialize import specialize
from dmlc.ir.verify import Fault, check_in_place, find_fault, verify
from dmlc.scalars import (
    COMBINERS,
    CONVERSIONS,
    OPERATIONS,
    TENSOR_TYPES,
    DataType,
    Kind,
    Operands,
    Operation,
    Record,
    combiner_identity,
)

if TYPE_CHECKING:
    from dmlc.kernel.json import kernel_from_json, kernel_schema, kernel_to_json
    from dmlc.kernel.nodes import Kernel
    from dmlc.kernel.parse import parse_kernel
    from dmlc.kernel.print import print_kernel
    from dmlc.pipeline import find_fusion, make_kernels
    from dmlc.reference import evaluate
    from dmlc.transform.cost import Budget
    from dmlc.transform.fuse import Fusion, Group, fuse
    from dmlc.transform.json import fusion_from_json, fusion_schema, fusion_to_json
    from dmlc.transform.rewrite import rewrite
    from dmlc.transform.simplify import simplify

__all__ = [
    "COMBINERS",
    "CONVERSIONS",
    "OPERATIONS",
    "POSITIONAL_COMBINERS",
    "TENSOR_TYPES",
    "Affine",
    "Apply",
    "Body",
    "BodyBuilder",
    "Budget",
    "Cast",
    "Constant",
    "DataType",
    "Delay",
    "Extent",
    "Fault",
    "Function",
    "Fusion",
    "Group",
    "Index",
    "IndexFacts",
    "Instruction",
    "Interval",
    "Kernel",
    "Kind",
    "Load",
    "LocalRule",
    "Loop",
    "OneStep",
    "Operands",
    "Operation",
    "Parameter",
    "Ranges",
    "Record",
    "Reduction",
    "Result",
    "Row",
    "Select",
    "Stage",
    "Step",
    "Symbol",
    "Table",
    "Tensor",
    "apply_rules",
    "check_in_place",
    "combiner_identity",
    "evaluate",
    "find_affine",
    "find_fault",
    "find_fusion",
    "fixed_strides",
    "from_json",
    "function_schema",
    "fuse",
    "fusion_from_json",
    "fusion_schema",
    "fusion_to_json",
    "kernel_from_json",
    "kernel_schema",
    "kernel_to_json",
    "make_kernels",
    "operands",
    "packed_strides",
    "parse",
    "parse_kernel",
    "print_function",
    "print_kernel",
    "reads_own_place",
    "rewrite",
    "simplify",
    "specialize",
    "to_json",
    "value_type",
    "verify",
    "with_operands",
]

_PLACES = {
    "Budget": "dmlc.transform.cost",
    "Fusion": "dmlc.transform.fuse",
    "Group": "dmlc.transform.fuse",
    "Kernel": "dmlc.kernel.nodes",
    "evaluate": "dmlc.reference",
    "find_fusion": "dmlc.pipeline",
    "fuse": "dmlc.transform.fuse",
    "fusion_from_json": "dmlc.transform.json",
    "fusion_schema": "dmlc.transform.json",
    "fusion_to_json": "dmlc.transform.json",
    "kernel_from_json": "dmlc.kernel.json",
    "kernel_schema": "dmlc.kernel.json",
    "kernel_to_json": "dmlc.kernel.json",
    "make_kernels": "dmlc.pipeline",
    "parse_kernel": "dmlc.kernel.parse",
    "print_kernel": "dmlc.kernel.print",
    "rewrite": "dmlc.transform.rewrite",
    "simplify": "dmlc.transform.simplify",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'dmlc.ir' has no attribute '{name}'")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
