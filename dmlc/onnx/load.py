"""ONNX models to functions of the tensor IR.

Nodes are walked in order. What is known while the model is imported is folded, what a rule knows is
built, and what ONNX or the model defines by other nodes is taken apart into these. All that is not
supported is collected, and refused at once.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlc.api import Results, run
from dmlc.binding.tensors import TensorDesc
from dmlc.building.functions import FunctionBuilder, Tensor
from dmlc.ir import Extent, Function
from dmlc.ir.naming import take_name
from dmlc.onnx.fold import IMPURE, fold
from dmlc.onnx.nodes import Node, UnknownValueError, Value, dtype_of
from dmlc.onnx.rules import RULES
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.sizes import Size, as_extent, measure, parse_size
from dmlc.source import Diagnostic, DmlcError, Note, UnsupportedError, counted, list_names

__all__ = ["ImportedModel", "UnknownValueError", "load"]

Subject: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | onnx.FunctionProto"

LARGEST_TABLE = 1024
"""The most elements of a constant that the kernels hold. A larger one becomes a parameter."""

MOST_STEPS = 256
"""The most steps of a loop that are laid out one after another."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model as a function. Its tensors keep their names as far as the IR can spell them."""

    function: Function
    weights: Mapping[str, Array]
    """The constants that are too large for kernels, by the parameter that each is given for. These
    stand after the inputs of the model."""
    inputs: Mapping[str, str]
    """What the inputs of the model are called in the function."""
    outputs: Mapping[str, str]
    """What its outputs are called there."""

    def run(self, inputs: Mapping[str, object], device: str = "opencl") -> Results:
        """Runs the function on arrays, and its weights. Inputs and results are by the names that
        the model has for them."""
        given = {self.inputs.get(name, name): array for name, array in inputs.items()}
        found = run(self.function, {**self.weights, **given}, device=device)
        names = {own: name for name, own in self.outputs.items()}
        return Results({names[own]: array for own, array in found.items()}, found.report)


