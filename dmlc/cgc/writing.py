"""Export of ONNX models as the text of CGC graphs, node by node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from dmlc.cgc.model import Model, describe_nodes, open_model, read_attributes
from dmlc.cgc.narrowing import fuse_biases, narrow
from dmlc.cgc.operators import Operator, operators_by_onnx
from dmlc.cgc.text import (
    Attribute,
    Numbers,
    Program,
    Resource,
    Statement,
    TensorType,
    spell_names,
)
from dmlc.parameters import expect
from dmlc.scalars import Array, DataType
from dmlc.source import Diagnostic, Note, UnsupportedError, counted

_RESHAPES = ("Flatten", "Identity", "Squeeze", "Unsqueeze")
"""What moves no element: `reshape` to the sizes of the result."""


def write_model(model: onnx.ModelProto) -> str:
    """CGC text of a model, with its functions inlined. Raises `UnsupportedError` for open sizes,
    and with the names of all nodes without an operation in `cgc_op`."""
    expect("model", model, onnx.ModelProto, "an onnx.ModelProto")
    return str(write_program(model))


def write_program(model: onnx.ModelProto) -> Program:
    """CGC program of a model."""
    opened = open_model(model)
    fuse_biases(opened)
    narrow(opened)
    return _ProgramWriter(opened).write()


@dataclasses.dataclass(slots=True)
class _Made:
    """Statement with the names of the model."""

    operator: str
    results: list[str]
    operands: list[str | None]
    attributes: dict[str, Attribute]


class _ProgramWriter:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.made: list[_Made] = []
        self.refused: dict[str, list[onnx.NodeProto]] = {}

    def write(self) -> Program:
        for node in self.model.nodes:
            try:
                self._write(node)
            except UnsupportedError as error:
                reason = error.diagnostics[0].message
                self.refused.setdefault(f"{node.op_type} {reason}", []).append(node)
        self._check()
        return self._spell()

    def _check(self) -> None:
        """Raises one error for all unsupported nodes."""
        if not self.refused:
            return
        count = counted(sum(map(len, self.refused.values())), "node")
        notes = [
            Note(f"{describe_nodes(nodes)}: {key.partition(' ')[2]}")
            for key, nodes in self.refused.items()
        ]
        message = f"{count} of {self.model.name} cannot be written for CGC"
        raise UnsupportedError(Diagnostic(message, notes=tuple(notes)))

    # Nodes ------------------------------------------------------------------------------------

    def _write(self, node: onnx.NodeProto) -> None:
        operators = operators_by_onnx()
        if node.op_type in _RESHAPES and node.domain in ("", "ai.onnx"):
            self._reshape(node.output[0], node.input[0])
            return
        operator = operators.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if operator is None:
            raise UnsupportedError("public texts of CGC name no operation that computes it")
        attributes = read_attributes(node)
        special: dict[str, Callable[[onnx.NodeProto, dict[str, Any]], None]] = {
            "Attention": self._attend,
            "Conv": self._convolve,
            "Gemm": self._multiply,
            "LpNormalization": self._normalize,
            "Reshape": self._reshape_to,
            "Slice": self._slice,
        }
        if node.op_type in special:
            special[node.op_type](node, attributes)
        else:
            self._plain(operator, node, attributes)
        left = [name for name, value in attributes.items() if value not in (0, 0.0, -1, b"")]
        if left:
            raise UnsupportedError(f"CGC's has no attribute for '{left[0]}'")

    # Each takes the attributes that it writes out of those of the node.

    def _plain(self, operator: Operator, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds the statement of a node whose inputs are the operands."""
        given: list[str | None] = [name or None for name in node.input]
        if len(given) > operator.operands:
            raise UnsupportedError(f"it has {len(given)} inputs, and CGC's has {operator.operands}")
        given += [None] * (operator.operands - len(given))
        settings: dict[str, Attribute] = {}
        for setting in operator.settings:
            value = attributes.pop(setting.onnx, setting.default)
            if node.op_type == "Transpose" and value is None:
                value = list(range(len(self.model.types[node.input[0]].sizes)))[::-1]
            settings[setting.name] = _as_attribute(value)
        for name in ("to", "saturate", "output_dtype", "precision", "round_mode"):
            # The type of the result says it, and the others are of types that are refused.
            attributes.pop(name, None)
        self._add(operator.name, [node.output[0]], given, settings)

    def _convolve(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        axes = len(self.model.types[node.input[0]].sizes) - 2
        pads = _integers(attributes.pop("pads", [0] * (2 * axes)))
        automatic = attributes.pop("auto_pad", b"NOTSET")
        if automatic not in (b"NOTSET", b"VALID"):
            raise UnsupportedError("its padding is automatic: give it as numbers")
        attributes.pop("kernel_shape", None)
        settings: dict[str, Attribute] = {
            "strides": _integers(attributes.pop("strides", [1] * axes)),
            "dilations": _integers(attributes.pop("dilations", [1] * axes)),
            "start_padding": pads[:axes],
            "end_padding": pads[axes:],
            "group_count": _as_attribute(attributes.pop("group", 1)),
        }
        given = [name or None for name in node.input]
        self._add("convolution", [node.output[0]], [*given, *[None] * (3 - len(given))], settings)

    def _multiply(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds a matrix product; CGC's is neither transposed nor scaled."""
        given: list[str | None] = [name or None for name in node.input]
        result = node.output[0]
        for at, name in enumerate(("transA", "transB")):
            if attributes.pop(name, 0):
                source = node.input[at]
                kind = self.model.types[source]
                moved = self._name(f"{source}_transposed", kind.dtype, kind.sizes[::-1])
                self._add("transpose", [moved], [source], {"permutation": (1, 0)})
                given[at] = moved
        scales = [attributes.pop(name, 1.0) for name in ("alpha", "beta")]
        added = given[2] if len(given) > 2 else None
        if scales[0] == 1 and (added is None or scales[1] == 1):
            self._add("gemm", [result], [given[0], given[1], added], {})
            return
        kind = self.model.types[result]
        product = self._name(f"{result}_product", kind.dtype, kind.sizes)
        self._add("gemm", [product], [given[0], given[1], None], {})
        if added is None:
            self._scale(result, product, scales[0])
            return
        terms = [self._name(f"{result}_alpha", kind.dtype, kind.sizes), ""]
        self._scale(terms[0], product, scales[0])
        other = self.model.types[added]
        terms[1] = self._name(f"{result}_beta", other.dtype, other.sizes)
        self._scale(terms[1], added, scales[1])
        self._add("add", [result], [*terms], {})

    def _scale(self, result: str, value: str, factor: float) -> None:
        kind = self.model.types[value]
        number = np.array([factor], kind.dtype.dtype)
        self._add(
            "multiply", [result], [value, self.model.add_constant(f"{result}_factor", number)], {}
        )

    def _normalize(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds a normalization. ONNX's adds nothing to the sum of squares, CGC's adds `epsilon`."""
        settings: dict[str, Attribute] = {
            "axis": _as_attribute(attributes.pop("axis", -1)),
            "p": _as_attribute(attributes.pop("p", 2)),
            "epsilon": 0.0,
        }
        self._add("lp_normalization", [node.output[0]], [node.input[0]], settings)

    def _reshape_to(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds a reshape to the model's sizes; -1 and 0 among them are replaced by the result's."""
        attributes.pop("allowzero", 0)
        result, sizes = node.output[0], self.model.constants.get(node.input[1])
        if sizes is not None and tuple(sizes.tolist()) == self.model.types[result].sizes:
            self._add("reshape", [result], [node.input[0], node.input[1]], {})
        else:
            self._reshape(result, node.input[0])

    def _reshape(self, result: str, value: str) -> None:
        sizes = np.array(self.model.types[result].sizes, np.int64)
        shape = self.model.add_constant(f"{result}_sizes", sizes)
        self._add("reshape", [result], [value, shape], {})

    def _slice(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds a slice. Its bounds are attributes, and so must be known."""
        known = [self.model.constants.get(name) for name in node.input[1:] if name]
        if any(array is None for array in known):
            raise UnsupportedError("its bounds are not known: CGC's has them as attributes")
        bounds = [tuple(map(int, array.tolist())) for array in known if array is not None]
        rank = len(bounds[0])
        starts, ends = bounds[:2]
        names = list(node.input[3:])
        axes = bounds[2] if names and names[0] else tuple(range(rank))
        steps = bounds[-1] if len(names) > 1 and names[1] else (1,) * rank
        settings: dict[str, Attribute] = {
            "starts": starts, "ends": ends, "axes": axes, "steps": steps,
        }  # fmt: skip
        self._add("slice", [node.output[0]], [node.input[0]], settings)

    def _attend(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Adds causal attention of a whole sequence: without a past, and with every length that of
        the sequence."""
        query, key = (self.model.types[name] for name in node.input[:2])
        plain = attributes.pop("is_causal", 0) == 1 and len(query.sizes) == 3
        plain &= not any(node.input[3:]) and not any(node.output[1:])
        plain &= query.sizes[1] == key.sizes[1] and query.sizes[0] == key.sizes[0]
        if not plain:
            raise UnsupportedError(
                "only causal attention of sequences (3 dimensions), of equal length, without mask "
                "and cache, is written as group_query_attention"
            )
        heads = [_as_attribute(attributes.pop(n, 0)) for n in ("q_num_heads", "kv_num_heads")]
        settings: dict[str, Attribute] = dict(
            zip(("num_heads", "kv_num_heads"), heads, strict=True)
        )
        scale = attributes.pop("scale", None)
        if isinstance(scale, float):
            settings["scale"] = scale
        result = node.output[0]
        batch, length, width = key.sizes
        lengths = np.full(batch, length - 1, np.int32)
        given: list[str | None] = [
            *node.input[:3],
            None,
            None,
            self.model.add_constant(f"{result}_seqlens_k", lengths),
            self.model.add_constant(f"{result}_total", np.array([length], np.int32)),
            *[None] * 7,
        ]
        count = heads[1] if isinstance(heads[1], int) else 0
        present = (batch, length, count, width // count)
        results = [result, *(self._name(f"{result}_{part}", key.dtype, present)
                             for part in ("present_key", "present_value"))]  # fmt: skip
        self._add("group_query_attention", [*results, f"{result}_qk"], given, settings)

    # Names ------------------------------------------------------------------------------------

    def _name(self, wanted: str, dtype: DataType, sizes: Sequence[int]) -> str:
        name = wanted
        while name in self.model.types:
            name = f"{name}_"
        self.model.types[name] = TensorType(dtype, tuple(sizes))
        return name

    def _add(
        self,
        operator: str,
        results: list[str],
        operands: list[str | None],
        attributes: dict[str, Attribute],
    ) -> None:
        self.made.append(_Made(operator, results, operands, attributes))

    def _spell(self) -> Program:
        """Program of the statements with final names and types: constants come first, in the order
        of use."""
        model = self.model
        used = dict.fromkeys(n for made in self.made for n in made.operands if n is not None)
        used |= dict.fromkeys(model.outputs)
        constants = [name for name in used if name in model.constants]
        every = [*model.inputs, *constants, *(r for made in self.made for r in made.results)]
        names = spell_names(every)
        types = {name: self._type(name) for name in every if name in model.types}
        statements: list[Statement] = []
        contents: dict[str, bytes] = {}
        for name in constants:
            value = _spell_constant(names[name], types[name], model.constants[name])
            if isinstance(value, Resource):
                array = model.constants[name].reshape(types[name].sizes)
                stored = array.astype(array.dtype.newbyteorder("<"), copy=False)
                contents[value.name] = stored.tobytes()
            statements.append(
                Statement("constant", (names[name],), (), (), (types[name],), {}, value)
            )
        statements += [
            Statement(
                made.operator,
                tuple(names[name] for name in made.results),
                tuple(None if n is None else names[n] for n in made.operands),
                tuple(None if n is None else types[n] for n in made.operands),
                tuple(types.get(name) for name in made.results),
                made.attributes,
            )
            for made in self.made
        ]
        return Program(
            spell_names([model.name])[model.name],
            {names[name]: types[name] for name in model.inputs},
            tuple(statements),
            {names[name]: types[name] for name in model.outputs},
            contents,
        )

    def _type(self, name: str) -> TensorType:
        """Type of a value. A constant of rank 0 gets one axis, along which it broadcasts."""
        kind = self.model.types[name]
        if kind.sizes:
            return kind
        if name in self.model.constants:
            return TensorType(kind.dtype, (1,))
        raise UnsupportedError(
            f"'{name}' has no dimensions, and public texts of CGC show no such tensor"
        )


def _spell_constant(name: str, kind: TensorType, array: Array) -> Resource | Numbers:
    """Constant in the text if it is a vector of integers; else one with its contents elsewhere."""
    if kind.dtype.is_integer and len(kind.sizes) == 1 and array.size <= 64:
        return Numbers(tuple(map(int, array.reshape(-1).tolist())), kind)
    return Resource(name, kind)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(map(int, value))


def _as_attribute(value: Any) -> Attribute:
    if value is None:
        raise UnsupportedError("an attribute that CGC's operation needs is not given")
    return value if isinstance(value, int | float) else _integers(value)
