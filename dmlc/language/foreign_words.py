"""Words of other languages and their equivalents here: functions, facts, data types and constants
of Python, NumPy, PyTorch, C and HLSL. Messages about an unknown name use them before the nearest
known name."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dmlc.scalars import COMBINERS

LIBRARIES = ("np", "numpy", "torch", "F", "nn", "tf", "jnp", "math", "std", "metal", "scipy", "tl")
"""Prefixes of functions elsewhere."""

_CHOOSE = "a choice is 'condition ? a : b'"
_AXES = "a reduction along axes is sum(x, axes: [0, 1]), and over an index sum[k : n] (x[k])"
_INDEX = "move elements by index: Y[i, j] = X[j, i]"
_MATRIX = "a product of matrices is Y[i, j] = sum[k : K] (A[i, k] * B[k, j])"

CHOICES = ("where", "select", "iif", "ifelse", "cond")
"""Names of choices elsewhere: functions of a condition and two values."""

FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(CHOICES, _CHOOSE),
    "lerp": "write a + t * (b - a)",
    "mix": "write a + t * (b - a)",
    "relu": "relu(x) is max(x, 0)",
    "relu6": "relu6(x) is clamp(x, 0, 6)",
    "leaky_relu": "leaky_relu(x) is x > 0 ? x : slope * x",
    "silu": "silu(x) is x * sigmoid(x)",
    "swish": "swish(x) is x * sigmoid(x)",
    "gelu": "gelu(x) is x * 0.5 * (1 + erf(x * 0.70710678))",
    "softplus": "softplus(x) is log1p(exp(x))",
    "softmax": "write e = exp(x - max(x, axes: [1])), then e / sum(e, axes: [1])",
    "step": "write x >= edge ? 1 : 0",
    "heaviside": "write x > 0 ? 1 : 0",
    "sigmoid_": "write sigmoid(x)",
    "logistic": "logistic(x) is sigmoid(x)",
    "expit": "expit(x) is sigmoid(x)",
    "ln": "the natural logarithm is log(x)",
    "log10": "write log(x) / log(10)",
    "square": "write x * x",
    "sqr": "write x * x",
    "power": "write pow(x, y)",
    "reciprocal": "write 1 / x",
    "rcp": "write 1 / x",
    "mad": "write a * b + c",
    "fma": "write a * b + c",
    "saturate": "write clamp(x, 0, 1)",
    "clip": "write clamp(x, low, high)",
    "fabs": "write abs(x)",
    "absolute": "write abs(x)",
    "fmin": "write min(x, y)",
    "minimum": "write min(x, y)",
    "amin": _AXES.replace("sum", "min"),
    "fmax": "write max(x, y)",
    "maximum": "write max(x, y)",
    "amax": _AXES.replace("sum", "max"),
    "rint": "write round(x)",
    "fmod": "the remainder is x % y",
    "mod": "the remainder is x % y",
    "remainder": "the remainder is x % y",
    "frac": "write x - floor(x)",
    "not": "write '!' before a condition",
    "and": "write '&&' between conditions",
    "or": "write '||' between conditions",
    "if": _CHOOSE,
    "len": "a tensor has X.Sizes[0] and X.ElementCount, and length(a) counts an array",
    "shape": "the sizes of a tensor are X.Sizes",
    "size": "the sizes of a tensor are X.Sizes, and X.ElementCount counts all elements",
    "rank": "the number of dimensions is X.DimensionCount",
    "ndim": "the number of dimensions is X.DimensionCount",
    "prod": _AXES.replace("sum", "product"),
    "avg": _AXES.replace("sum", "mean"),
    "average": _AXES.replace("sum", "mean"),
    "reduce_sum": _AXES,
    "cumsum": "a running total is y[i] = sum[k : n where k <= i] (x[k])",
    "var": "write mean(d * d, axes: A), where d = x - mean(x, axes: A)",
    "std": "write sqrt(mean(d * d, axes: A)), where d = x - mean(x, axes: A)",
    "norm": "write sqrt(sum(x * x, axes: A))",
    **dict.fromkeys(("matmul", "dot", "mm", "bmm", "mul", "einsum", "gemm"), _MATRIX),
    **dict.fromkeys(("transpose", "permute", "reshape", "flip", "roll"), _INDEX),
    "concat": "write join(parts, axis: A), of an array of tensors",
    "cat": "write join(parts, axis: A), of an array of tensors",
    "concatenate": "write join(parts, axis: A), of an array of tensors",
    "expand_dims": "write unsqueeze(x, axes: [0])",
    "broadcast_to": "tensors repeat along axes of size 1 by themselves",
    "zeros": "a number stands for a tensor of it: write 0",
    "ones": "a number stands for a tensor of it: write 1",
    "zeros_like": "a number stands for a tensor of it: write 0",
    "ones_like": "a number stands for a tensor of it: write 1",
    "logical_and": "write '&&' between conditions",
    "logical_or": "write '||' between conditions",
    "logical_not": "write '!' before a condition",
    "isfinite": "write !isnan(x) && !isinf(x)",
    "astype": "write cast(x, FLOAT32)",
    "convert": "write cast(x, FLOAT32)",
    "print": "there is nothing to print with: make the value an output",
}
"""Equivalents of functions."""

FACTS: Mapping[str, str] = {
    "shape": "Sizes",
    "size": "Sizes",
    "sizes": "Sizes",
    "dims": "Sizes",
    "length": "ElementCount",
    "numel": "ElementCount",
    "count": "ElementCount",
    "ndim": "DimensionCount",
    "rank": "DimensionCount",
    "dim": "DimensionCount",
    "dtype": "DataType",
    "type": "DataType",
    "stride": "Strides",
}
"""Facts about a tensor, by their names elsewhere."""

TYPES: Mapping[str, str] = {
    "float": "FLOAT32",
    "single": "FLOAT32",
    "fp32": "FLOAT32",
    "half": "FLOAT16",
    "fp16": "FLOAT16",
    "double": "FLOAT64",
    "fp64": "FLOAT64",
    "int": "INT32",
    "long": "INT64",
    "short": "INT16",
    "char": "INT8",
    "byte": "UINT8",
    "uchar": "UINT8",
    "ushort": "UINT16",
    "uint": "UINT32",
    "unsigned": "UINT32",
    "ulong": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "bf": "BFLOAT16",
    "bool_": "BOOL",
}
"""Data types, by their names elsewhere in lower case."""

CONSTANTS: Mapping[str, str] = {
    **dict.fromkeys(("True", "TRUE"), "true"),
    **dict.fromkeys(("False", "FALSE"), "false"),
    **dict.fromkeys(("NaN", "NAN"), "nan"),
    **dict.fromkeys(("Inf", "INF", "INFINITY", "infinity"), "inf"),
}
"""Constants, by their names elsewhere."""

NAMES: Mapping[str, str] = {
    "None": "whether an optional tensor is given is present(T)",
    "null": "whether an optional tensor is given is present(T)",
    "NULL": "whether an optional tensor is given is present(T)",
    "pi": "write the number: 3.14159265358979",
    "PI": "write the number: 3.14159265358979",
    "e": "write the number: 2.71828182845905",
    "FLT_MAX": "write the number: 3.40282347e38",
    "threadIdx": "an index is named where it is defined: Y[i, j] = X[i, j] + 1",
    "self": "name the tensor: its elements are X[i, j], its sizes X.Sizes",
}
"""Equivalents of names."""

LABELS: Mapping[str, str] = {
    **dict.fromkeys(("axis", "dim", "dims", "axis_"), "write axes: [1]"),
    **dict.fromkeys(
        ("keepdims", "keepdim", "keep_dims"),
        "what is reduced stays as an axis of size 1; squeeze(x, axes: [1]) drops it",
    ),
    "dtype": "write cast(x, FLOAT32) around what is reduced",
    "where": "conditions stand in brackets: sum[k : n where x[k] > 0] (x[k])",
}
"""Labels of reductions' arguments, by their names elsewhere."""


