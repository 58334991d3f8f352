"""Operators of `com.microsoft`, which ONNX Runtime's optimizer and its quantizer put into models.

Each is a function of ONNX's own operators, written for the inputs that a node has. An operator with
weights in packed bits has a rule instead, so that its weights stay packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx.parser

from dmlc.building.functions import Point, Scalar
from dmlc.onnx.importing.nodes import Node, Rule, Value, dtype_of, extents_of, need_number
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError

DOMAIN = "com.microsoft"


Write = Callable[[Node], str]
"""The nodes of the function that an operator is, in ONNX's text form: of `i0`, `i1` and so on, its
inputs, they make `o0`, `o1` and so on."""


def make_function(node: Node) -> onnx.FunctionProto:
    """Function that defines an operator of this domain. Raises `UnsupportedError` for unknown
    operators."""
    write = _FUNCTIONS.get(node.op_type)
    if write is None:
        raise UnsupportedError("it is no operator of this version of ONNX")
    given = ", ".join(f"i{number}" for number in range(len(node.inputs)))
    made = ", ".join(f"o{number}" for number in range(len(node.outputs)))
    head = f'<opset_import: ["": {onnx.defs.onnx_opset_version()}], domain: "{DOMAIN}">'
    text = f"{head} {node.op_type} ({given}) => ({made}) {{ {write(node)} }}"
    return onnx.parser.parse_function(text)


def _rank(node: Node, number: int) -> int:
    """Rank of an input."""
    return len(extents_of(node.value(number)))


def _refuse_inputs(node: Node, *numbers: int) -> None:
    """Raises `UnsupportedError` where one of some inputs is given."""
    for number in numbers:
        if node.has(number):
            raise UnsupportedError(f"its input {number} is not supported")


def _optional_sum(node: Node, number: int, before: str, after: str) -> str:
    """Statement that adds an input to a value, if it is present."""
    operation = f"Add ({before}, i{number})" if node.has(number) else f"Identity ({before})"
    return f"{after} = {operation} "


# Activations and normalizations ------------------------------------------------------------------


def _fast_gelu(node: Node) -> str:
    return _optional_sum(node, 1, "i0", "x") + 'o0 = Gelu <approximate = "tanh"> (x)'


def _quick_gelu(node: Node) -> str:
    return f"o0 = Swish <alpha = {node.number('alpha', 1.702)}> (i0)"


def _skip_normalization(operator: str, biased: int) -> Write:
    """Sum of two tensors and a bias, normalized along the last axis; and the sum itself. `biased`
    is the number of the sum's bias among the inputs."""

    def write(node: Node) -> str:
        given = "s, i2, i3" if operator == "LayerNormalization" and node.has(3) else "s, i2"
        lines = "t = Add (i0, i1) " + _optional_sum(node, biased, "t", "s")
        epsilon = node.number("epsilon", 1e-12)
        lines += f"o0 = {operator} <axis = -1, epsilon = {epsilon}> ({given}) "
        # Outputs 1 and 2 are the mean and the inverse deviation, which only training asks for.
        return lines + ("o3 = Identity (s)" if len(node.outputs) > 3 else "")

    return write


def _simplified_normalization(node: Node) -> str:
    axis, epsilon = node.integer("axis", -1), node.number("epsilon", 1e-5)
    return f"o0 = RMSNormalization <axis = {axis}, epsilon = {epsilon}> (i0, i1)"


# Products ----------------------------------------------------------------------------------------

_ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "Clip": (),
    "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
"""The activations of fused operators, and what their parameters are called."""


def _activate(node: Node, parameters: Sequence[float]) -> str:
    """Activation of `s` at the end of a fused operator."""
    kind = node.text("activation")
    if kind not in ("", *_ACTIVATIONS):
        raise UnsupportedError(f"the activation {kind}")
    if kind == "Clip" and len(parameters) == 2:
        low, high = parameters
        return (
            f"low = Constant <value_float = {low!r}> () high = Constant <value_float = {high!r}> ()"
            " lower = CastLike (low, s) upper = CastLike (high, s) o0 = Clip (s, lower, upper)"
        )
    pairs = zip(_ACTIVATIONS.get(kind, ()), parameters, strict=False)
    listed = ", ".join(f"{name} = {value!r}" for name, value in pairs)
    return f"o0 = {kind or 'Identity'}{f' <{listed}>' if listed else ''} (s)"


