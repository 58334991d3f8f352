"""The compiler as a library, for programs that embed the tensor IR: its passes and its fusion, the
kernel IR, and the reference. `dmlc.ir` is the tensor IR itself.

dmlc's own modules import these names from where they are defined.
"""

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
    "Budget",
    "Fusion",
    "Group",
    "Kernel",
    "evaluate",
    "find_fusion",
    "fuse",
    "fusion_from_json",
    "fusion_schema",
    "fusion_to_json",
    "kernel_from_json",
    "kernel_schema",
    "kernel_to_json",
    "make_kernels",
    "parse_kernel",
    "print_kernel",
    "rewrite",
    "simplify",
]