def find_type(name: str) -> str | None:
    """Data type of a name elsewhere, or None."""
    return TYPES.get(name.rpartition(".")[2].lower())


def cure_operator(name: str, functions: Collection[str], families: Collection[str]) -> str | None:
    """Equivalent of a dotted call that names no operator, `np.exp(x)` or `x.sum()`; None for a name
    in a family of operators, and for an unknown one."""
    head, _, tail = name.partition(".")
    last = name.rpartition(".")[2]
    known = last in functions or last in FUNCTIONS
    if not tail or head in families or not (known or head in LIBRARIES):
        return None
    return cure_method(head, last) if known else None


def find_unprefixed(name: str, functions: Collection[str]) -> str | None:
    """Function that a prefixed name denotes, `exp` for `np.exp`; None if it is not among
    `functions`."""
    head, dot, _ = name.partition(".")
    last = name.rpartition(".")[2]
    return last if dot and head in LIBRARIES and last in functions else None


def cure_method(base: str, method: str) -> str:
    """Equivalent of `base.method(...)`."""
    if method.isupper() or base in ("directml", "onednn", "training"):
        return "a graph calls operators; in an operator write the formula"
    if method in (*COMBINERS, "mean") and base not in LIBRARIES:
        return f"functions stand before what they take: {method}({base}, axes: [0])"
    if method in FUNCTIONS:
        return FUNCTIONS[method]
    if base.partition(".")[0] in LIBRARIES:
        return f"functions have no prefix: write {method}(...)"
    return f"functions stand before what they take: {method}({base})"