def _fused_matrix_product(node: Node) -> str:
    if node.integer("transBatchA") or node.integer("transBatchB"):
        raise UnsupportedError("it transposes batches")
    lines = ""
    for number, name in enumerate(("transA", "transB")):
        order = list(range(_rank(node, number)))
        if node.integer(name) and len(order) > 1:
            order[-2:] = order[:-3:-1]
        lines += f"m{number} = Transpose <perm = {order}> (i{number}) "
    lines += f"p = MatMul (m0, m1) a = Constant <value_float = {node.number('alpha', 1.0)}> () "
    return lines + "f = CastLike (a, p) o0 = Mul (p, f)"


def _fused_gemm(node: Node) -> str:
    given = ", ".join(f"i{k}" for k in range(3) if node.has(k))
    names = ("activation_alpha", "activation_beta")
    parameters = [node.number(name) for name in names if name in node.attributes]
    return (
        f"s = Gemm <alpha = {node.number('alpha', 1.0)}, beta = {node.number('beta', 1.0)}, "
        f"transA = {node.integer('transA')}, transB = {node.integer('transB')}> ({given}) "
        + _activate(node, parameters)
    )


def _fused_convolution(node: Node) -> str:
    """Convolution plus a residual, with an activation."""
    listed = [
        f"{name} = {value}"
        for name in ("dilations", "kernel_shape", "pads", "strides", "group")
        if (value := node.attributes.get(name)) is not None
    ]
    listed.append(f'auto_pad = "{node.text("auto_pad", "NOTSET")}"')
    given = "i0, i1, i2" if node.has(2) else "i0, i1"
    lines = f"c = Conv <{', '.join(listed)}> ({given}) " + _optional_sum(node, 3, "c", "s")
    return lines + _activate(node, node.floats("activation_params"))


# Attention ---------------------------------------------------------------------------------------


def _attend(node: Node, mask: str) -> str:
    """Attention of `q`, `k` and `v`, which have all heads in their last axis."""
    scale, heads = node.number("scale"), node.integer("num_heads")
    listed = f"q_num_heads = {heads}, kv_num_heads = {heads}"
    listed += f", is_causal = {node.integer('unidirectional')}"
    if scale:
        listed += f", scale = {scale!r}"
    return f"o0 = Attention <{listed}> (q, k, v{f', {mask}' if mask else ''})"


def _mask(node: Node, padding: int, added: int) -> tuple[str, str]:
    """Statements that make a mask, and its name: from the keys' padding mask, and from a bias of
    the scores."""
    if not node.has(padding):
        return "", f"i{added}" if node.has(added) else ""
    if _rank(node, padding) != 2:
        raise UnsupportedError(f"a mask of {_rank(node, padding)} axes")
    lines = f"valid = Cast <to = 9> (i{padding}) axes = Constant <value_ints = [1, 2]> () "
    lines += "mask = Unsqueeze (valid, axes) "
    if not node.has(added):
        return lines, "mask"
    lines += f"low = Constant <value_float = -inf> () none = CastLike (low, i{added}) "
    return lines + f"both = Where (mask, i{added}, none) ", "both"


def _multi_head_attention(node: Node) -> str:
    _refuse_inputs(node, 6, 7, 8, 9)
    if not node.has(1) or not node.has(2) or any(_rank(node, number) != 3 for number in range(3)):
        raise UnsupportedError("packed queries, keys and values")
    lines = "".join(f"{name} = Identity (i{number}) " for number, name in enumerate("qkv"))
    if node.has(3):
        sizes = [need_number(extents_of(node.value(k))[-1], "a size") for k in range(3)]
        lines = f"parts = Constant <value_ints = {sizes}> () "
        lines += "bq, bk, bv = Split <axis = 0> (i3, parts) "
        lines += "".join(f"{name} = Add (i{k}, b{name}) " for k, name in enumerate("qkv"))
    made, mask = _mask(node, 4, 5)
    return lines + made + _attend(node, mask)