def load(
    subject: Subject,
    constants: Mapping[str, Array] | None = None,
    tensors: Mapping[str, TensorDesc] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ImportedModel:
    """The function that a model computes, or a single function of ONNX.

    `subject` is a file, or what the package `onnx` has for one. `constants` fixes inputs: what is
    the shape of another tensor has to be known. `tensors` describes inputs whose types or sizes the
    model leaves open, as a function of ONNX leaves them all; `dims` gives sizes for its symbols.
    The others stay open until kernels run.

    Raises `UnsupportedError` for a model with nodes that have no meaning here: it names them all.
    """
    given = _read(subject) if isinstance(subject, str | os.PathLike) else subject
    described = dict(tensors or {})
    fixed = {name: np.asarray(array) for name, array in (constants or {}).items()}
    if isinstance(given, onnx.FunctionProto):
        given = _wrap_function(given, described, fixed)
    return _Importer(given, fixed, described, dict(dims or {})).load()


def _read(path: str | os.PathLike[str]) -> onnx.ModelProto:
    shown = os.fspath(path)
    try:
        return onnx.load(shown)
    except OSError as error:
        raise DmlcError(f"cannot read '{shown}': {error.strerror}") from None
    except Exception as error:  # What protobuf raises depends on how it was built.
        if type(error).__module__.split(".")[0] not in ("google", "onnx"):
            raise
        raise DmlcError(f"'{shown}' is no ONNX model") from None


def _wrap_function(
    function: onnx.FunctionProto, tensors: Mapping[str, TensorDesc], fixed: Mapping[str, Array]
) -> onnx.ModelProto:
    """A model that calls a function on the tensors that are described."""
    missing = [name for name in function.input if name not in tensors and name not in fixed]
    if missing:
        raise DmlcError(
            f"the function {function.name} of ONNX has no types: describe its inputs "
            f"{list_names(missing)}, as in tensors={{'{missing[0]}': TensorDesc('FLOAT32', (2, 3))}}"
        )
    empty = onnx.TypeProto()
    graph = helper.make_graph(
        [helper.make_node(function.name, function.input, function.output, domain=function.domain)],
        function.name,
        [helper.make_value_info(name, empty) for name in function.input],
        [helper.make_value_info(name, empty) for name in function.output],
    )
    imports = [*function.opset_import, helper.make_opsetid(function.domain, 1)]
    return helper.make_model(graph, functions=[function], opset_imports=imports)


@dataclasses.dataclass(frozen=True, slots=True)
class _Unknown:
    """What a node would have given that is not supported."""


_UNKNOWN = _Unknown()


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """What names stand for in a graph or in the body of a function."""

    values: dict[str, Value | _Unknown]
    opsets: Mapping[str, int]
    attributes: Mapping[str, object]
    """Those of the node that calls the function."""
    names: Mapping[str, str]
    """The names that its outputs have in the function of the IR."""
    prefix: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """A node that is not supported, and why."""

    op_type: str
    node: str
    reason: DmlcError


class _Importer:
    def __init__(
        self,
        model: onnx.ModelProto,
        fixed: Mapping[str, Array],
        tensors: Mapping[str, TensorDesc],
        dims: Mapping[str, int],
    ) -> None:
        self.graph = model.graph
        self.fixed = fixed
        self.tensors = tensors
        self.dims = dims
        self.opsets = {_domain(o.domain): o.version for o in model.opset_import}
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.builder = FunctionBuilder(_spell(model.graph.name) or "model")
        self.weights: dict[str, Array] = {}
        self.refusals: list[_Refusal] = []
        self._origins: dict[str, tuple[str, ...]] = {}
        self._placed: dict[int, tuple[Array, Tensor]] = {}
        self._parameters: dict[str, None] = {}

    def load(self) -> ImportedModel:
        values: dict[str, Value | _Unknown] = {}
        for initializer in self.graph.initializer:
            values[initializer.name] = numpy_helper.to_array(initializer)
        inputs = self._declare_inputs(values)
        wanted = {o.name: _spell(o.name) for o in self.graph.output}
        scope = _Scope(values, self.opsets, {}, wanted, "")
        self._run(self.graph.node, scope)
        if self.refusals:
            raise self._refuse()
        outputs: dict[str, str] = {}
        for output in self.graph.output:
            outputs[output.name] = take_name(_spell(output.name), self._parameters)
            value = self._find(scope, output.name)
            if isinstance(value, _Unknown):
                raise DmlcError(f"nothing computes the output {output.name} of the model")
            tensor = value if isinstance(value, Tensor) else self._place(value, output.name)
            self.builder.result(outputs[output.name], tensor)
        return ImportedModel(self.builder.build(), self.weights, inputs, outputs)

    # Inputs -----------------------------------------------------------------------------------

    def _declare_inputs(self, values: dict[str, Value | _Unknown]) -> dict[str, str]:
        names = [i.name for i in self.graph.input]
        unknown = [n for n in (*self.fixed, *self.tensors) if n not in (*names, *values)]
        if unknown:
            raise DmlcError(
                f"the model has no input '{unknown[0]}'",
                notes=[f"it has {', '.join(names)}"] if names else [],
            )
        inputs: dict[str, str] = {}
        for declared in self.graph.input:
            name = declared.name
            if name in values and name not in self.fixed:
                continue
            dtype, extents = self._describe(declared)
            if name in self.fixed:
                values[name] = self._check_fixed(name, dtype, extents)
                continue
            if dtype is None or extents is None:
                raise DmlcError(
                    f"the model does not say which sizes its input '{name}' has: describe it, as "
                    f"in tensors={{'{name}': TensorDesc('FLOAT32', (2, 3))}}"
                )
            inputs[name] = take_name(_spell(name), self._parameters)
            tensor = self.builder.parameter(inputs[name], dtype, extents)
            self._origins[tensor.name] = (name,)
            values[name] = tensor
        for name in self.fixed:
            values.setdefault(name, self.fixed[name])
        return inputs

    def _describe(
        self, declared: onnx.ValueInfoProto
    ) -> tuple[DataType | None, tuple[Extent, ...] | None]:
        """The type and the sizes of an input, as far as they are known."""
        known = self.tensors.get(declared.name)
        if known is not None and known.sizes is not None:
            return known.data_type, tuple(self._fix(extent) for extent in known.sizes)
        kind = declared.type.WhichOneof("value")
        if kind is None:
            return None, None
        if kind != "tensor_type":
            raise UnsupportedError(
                f"the input '{declared.name}' is no tensor, but a {kind.removesuffix('_type')}"
            )
        described = declared.type.tensor_type
        dtype = _find_dtype(described.elem_type, f"the input '{declared.name}'")
        if not described.HasField("shape"):
            return dtype, None
        extents: list[Extent] = []
        for axis, dim in enumerate(described.shape.dim):
            if dim.HasField("dim_value"):
                extents.append(dim.dim_value)
            else:
                symbol = dim.dim_param or f"{declared.name}_{axis}"
                extents.append(self._fix(_spell_symbol(symbol)))
        return dtype, tuple(extents)

    def _fix(self, extent: Extent) -> Extent:
        """A size, with the symbols that are given in it."""
        size = measure(extent)
        if isinstance(size, Size) and all(s in self.dims for s in size.symbols):
            return size.evaluate(self.dims)
        return as_extent(size)

    def _check_fixed(
        self, name: str, dtype: DataType | None, extents: tuple[Extent, ...] | None
    ) -> Array:
        array = self.fixed[name]
        if dtype is not None and data_type_of(array.dtype) is not dtype:
            raise DmlcError(
                f"the constant given for '{name}' holds {array.dtype}, and the model has "
                f"{dtype.name} there"
            )
        fits = extents is None or len(extents) == array.ndim
        pairs = zip(extents or (), array.shape, strict=False)
        if not fits or any(isinstance(e, int) and e != size for e, size in pairs):
            raise DmlcError(
                f"the constant given for '{name}' has the sizes {list(array.shape)}, and the model "
                f"has {list(extents or ())} there"
            )
        return array

    # Nodes ------------------------------------------------------------------------------------

    def _run(self, nodes: Sequence[onnx.NodeProto], scope: _Scope) -> None:
        for node in nodes:
            try:
                found = self._import(node, scope)
            except DmlcError as error:
                name = node.name or next((o for o in node.output if o), "")
                self.refusals.append(_Refusal(node.op_type, f"{scope.prefix}{name}", error))
                found = [_UNKNOWN] * len(node.output)
            scope.values.update(
                {name: value for name, value in zip(node.output, found, strict=False) if name}
            )

    def _import(self, proto: onnx.NodeProto, scope: _Scope) -> Sequence[Value | _Unknown]:
        """The outputs of a node."""
        domain, op_type = _domain(proto.domain), proto.op_type
        inputs = [self._find(scope, name) if name else None for name in proto.input]
        attributes = self._read_attributes(proto, scope)
        names = [
            (scope.names.get(name) or scope.prefix + _spell(name)) if name else ""
            for name in proto.output
        ]
        function = self.functions.get((domain, op_type, proto.overload))
        if function is not None:
            return self._call(function, inputs, attributes, names)
        if domain not in scope.opsets:
            raise UnsupportedError(f"the model defines no function {domain}.{op_type}")
        version = scope.opsets[domain]
        if op_type in _SUBGRAPHS and domain == "":
            return _SUBGRAPHS[op_type](self, inputs, attributes, names, scope)
        rule = RULES.get((domain, op_type))
        known = [value for value in inputs if not isinstance(value, _Unknown)]
        complete = len(known) == len(inputs)
        if (
            complete
            and inputs
            and op_type not in IMPURE
            and all(value is None or isinstance(value, np.ndarray) for value in known)
        ):
            arrays = cast("list[Array | None]", known)
            return list(fold(proto, arrays, attributes, version, domain))
        if rule is None:
            expanded = self._expand(proto, inputs, attributes, version, domain)
            return self._call(expanded, inputs, attributes, names)
        if not complete:
            return [_UNKNOWN] * len(names)
        node = Node(
            self.builder, op_type, version, tuple(known), tuple(names), attributes,
            self._place, self._trace,
        )  # fmt: skip
        made = rule(node)
        found = [made] if isinstance(made, Tensor | np.ndarray) else list(made)
        origins = self._merge_origins(known)
        for value in found:
            if isinstance(value, Tensor):
                self._origins.setdefault(value.name, origins)
        return [_UNKNOWN if value is None else value for value in found]

    def _find(self, scope: _Scope, name: str) -> Value | _Unknown:
        try:
            return scope.values[name]
        except KeyError:
            raise DmlcError(f"nothing computes the value '{name}' before it is read") from None

    def _read_attributes(self, proto: onnx.NodeProto, scope: _Scope) -> dict[str, object]:
        found: dict[str, object] = {}
        for attribute in proto.attribute:
            name = attribute.ref_attr_name
            if not name:
                found[attribute.name] = _read_attribute(attribute)
            elif name in scope.attributes:
                found[attribute.name] = scope.attributes[name]
        return found

    def _call(
        self,
        function: onnx.FunctionProto,
        inputs: Sequence[Value | _Unknown | None],
        attributes: Mapping[str, object],
        names: Sequence[str],
    ) -> list[Value | _Unknown]:
        """The outputs of a function of ONNX: its nodes become nodes of the caller."""
        defaults = {a.name: _read_attribute(a) for a in function.attribute_proto}
        values: dict[str, Value | _Unknown] = {}
        for number, name in enumerate(function.input):
            given = inputs[number] if number < len(inputs) else None
            if given is not None:
                values[name] = given
        prefix = next((name for name in names if name), _spell(function.name))
        scope = _Scope(
            values,
            {_domain(o.domain): o.version for o in function.opset_import},
            {**defaults, **attributes},
            dict(zip(function.output, names, strict=False)),
            f"{prefix}_",
        )
        self._run(_drop_absent(function, values), scope)
        wanted = zip(function.output, names, strict=False)
        return [self._find(scope, name) if own else _UNKNOWN for name, own in wanted]

    def _expand(
        self,
        proto: onnx.NodeProto,
        inputs: Sequence[Value | _Unknown | None],
        attributes: Mapping[str, object],
        version: int,
        domain: str,
    ) -> onnx.FunctionProto:
        """What ONNX defines an operator by. Raises `UnsupportedError` where there is nothing."""
        refused = UnsupportedError(_REASONS.get(proto.op_type, "dmlc has no rule for it"))
        try:
            schema = onnx.defs.get_schema(proto.op_type, version, domain)
        except onnx.defs.SchemaError:
            raise UnsupportedError("it is no operator of this version of ONNX") from None
        function = onnx.FunctionProto()
        plain = [v for v in schema.function_opset_versions if v <= version]
        made = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if proto.op_type in _REASONS or not (plain or made):
            raise refused
        if made:
            if any(isinstance(value, _Unknown) for value in inputs):
                # What it stands for depends on the types of its inputs.
                return function
            types = [_describe_type(cast("Value | None", value)) for value in inputs]
            resolved = helper.make_node(proto.op_type, proto.input, proto.output, domain=domain)
            resolved.attribute.extend(helper.make_attribute(n, v) for n, v in attributes.items())
            text = schema.get_context_dependent_function_with_opset_version(
                max(made), resolved.SerializeToString(), [t.SerializeToString() for t in types]
            )
        else:
            text = cast("bytes", schema.get_function_with_opset_version(max(plain)))
        function.ParseFromString(text)
        defaults = {
            name: a.default_value for name, a in schema.attributes.items() if a.default_value.name
        }
        function.attribute_proto.extend(defaults.values())
        named = [_domain(o.domain) for o in function.opset_import]
        for name, number in {domain: version, "": onnx.defs.onnx_opset_version()}.items():
            if name not in named:
                function.opset_import.append(helper.make_opsetid(name, number))
        return function

    # Graphs in nodes --------------------------------------------------------------------------

    def _enter(
        self,
        graph: onnx.GraphProto,
        given: Mapping[str, Value | _Unknown],
        scope: _Scope,
        prefix: str,
        names: Mapping[str, str],
    ) -> list[Value | _Unknown]:
        """The outputs of a graph that sees the names around it."""
        values = {**scope.values, **given}
        for initializer in graph.initializer:
            values[initializer.name] = numpy_helper.to_array(initializer)
        inner = _Scope(values, scope.opsets, scope.attributes, names, prefix)
        self._run(graph.node, inner)
        return [self._find(inner, output.name) for output in graph.output]

    def _choose(
        self,
        inputs: Sequence[Value | _Unknown | None],
        attributes: Mapping[str, object],
        names: Sequence[str],
        scope: _Scope,
    ) -> Sequence[Value | _Unknown]:
        """An If whose condition is known."""
        (condition,) = inputs
        if isinstance(condition, _Unknown):
            return [_UNKNOWN] * len(names)
        taken = self._know(condition, "the condition of an If")
        branch = cast("onnx.GraphProto", attributes["then_branch" if taken.all() else
                                                    "else_branch"])  # fmt: skip
        outputs = {o.name: name for o, name in zip(branch.output, names, strict=True) if name}
        return self._enter(branch, {}, scope, f"{names[0]}_", outputs)

    def _repeat(
        self,
        inputs: Sequence[Value | _Unknown | None],
        attributes: Mapping[str, object],
        names: Sequence[str],
        scope: _Scope,
    ) -> Sequence[Value | _Unknown]:
        """A Loop of a known number of steps, laid out one after another."""
        if any(isinstance(value, _Unknown) for value in inputs):
            return [_UNKNOWN] * len(names)
        body = cast("onnx.GraphProto", attributes["body"])
        carried = [_must(value) for value in inputs[2:]]
        going = True if inputs[1] is None else bool(self._know(inputs[1], "whether a Loop starts"))
        if inputs[0] is None:
            raise UnsupportedError("a Loop without a number of steps")
        steps = int(self._know(inputs[0], "the number of steps of a Loop"))
        scanned: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
        step = 0
        while going and step < steps:
            if step == MOST_STEPS:
                raise UnsupportedError(f"a Loop of more than {MOST_STEPS} steps")
            given = [np.array(step, np.int64), np.array(True), *carried]
            named = dict(zip((i.name for i in body.input), given, strict=True))
            found = [_must(v) for v in self._enter(body, named, scope, f"{names[0]}_{step}_", {})]
            going = bool(self._know(found[0], "whether a Loop goes on"))
            carried = found[1 : 1 + len(carried)]
            for kept, value in zip(scanned, found[1 + len(carried) :], strict=True):
                kept.append(value)
            step += 1
        return [*carried, *(self._stack(values, 0) for values in scanned)]

    def _scan(
        self,
        inputs: Sequence[Value | _Unknown | None],
        attributes: Mapping[str, object],
        names: Sequence[str],
        scope: _Scope,
    ) -> Sequence[Value | _Unknown]:
        """A Scan over axes of known sizes, laid out step by step."""
        if scope.opsets[""] < 9:
            raise UnsupportedError("a Scan of the versions before 9 of ONNX")
        if any(isinstance(value, _Unknown) for value in inputs):
            return [_UNKNOWN] * len(names)
        body = cast("onnx.GraphProto", attributes["body"])
        count = cast("int", attributes["num_scan_inputs"])
        states = [_must(value) for value in inputs[: len(inputs) - count]]
        scanned = [self._tensor(_must(value)) for value in inputs[len(inputs) - count :]]
        results = len(body.output) - len(states)

        def listed(name: str, length: int) -> list[int]:
            return cast("list[int]", attributes.get(name) or [0] * length)

        axes = [a % t.rank for a, t in zip(listed("scan_input_axes", count), scanned, strict=True)]
        backward = listed("scan_input_directions", count)
        steps = scanned[0].extents[axes[0]]
        if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
            raise UnsupportedError(f"a Scan of {steps} steps, and not of 1 to {MOST_STEPS}")
        kept: list[list[Value]] = [[] for _ in range(results)]
        for step in range(steps):
            prefix = f"{names[0]}_{step}_"
            parts = [
                self._part(t, axis, steps - 1 - step if turned else step, prefix)
                for t, axis, turned in zip(scanned, axes, backward, strict=True)
            ]
            named = dict(zip((i.name for i in body.input), [*states, *parts], strict=True))
            found = self._enter(body, named, scope, prefix, {})
            if any(isinstance(value, _Unknown) for value in found):
                return [_UNKNOWN] * len(names)
            values = [_must(value) for value in found]
            states = values[: len(states)]
            for values_kept, value in zip(kept, values[len(states) :], strict=True):
                values_kept.append(value)
        turned = listed("scan_output_directions", results)
        places = listed("scan_output_axes", results)
        stacked = [
            self._stack(values[::-1] if back else values, axis)
            for values, back, axis in zip(kept, turned, places, strict=True)
        ]
        return [*states, *stacked]

    def _part(self, tensor: Tensor, axis: int, step: int, prefix: str) -> Tensor:
        """What a step of a Scan reads of a tensor."""
        extents = [e for place, e in enumerate(tensor.extents) if place != axis]

        def element(at: Any) -> Any:
            return at.read(tensor, *at.indices[:axis], step, *at.indices[axis:])

        made = self.builder.compute(f"{prefix}part", extents, element, tensor.dtype)
        self._origins[made.name] = self._trace(tensor)
        return made

    def _stack(self, values: Sequence[Value], axis: int) -> Value:
        """Values along a new axis."""
        if not values:
            raise UnsupportedError("a Loop without steps gives no tensor of a known type")
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        if len(arrays) == len(values):
            return np.stack(arrays, axis)
        parts = [self._tensor(value) for value in values]
        place = axis % (parts[0].rank + 1)
        extents = [*parts[0].extents[:place], len(parts), *parts[0].extents[place:]]

        def element(at: Any) -> Any:
            own = (*at.indices[:place], *at.indices[place + 1 :])
            found = at.read(parts[-1], *own)
            for number, part in reversed(list(enumerate(parts[:-1]))):
                found = (at.indices[place] <= number).select(at.read(part, *own), found)
            return found

        made = self.builder.compute("stacked", extents, element, parts[0].dtype)
        self._origins[made.name] = self._merge_origins(values)
        return made

    def _know(self, value: Value | _Unknown | None, what: str) -> Array:
        """A value that has to be known."""
        if isinstance(value, np.ndarray):
            return value
        names = self._trace(value) if isinstance(value, Tensor) else ()
        raise UnknownValueError(f"{what} must be known when the model is imported", names)

    # Values -----------------------------------------------------------------------------------

    def _tensor(self, value: Value) -> Tensor:
        return value if isinstance(value, Tensor) else self._place(value, "constant")

    def _place(self, array: Array, name: str) -> Tensor:
        """An array as a tensor: a number in the kernels, a table of theirs, or a parameter."""
        found = self._placed.get(id(array))
        if found is None:
            dtype = dtype_of(array)
            found = array, self._make_tensor(array, dtype, _spell(name))
            self._placed[id(array)] = found
            self._origins[found[1].name] = ()
        return found[1]

    def _make_tensor(self, array: Array, dtype: DataType, name: str) -> Tensor:
        compute, builder = dtype.compute, self.builder
        if array.dtype == object:
            sizes: list[Any] = [as_extent(v) for v in array.ravel()]
            if len(sizes) != 1:
                raise UnsupportedError("several sizes that are left open, used as numbers")
            return builder.compute(
                name, array.shape, lambda at: at.size(sizes[0]).cast(compute), dtype
            )
        flat = array.ravel()
        if array.size == 0 or (flat.view(f"V{array.itemsize}") ==
                               flat[:1].view(f"V{array.itemsize}")).all():  # fmt: skip
            value: Any = flat[0].item() if array.size else 0
            return builder.compute(
                name, array.shape, lambda at: at.constant(value, compute), dtype
            )
        if array.size > LARGEST_TABLE:
            own = take_name(name, self._parameters)
            self.weights[own] = np.ascontiguousarray(array)
            return builder.parameter(own, dtype, array.shape)
        table = builder.table(name, array)
        if table.dtype is dtype:
            return table
        return builder.compute(
            f"{name}_{dtype.short}", array.shape, lambda at: at.read(table, *at.indices), dtype
        )

    def _merge_origins(self, values: Sequence[object]) -> tuple[str, ...]:
        names = [n for v in values if isinstance(v, Tensor) for n in self._trace(v)]
        return tuple(dict.fromkeys(names))

    def _trace(self, tensor: Tensor) -> tuple[str, ...]:
        return self._origins.get(tensor.name, ())

    # Refusals ---------------------------------------------------------------------------------

    def _refuse(self) -> DmlcError:
        """One error for all that is not supported."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for refusal in self.refusals:
            reason = refusal.reason.diagnostics[0].message
            grouped.setdefault((refusal.op_type, reason), []).append(refusal.node)
        lines = [
            f"{len(nodes)} x {op_type} ({list_names([n or 'unnamed' for n in nodes], 4)}): {reason}"
            for (op_type, reason), nodes in grouped.items()
        ]
        count = counted(len(self.refusals), "node")
        message = f"{self.graph.name or 'the model'}: {count} cannot be imported"
        unknown = [r.reason for r in self.refusals if isinstance(r.reason, UnknownValueError)]
        if len(unknown) == len(self.refusals):
            names = tuple(dict.fromkeys(name for error in unknown for name in error.names))
            return UnknownValueError("; ".join([message, *lines]), names)
        return UnsupportedError([Diagnostic(message, notes=tuple(Note(line) for line in lines))])


_SUBGRAPHS: Mapping[str, Any] = {
    "If": _Importer._choose, "Loop": _Importer._repeat, "Scan": _Importer._scan,
}  # fmt: skip
"""The operators that have graphs of their own."""

_REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
         "RandomUniformLike"), "it draws random numbers"),
    **dict.fromkeys(
        ("Compress", "NonMaxSuppression", "NonZero", "Unique"),
        "the size of its result depends on values"),
    **dict.fromkeys(
        ("ConcatFromSequence", "ReverseSequence", "SequenceAt", "SequenceConstruct",
         "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
         "SplitToSequence"), "it is of sequences of tensors"),
    **dict.fromkeys(
        ("LabelEncoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit",
         "TfIdfVectorizer"), "it is of texts"),
    "ImageDecoder": "it decodes images",
}  # fmt: skip
"""Why operators have no rule and are not taken apart."""


def _domain(text: str) -> str:
    return "" if text == "ai.onnx" else text


def _spell(name: str) -> str:
    """A name as the IR can spell it."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _spell_symbol(text: str) -> Extent:
    """A size that is left open: what ONNX has for it where that is a size, or a symbol like it."""
    try:
        return as_extent(parse_size(text))
    except DmlcError:
        return _spell(text)


def _find_dtype(elem_type: int, what: str) -> DataType:
    """The data type that a number of ONNX stands for."""
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    shown = names.get(elem_type, str(elem_type))
    if shown in ("UNDEFINED", "STRING") or shown not in names.values():
        raise UnsupportedError(f"{what} holds {shown}, which no tensor can hold")
    found = data_type_of(helper.tensor_dtype_to_np_dtype(elem_type))
    if found is None or found.name != {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64"}.get(shown, shown):
        raise UnsupportedError(f"{what} holds {shown}, which no tensor can hold")
    return found


def _describe_type(value: Value | None) -> onnx.TypeProto:
    """The type of a value, as ONNX describes one; an empty one where there is none."""
    if value is None:
        return onnx.TypeProto()
    dtype = value.dtype.dtype if isinstance(value, Tensor) else value.dtype
    number = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64) if dtype == object else dtype)
    extents = value.extents if isinstance(value, Tensor) else value.shape
    return helper.make_tensor_type_proto(number, [e if isinstance(e, int) else None
                                                  for e in extents])  # fmt: skip


def _read_attribute(attribute: onnx.AttributeProto) -> object:
    """An attribute as Python has it: texts decoded, tensors as arrays."""
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _drop_absent(
    function: onnx.FunctionProto, values: Mapping[str, object]
) -> Sequence[onnx.NodeProto]:
    """The nodes of a function, without the names of optional inputs that a call leaves out."""
    absent = [name for name in function.input if name not in values]
    if not absent:
        return function.node
    made: list[onnx.NodeProto] = []
    for node in function.node:
        own = onnx.NodeProto()
        own.CopyFrom(node)
        del own.input[:]
        own.input.extend("" if name in absent else name for name in node.input)
        made.append(own)
    return made


def _must(value: Value | _Unknown | None) -> Value:
    if value is None or isinstance(value, _Unknown):
        raise UnsupportedError("a step of a loop has values that are not supported")
    return value
