"""Table of the supported operations of `cgc_op`, each with its operator of ONNX.

Element-wise operations are in the records of `scalars`; their operands broadcast. `FACTS` states
what is known of the others, and of the text, with the source."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from dmlc.scalars import OPERATIONS

SPECIFICATION = "DirectX specification 'MLIR Programs', version 0.11, 4 May 2026"
HEADER = "Microsoft's header of the CGC IR helper interface, 2026"
OPENVINO = "OpenVINO's front end of CGC, 2026"
AMD = "AMD's converter from DxCGC to HIP, 2026"
DXGML = "AMD's texts and parser of the predecessor dialect dxgml_op, 2026"
WINDOWS_ML = "Windows ML 2.9 experimental, CGC backend, November 2026"

FACTS: tuple[tuple[str, str], ...] = (
    ("`cgc_op` holds the operations on tensors, `cgc` types and structure", SPECIFICATION),
    ("an operation: `name(operands) {attributes} : (types) -> types`", SPECIFICATION),
    ("a module `cgc.module`, a function `func.func`, `cgc.return`", AMD),
    ("a tensor: `!cgc.tensor<1x32x!cgc.float16>`", f"{SPECIFICATION}; {AMD}"),
    ("element types: float16 to float64, bfloat16, int8 to uint64, bool8", HEADER),
    ("`#cgc.integer`, `#cgc.float`, `#cgc.dense_integer_elements`", f"{HEADER}; {DXGML}"),
    ("`constant` of a `constant_resource`, and its bytes as `dialect_resources`", DXGML),
    ("`null_ptr`, of type `!cgc.null`, for an operand that is left out", DXGML),
    ("add, multiply, sigmoid", OPENVINO),
    ("subtract, divide, negate", DXGML),
    ("min, max, equal, less, and, or, not, abs, sin, cos, exp, log, sign, ceil", AMD),
    ("matmul", AMD),
    ("gemm: A, B and C, neither transposed nor scaled", OPENVINO),
    ("convolution: `strides`, `start_padding`, `end_padding`", OPENVINO),
    ("convolution: `dilations`, `group_count`", DXGML),
    ("reshape: the sizes are an operand", f"{OPENVINO}; {DXGML}"),
    ("transpose: `permutation`", OPENVINO),
    ("cast: to the type of the result", OPENVINO),
    ("slice: `starts`, `ends`, `axes`, `steps`", DXGML),
    ("quantize_linear, dequantize_linear: `axis`, `block_size`", OPENVINO),
    ("lp_normalization: `axis`, `p`, `epsilon`, which is 1e-12 if left out", OPENVINO),
    ("rotary_embedding: 5 operands, `interleaved`, `num_heads`, `rotary_embedding_dim`",
     OPENVINO),
    ("group_query_attention: 14 operands, 4 results, `num_heads`, `kv_num_heads`, `scale`",
     f"{OPENVINO}; {DXGML}"),
    ("the file is `.mlir`; a GPU runs it, with no fallback to the CPU", WINDOWS_ML),
)  # fmt: skip
"""What is known of CGC, and the source of it with its version."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Attribute of CGC, and the corresponding one of ONNX."""

    name: str
    """In CGC."""
    onnx: str
    default: int | None
    """What ONNX takes if it is left out; None where it has to be given."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """Operation of `cgc_op`, and the operator of ONNX."""

    name: str
    onnx: str
    operands: int
    """How many there are at most."""
    optional: int = 0
    """How many of the last ones may be left out, as `null`."""
    settings: tuple[Setting, ...] = ()
    elementwise: bool = False
    """Whether it computes element by element, of operands that broadcast."""


_QUANTIZED = (Setting("axis", "axis", 1), Setting("block_size", "block_size", 0))

_OTHERS = (
    Operator("matmul", "MatMul", 2),
    Operator("gemm", "Gemm", 3, optional=1),
    Operator("convolution", "Conv", 3, optional=1),
    Operator("reshape", "Reshape", 2, optional=1),
    Operator("transpose", "Transpose", 1, settings=(Setting("permutation", "perm", None),)),
    Operator("cast", "Cast", 1),
    Operator("slice", "Slice", 1),
    Operator("quantize_linear", "QuantizeLinear", 3, optional=1, settings=_QUANTIZED),
    Operator("dequantize_linear", "DequantizeLinear", 3, optional=1, settings=_QUANTIZED),
    Operator("lp_normalization", "LpNormalization", 1, settings=(
        Setting("axis", "axis", -1), Setting("p", "p", 2),
    )),
    Operator("rotary_embedding", "RotaryEmbedding", 5, optional=2, settings=(
        Setting("interleaved", "interleaved", 0),
        Setting("num_heads", "num_heads", 0),
        Setting("rotary_embedding_dim", "rotary_embedding_dim", 0),
    )),
    Operator("group_query_attention", "Attention", 14, optional=13, settings=(
        Setting("num_heads", "q_num_heads", None),
        Setting("kv_num_heads", "kv_num_heads", None),
    )),
)  # fmt: skip


@functools.cache
def operators_by_name() -> Mapping[str, Operator]:
    """Operators by their names in CGC, including those that are only read."""
    found: dict[str, Operator] = {}
    for record in OPERATIONS.values():
        for name in record.cgc:
            onnx = record.onnx or record.name.title()
            found[name] = Operator(record.cgc[0], onnx, record.arity, elementwise=True)
    return {**found, **{operator.name: operator for operator in _OTHERS}}


@functools.cache
def operators_by_onnx() -> Mapping[str, Operator]:
    """Operators by their names in ONNX."""
    return {operator.onnx: operator for operator in operators_by_name().values()}


def list_operators() -> list[str]:
    """Supported operations, by their names in `cgc_op`."""
    return list(dict.fromkeys(operator.name for operator in operators_by_name().values()))