def _attention(node: Node) -> str:
    """Attention of one tensor, whose weights of queries, keys and values are concatenated."""
    _refuse_inputs(node, 4, 6)
    if node.integer("do_rotary"):
        raise UnsupportedError("rotary embeddings inside of it")
    whole = need_number(extents_of(node.value(1))[-1], "the columns of its weights")
    sizes = node.integers("qkv_hidden_sizes") or [whole // 3] * 3
    lines = "p = MatMul (i0, i1) " + _optional_sum(node, 2, "p", "s")
    lines += f"parts = Constant <value_ints = {sizes}> () "
    lines += "q, k, v = Split <axis = -1> (s, parts) "
    made, mask = _mask(node, 3, 5)
    return lines + made + _attend(node, mask)


# Quantization ------------------------------------------------------------------------------------


def _dynamic_product(node: Node) -> str:
    """Product of floats, quantized by their range, with quantized weights."""
    zero = ", i3" if node.has(3) else ""
    return (
        f"q, step, zero = DynamicQuantizeLinear (i0) p = MatMulInteger (q, i1, zero{zero}) "
        "f = Cast <to = 1> (p) scale = Mul (step, i2) m = Mul (f, scale) "
    ) + _optional_sum(node, 4, "m", "o0")


def _product_to_float(node: Node) -> str:
    zeros = [f"i{number}" if node.has(number) else "" for number in (4, 5)]
    given = ", ".join(["i0", "i1", *zeros]).rstrip(", ")
    return (
        f"p = MatMulInteger ({given}) f = Cast <to = 1> (p) "
        "scale = Mul (i2, i3) m = Mul (f, scale) "
    ) + _optional_sum(node, 6, "m", "o0")


def _dynamic_lstm(node: Node) -> str:
    """LSTM of quantized weights, whose rows are inputs. States and inputs are not rounded to 8
    bits, as they are in ONNX Runtime."""
    lines = ""
    for number, (scale, zero) in ((1, (8, 9)), (2, (10, 11))):
        # One for each direction, or for each column of that too.
        sizes = [0, 1, -1] if _rank(node, scale) == 2 else [-1, 1, 1]
        lines += (
            f"sizes{number} = Constant <value_ints = {sizes}> () "
            f"step{number} = Reshape (i{scale}, sizes{number}) "
            f"zero{number} = Reshape (i{zero}, sizes{number}) "
            f"whole{number} = Cast <to = 1> (i{number}) "
            f"from{number} = Cast <to = 1> (zero{number}) "
            f"moved{number} = Sub (whole{number}, from{number}) "
            f"real{number} = Mul (moved{number}, step{number}) "
            f"w{number} = Transpose <perm = [0, 2, 1]> (real{number}) "
        )
    given = ["i0", "w1", "w2", *(f"i{k}" if node.has(k) else "" for k in range(3, 8))]
    listed = [f"hidden_size = {node.integer('hidden_size')}"]
    listed += [f'direction = "{node.text("direction", "forward")}"']
    listed += [f"input_forget = {node.integer('input_forget')}"]
    if "clip" in node.attributes:
        listed.append(f"clip = {node.number('clip', 0.0)}")
    if "activations" in node.attributes:
        names = ", ".join(f'"{name}"' for name in node.texts("activations"))
        listed.append(f"activations = [{names}]")
    made = ", ".join(f"o{number}" for number in range(len(node.outputs)))
    return lines + f"{made} = LSTM <{', '.join(listed)}> ({', '.join(given).rstrip(', ')})"


def _requantized(operation: str, operands: int) -> Write:
    """Operation on quantized tensors, each with its scale and its zero point, by way of the numbers
    that they stand for. The result's scale and zero point come last."""

    def write(node: Node) -> str:
        lines = ""
        for number in range(operands):
            names = [f"i{3 * number + k}" for k in range(3) if node.has(3 * number + k)]
            lines += f"x{number} = DequantizeLinear ({', '.join(names)}) "
        last = 3 * operands
        given = ", ".join(f"x{number}" for number in range(operands))
        lines += f"y = {operation.replace('@alpha', str(node.number('alpha', 0.01)))} ({given}) "
        zero = f", i{last + 1}" if node.has(last + 1) else ""
        return lines + f"o0 = QuantizeLinear (y, i{last}{zero})"

    return write


def _global_pool(node: Node) -> str:
    if node.integer("channels_last"):
        raise UnsupportedError("channels behind space")
    return _requantized("GlobalAveragePool", 1)(node)


def _concatenation(node: Node) -> str:
    lines, names = "", list[str]()
    for number in range(2, len(node.inputs), 3):
        names.append(f"x{number}")
        lines += f"x{number} = DequantizeLinear (i{number}, i{number + 1}, i{number + 2}) "
    lines += f"y = Concat <axis = {node.integer('axis')}> ({', '.join(names)}) "
    return lines + "o0 = QuantizeLinear (y, i0, i1)"


_FUNCTIONS: Mapping[str, Write] = {
    "Attention": _attention,
    "BiasGelu": lambda node: "s = Add (i0, i1) o0 = Gelu (s)",
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_product,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_convolution,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matrix_product,
    "Gelu": lambda node: "o0 = Gelu (i0)",
    "MatMulIntegerToFloat": _product_to_float,
    "MultiHeadAttention": _multi_head_attention,
    "QLinearAdd": _requantized("Add", 2),
    "QLinearConcat": _concatenation,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearLeakyRelu": _requantized("LeakyRelu <alpha = @alpha>", 1),
    "QLinearMul": _requantized("Mul", 2),
    "QLinearSigmoid": _requantized("Sigmoid", 1),
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_normalization,
    "SkipLayerNormalization": _skip_normalization("LayerNormalization", 4),
    "SkipSimplifiedLayerNormalization": _skip_normalization("RMSNormalization", 3),
}


# Packed weights ----------------------------------------------------------------------------------


def _packed_product(node: Node) -> Value:
    """Product with weights of 4 or 8 bits. Blocks along the summed axis have a scale and a zero
    point for each column."""
    x, packed, scales = node.tensor(0), node.tensor(1), node.tensor(2)
    bits, size = node.integer("bits", 4), node.integer("block_size", 32)
    depth, columns = node.integer("K"), node.integer("N")
    if bits not in (4, 8) or node.has(4):
        raise UnsupportedError(f"weights of {bits} bits" if bits not in (4, 8) else "a group index")
    zeros = node.tensor(3) if node.has(3) else None
    bias = node.optional(5)
    blocks = -(-depth // size)
    each = 8 // bits
    compute = x.dtype.compute

    def unpack(byte: Scalar, place: Scalar) -> Scalar:
        """Number at an index within a byte, the lowest bits first."""
        if bits == 8:
            return byte
        return (place % each).equals(0).select(byte & 15, byte.apply("shift_right", 4))

    def read(at: Point, number: int, column: Scalar, block: Scalar, width: int) -> Scalar:
        """Element of an input by column and block, which are one axis or two, packed or not."""
        held = node.tensor(number)
        if held.rank == 2:
            return at.read(held, column, block)
        return at.read(held, column * width + block)

    def element(at: Point) -> Scalar:
        *lead, column = at.indices
        (step,) = at.reduced
        block, inside = step / size, step % size
        number = unpack(at.read(packed, column, block, inside / each), inside).cast(compute)
        zero = at.constant(1 << (bits - 1), compute)
        if zeros is not None and dtype_of(zeros) is DataType.UINT8:
            width = -(-blocks // each)
            zero = unpack(read(at, 3, column, block / each, width), block).cast(compute)
        elif zeros is not None:
            zero = read(at, 3, column, block, blocks).cast(compute)
        scale = read(at, 2, column, block, blocks).cast(compute)
        return at.read(x, *lead, step) * ((number - zero) * scale)

    if need_number(x.extents[-1], "the last axis of its input") != depth or scales.rank > 2:
        raise DmlcError(f"{x.name} has not the {depth} columns of its weights")
    extents = (*x.extents[:-1], columns)
    if bias is None:
        return node.builder.reduce(node.name, "sum", extents, [depth], element, x.dtype)
    total = node.builder.reduce(f"{node.name}_total", "sum", extents, [depth], element)
    return node.builder.compute(
        node.name, extents,
        lambda at: at.read(total, *at.indices) + at.read(bias, at.indices[-1]), x.dtype,
    )  # fmt: skip


RULES: Mapping[str, Rule] = {"MatMulNBits": _packed_product}


def list_functions() -> list[str]:
    """Operators of this domain that are functions of others."""
    return sorted(_FUNCTIONS)
