"""Import of CGC graphs as ONNX models, and so as functions of the tensor IR."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlc.cgc.model import open_model
from dmlc.cgc.operators import Operator, operators_by_name
from dmlc.cgc.text import (
    Attribute,
    Numbers,
    Program,
    Resource,
    Statement,
    TensorType,
    list_elements,
    parse,
)
from dmlc.files import read_bounded
from dmlc.onnx.arithmetic import ELEMENTS
from dmlc.onnx.importing.models import ImportedModel
from dmlc.onnx.importing.models import load as load_model
from dmlc.parameters import expect_path, expect_text
from dmlc.scalars import Array
from dmlc.source import Diagnostic, DmlcError, UnsupportedError, counted, list_names

OPSET = 23
"""The version of ONNX's operators that read models have."""
_IR_VERSION = 10

MOST_BYTES = 1 << 30
"""The bytes of a text that is read, its constants included."""

Path: TypeAlias = "str | os.PathLike[str]"


def load(path: Path) -> ImportedModel:
    """Function of a CGC graph in a file. Constants whose values are not in the file are inputs,
    after the graph's own. Raises `UnsupportedError` with the names of all unsupported
    operations."""
    shown = os.fspath(expect_path("path", path))
    try:
        text = read_bounded(shown, MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise DmlcError(f"'{shown}' is no text: CGC's bytecode is not read") from None
    return load_model(read_model(text, shown))


def read_model(text: str, filename: str = "<text>") -> onnx.ModelProto:
    """ONNX model of a CGC graph; `filename` is its name in messages."""
    program = parse(expect_text("text", text), expect_text("filename", filename))
    model = _ModelBuilder(program).build()
    found = open_model(model)
    for statement in program.statements:
        for name, kind in zip(statement.results, statement.result_types, strict=True):
            given = found.types.get(name, kind)
            if kind is not None and given != kind:
                raise DmlcError(
                    f"'%{name}' is {given} by the operands of '{statement.operation}', and the "
                    f"text says {kind}",
                    statement.span,
                )
    return model


class _ModelBuilder:
    """Translator of a program's statements to nodes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs = dict(program.parameters)
        self.uses: dict[str, int] = dict.fromkeys(program.results, 1)
        for statement in program.statements:
            for name in statement.operands:
                if name is not None:
                    self.uses[name] = self.uses.get(name, 0) + 1

    def build(self) -> onnx.ModelProto:
        self._check()
        for statement in self.program.statements:
            self._add(statement)
        program = self.program
        read = {name for node in self.nodes for name in node.input} | set(program.results)
        initializers = [
            numpy_helper.from_array(array, name)
            for name, array in self.constants.items()
            if name in read
        ]
        inputs = [_describe(*each) for each in self.inputs.items()]
        outputs = [_describe(*each) for each in program.results.items()]
        graph = helper.make_graph(self.nodes, program.name, inputs, outputs, initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="dmlc",
            ir_version=_IR_VERSION,
        )

    def _check(self) -> None:
        """Raises one error for all unsupported operations."""
        known = operators_by_name()
        unknown: dict[str, list[Statement]] = {}
        for statement in self.program.statements:
            if statement.operation not in known and statement.operation != "constant":
                unknown.setdefault(statement.operation, []).append(statement)
        if not unknown:
            return
        every = [f"{name} ({counted(len(found), 'time')})" for name, found in unknown.items()]
        first = next(iter(unknown.values()))[0]
        raise UnsupportedError(
            Diagnostic(f"operations of cgc_op that are not read: {list_names(every)}", first.span)
        )

    # Statements -------------------------------------------------------------------------------

    def _add(self, statement: Statement) -> None:
        if statement.operation == "constant":
            self._read_constant(statement)
            return
        operator = operators_by_name()[statement.operation]
        given = len(statement.operands)
        least = operator.operands - operator.optional
        if not least <= given <= operator.operands or None in statement.operands[:least]:
            raise DmlcError(
                f"'{operator.name}' takes {operator.operands} operands, found {given}",
                statement.span,
            )
        attributes = dict(statement.attributes)
        special: dict[str, Callable[[Statement, dict[str, Attribute]], None]] = {
            "cast": self._cast,
            "convolution": self._convolve,
            "group_query_attention": self._attend,
            "lp_normalization": self._normalize,
            "reshape": self._reshape,
            "rotary_embedding": self._rotate,
            "slice": self._slice,
        }
        if operator.name in special:
            special[operator.name](statement, attributes)
        else:
            self._plain(operator, statement, attributes)
        if attributes:
            name = next(iter(attributes))
            raise UnsupportedError(
                f"the attribute '{name}' of '{statement.operation}' is not read", statement.span
            )

    def _read_constant(self, statement: Statement) -> None:
        (name,), value = statement.results, statement.value
        if isinstance(value, Numbers):
            self.constants[name] = np.array(value.values, value.type.dtype.dtype)
        elif isinstance(value, Resource):
            held = self.program.contents.get(value.name)
            if held is None:
                self.inputs[name] = value.type
            elif len(held) != _count_bytes(value.type):
                raise DmlcError(
                    f"the constant '{value.name}' has {len(held)} bytes, and {value.type} has "
                    f"{_count_bytes(value.type)}",
                    statement.span,
                )
            else:
                self.constants[name] = list_elements(held, value.type)

    # Each takes the attributes that it reads out of those given.

    def _plain(
        self, operator: Operator, statement: Statement, attributes: dict[str, Attribute]
    ) -> None:
        """Adds the node of an operation whose operands are the inputs."""
        settings: dict[str, object] = {}
        for setting in operator.settings:
            value = attributes.pop(setting.name, setting.default)
            if value is None:
                raise DmlcError(
                    f"'{operator.name}' needs the attribute '{setting.name}'", statement.span
                )
            settings[setting.onnx] = value
        if operator.name == "quantize_linear" and statement.operands[2:] in ((), (None,)):
            kind = statement.result_types[0]
            settings["output_dtype"] = ELEMENTS[kind.dtype] if kind is not None else 0
        self._node(operator.onnx, statement, statement.operands, settings)

    def _cast(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        kind = statement.result_types[0]
        to = ELEMENTS[kind.dtype] if kind is not None else 0
        self._node("Cast", statement, statement.operands, {"to": to})

    def _convolve(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        kind = statement.types[0]
        axes = len(kind.sizes) - 2 if kind is not None else 0
        starts, ends = (attributes.pop(f"{end}_padding", (0,) * axes) for end in ("start", "end"))
        modes = {"mode": "convolution_mode_cross_correlation",
                 "direction": "convolution_direction_forward"}  # fmt: skip
        for name, wanted in modes.items():
            found = attributes.pop(name, wanted)
            if found != wanted:
                raise UnsupportedError(f"convolutions with {name} '{found}' are not read",
                                       statement.span)  # fmt: skip
        settings = {
            "strides": attributes.pop("strides", (1,) * axes),
            "dilations": attributes.pop("dilations", (1,) * axes),
            "pads": (*_integers(starts), *_integers(ends)),
            "group": attributes.pop("group_count", 1),
        }
        self._node("Conv", statement, statement.operands, settings)

    def _reshape(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        """Adds a Reshape. The sizes are an operand; without it, they are those of the result."""
        kind = statement.result_types[0]
        name, shape = statement.operands[0], (*statement.operands, None)[1]
        if shape is None:
            shape = f"{statement.results[0]}_sizes"
            self.constants[shape] = np.array(kind.sizes if kind is not None else (), np.int64)
        self._node("Reshape", statement, (name, shape), {})

    def _slice(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        """Adds a Slice, whose bounds are inputs in ONNX."""
        bounds = [attributes.pop(name, None) for name in ("starts", "ends", "axes")]
        known = [_integers(value) for value in bounds]
        if not known[0] or not known[1]:
            raise DmlcError("'slice' needs the attributes 'starts' and 'ends'", statement.span)
        count = len(known[0])
        axes = known[2] or tuple(range(count))
        steps = _integers(attributes.pop("steps", attributes.pop("step", None))) or (1,) * count
        given: list[str | None] = [statement.operands[0]]
        for name, numbers in zip(("starts", "ends", "axes", "steps"),
                                 (known[0], known[1], axes, steps), strict=True):  # fmt: skip
            given.append(f"{statement.results[0]}_{name}")
            self.constants[given[-1] or ""] = np.array(numbers, np.int64)
        self._node("Slice", statement, given, {})

    def _normalize(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        """Adds a normalization. `epsilon` is added to the sum of squares before the root."""
        axis, p = attributes.pop("axis", -1), attributes.pop("p", 2)
        epsilon = attributes.pop("epsilon", 1e-12)
        if p == 1 or epsilon == 0:
            self._node("LpNormalization", statement, statement.operands, {"axis": axis, "p": p})
            return
        kind, name = statement.types[0], statement.results[0]
        if p != 2 or kind is None:
            raise UnsupportedError(f"normalizations by a power of {p} are not read", statement.span)
        steps = [f"{name}_{part}" for part in ("square", "sum", "added", "norm", "axes", "epsilon")]
        square, total, added, norm, axes, small = steps
        value = statement.operands[0] or ""
        self.constants[axes] = np.array([axis], np.int64)
        self.constants[small] = np.array([epsilon], kind.dtype.dtype)
        self.nodes += [
            helper.make_node("Mul", [value, value], [square]),
            helper.make_node("ReduceSum", [square, axes], [total], keepdims=1),
            helper.make_node("Add", [total, small], [added]),
            helper.make_node("Sqrt", [added], [norm]),
            helper.make_node("Div", [value, norm], [name]),
        ]

    def _rotate(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        operator = operators_by_name()["rotary_embedding"]
        given = (*statement.operands, None, None)
        if None in given[1:4] or given[4] is not None:
            raise UnsupportedError(
                "'rotary_embedding' is read with tables of cosines and sines and with position_ids"
                ", not with seqlens_k",
                statement.span,
            )
        settings = {s.onnx: attributes.pop(s.name, s.default) for s in operator.settings}
        if settings["num_heads"] == 0:
            del settings["num_heads"]
        self._node("RotaryEmbedding", statement, given[:4], settings)

    def _attend(self, statement: Statement, attributes: dict[str, Attribute]) -> None:
        """Adds attention of a whole sequence: without a past, and with every length that of the
        sequence."""
        given = (*statement.operands, *[None] * 11)[:14]
        kind = statement.types[1]
        rotated = attributes.pop("do_rotary", 0) or attributes.pop("rotary_interleaved", 0)
        lengths, total = (self.constants.get(name or "") for name in given[5:7])
        read = any(self.uses.get(name, 0) for name in statement.results[1:])
        length = kind.sizes[1] if kind is not None and len(kind.sizes) == 3 else 0
        whole = lengths is not None and total is not None and bool(length)
        whole = whole and bool((lengths == length - 1).all() and (total == length).all())
        if rotated or read or not whole or any((*given[3:5], *given[7:])):
            raise UnsupportedError(
                "'group_query_attention' is read without cache, rotation, bias and scales, where "
                "seqlens_k and total_sequence_length are constants that say the whole sequence, "
                "and only its first result is used",
                statement.span,
            )
        settings: dict[str, object] = {
            "is_causal": 1,
            "q_num_heads": attributes.pop("num_heads", 0),
            "kv_num_heads": attributes.pop("kv_num_heads", 0),
        }
        if attributes.get("scale"):
            settings["scale"] = attributes["scale"]
        attributes.pop("scale", None)
        self._node("Attention", statement, given[:3], settings)

    # Nodes ------------------------------------------------------------------------------------

    def _node(
        self,
        operator: str,
        statement: Statement,
        given: Sequence[str | None],
        settings: Mapping[str, object],
    ) -> None:
        names = [name or "" for name in given]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(operator, names, [statement.results[0]])
        for name, value in settings.items():
            node.attribute.append(helper.make_attribute(name, value))
        self.nodes.append(node)


def _describe(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENTS[kind.dtype], kind.sizes)


def _count_bytes(kind: TensorType) -> int:
    return int(np.prod(kind.sizes, dtype=np.int64)) * np.dtype(kind.dtype.dtype).itemsize


def _integers(value: Attribute | None) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else ()
