"""Traversal of a model, node by node.

A node with known inputs is folded, one with a rule is built, and one that ONNX or the model defines
by other nodes is decomposed into these. Unsupported nodes are collected, and refused together."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from onnx import helper

from dmlc.building.functions import FunctionBuilder, Tensor
from dmlc.building.tensors import normalize_axes, stack_tensors
from dmlc.files import name_file
from dmlc.onnx.importing import contributed, schema
from dmlc.onnx.importing.budget import DEEPEST, NODE_WORK, Budget, BudgetError
from dmlc.onnx.importing.fold import can_fold, fold, is_quick, measure_results
from dmlc.onnx.importing.names import (
    describe_type,
    read_attribute,
    spell_domain,
    spell_name,
)
from dmlc.onnx.importing.nodes import (
    Node,
    OpenSizeError,
    UnknownValueError,
    Value,
    extents_of,
    need_number,
)
from dmlc.onnx.importing.rules import REFUSED, RULES
from dmlc.onnx.importing.steps import (
    FEW_STEPS,
    Scanned,
    move_steps,
    repeat_step,
    take_last,
    take_slice,
)
from dmlc.onnx.importing.values import MISSING, Missing, Values
from dmlc.scalars import Array
from dmlc.sizes import find_symbols
from dmlc.source import Diagnostic, DmlcError, Note, UnsupportedError, counted, list_names

Found: TypeAlias = Value | Missing


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Values of names in a graph, or in the body of a function."""

    values: dict[str, Found]
    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx.AttributeProto]
    """Those of the node that calls the function."""
    names: Mapping[str, str]
    """The names that outputs have in the function of the IR, where these are not their own."""
    prefix: str
    """What stands before the names of all others there."""

    def spell(self, name: str) -> str:
        """Name of a value in the function of the IR."""
        return self.names.get(name) or self.prefix + spell_name(name)

    def find(self, name: str) -> Found:
        try:
            return self.values[name]
        except KeyError:
            raise DmlcError(f"nothing computes the value '{name}' before it is read") from None


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Node with its inputs and attributes read, for rules that decompose it."""

    proto: onnx.NodeProto
    domain: str
    inputs: tuple[Found | None, ...]
    protos: tuple[onnx.AttributeProto, ...]
    """Its attributes; those that are of the function around it are as this is called with."""
    attributes: Mapping[str, object]
    """Their values, and once its schema is known, ONNX's defaults for those that it leaves out."""
    names: tuple[str, ...]
    """The names of its outputs in the function of the IR, empty for those not asked for."""
    scope: Scope

    @property
    def complete(self) -> bool:
        """Whether all inputs are supported."""
        return not any(isinstance(value, Missing) for value in self.inputs)

    def given(self) -> tuple[Value | None, ...]:
        """Inputs of a complete node."""
        return tuple(value for value in self.inputs if not isinstance(value, Missing))

    def miss(self) -> list[Found]:
        """Outputs of a node whose inputs are missing."""
        return [MISSING] * len(self.names)


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """Unsupported node, with the reason."""

    op_type: str
    node: str
    reason: DmlcError


EXAMPLE = 1
"""What messages propose as a size that is left open: each is 1 or more."""


class Importer:
    """Translator of a model's nodes to stages of a function."""

    def __init__(self, name: str, model: onnx.ModelProto) -> None:
        self.budget = Budget()
        self.builder = FunctionBuilder(name, self.budget.work, assumes=True)
        self.values = Values(self.builder, self.budget)
        self._functions = {(spell_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.refusals: list[_Refusal] = []

    def run(self, nodes: Iterable[onnx.NodeProto], scope: Scope) -> None:
        """Adds the outputs of nodes to a scope."""
        for node in nodes:
            name = f"{scope.prefix}{node.name or next((o for o in node.output if o), '')}"
            self.budget.node = f"the node {name} ({node.op_type})"
            self.budget.work(NODE_WORK)
            try:
                found = self._import(self._read(node, scope))
            except BudgetError:
                raise
            except DmlcError as error:
                self.refusals.append(_Refusal(node.op_type, name, error))
                found = [MISSING] * len(node.output)
            for name, value in zip(node.output, found, strict=False):
                if name:
                    scope.values[name] = value
                if isinstance(value, np.ndarray):
                    self.values.name_array(value, scope.spell(name))

    def check(self, name: str, subject: str) -> None:
        """Raises one error for all that is not supported. `subject` is the file of the model, empty
        if it has none."""
        if not self.refusals:
            return
        grouped: dict[tuple[str, str], list[str]] = {}
        for refusal in self.refusals:
            reason = refusal.reason.diagnostics[0].message
            grouped.setdefault((refusal.op_type, reason), []).append(refusal.node or "unnamed")
        lines = [
            f"{len(nodes)} x {op_type} ({list_names(nodes, 4)}): {reason}"
            for (op_type, reason), nodes in grouped.items()
        ]
        count = counted(len(self.refusals), "node")
        message = f"{count} of {name} cannot be imported"
        diagnostic = Diagnostic(message, notes=tuple(Note(line) for line in lines))
        reasons = [refusal.reason for refusal in self.refusals]
        unknown = [reason for reason in reasons if isinstance(reason, UnknownValueError)]
        sizes = [reason for reason in reasons if isinstance(reason, OpenSizeError)]
        names = tuple(dict.fromkeys(name for error in unknown for name in error.names))
        symbols = tuple(dict.fromkeys(symbol for error in sizes for symbol in error.symbols))
        cures = [f"--dim {symbol}={EXAMPLE}" for symbol in symbols]
        cures += [f"--constant {name}={name_file(name, '.npy')}" for name in names]
        if cures:
            words = shlex.join(
                ["dmlc", "import-onnx", subject or "MODEL", *" ".join(cures).split()]
            )
            notes = (*diagnostic.notes, Note(f"with the numbers that it is for: {words}"))
            diagnostic = dataclasses.replace(diagnostic, notes=notes)
        if len(unknown) == len(reasons):
            raise UnknownValueError(diagnostic, names)
        if len(sizes) == len(reasons):
            raise OpenSizeError(diagnostic, symbols)
        raise UnsupportedError([diagnostic])

    def _read(self, proto: onnx.NodeProto, scope: Scope) -> Call:
        protos: list[onnx.AttributeProto] = []
        for attribute in proto.attribute:
            outer = attribute.ref_attr_name
            if not outer:
                protos.append(attribute)
            elif outer in scope.attributes:
                own = onnx.AttributeProto()
                own.CopyFrom(scope.attributes[outer])
                own.name = attribute.name
                protos.append(own)
        values = {own.name: read_attribute(own) for own in protos}
        names = tuple(scope.spell(name) if name else "" for name in proto.output)
        inputs = tuple(scope.find(name) if name else None for name in proto.input)
        domain = spell_domain(proto.domain)
        return Call(proto, domain, inputs, tuple(protos), values, names, scope)

    def _import(self, call: Call) -> Sequence[Found]:
        """Outputs of a node."""
        proto, op_type = call.proto, call.proto.op_type
        function = self._functions.get((call.domain, op_type, proto.overload))
        if function is not None:
            return self._inline(function, call)
        if call.domain not in call.scope.opsets:
            raise UnsupportedError(f"the model defines no function {op_type} of {call.domain}")
        version = call.scope.opsets[call.domain]
        unfold = UNFOLDED.get(op_type) if call.domain == "" else None
        rule = RULES.get((call.domain, op_type))
        known_as = None
        if not _is_contributed(call):
            known_as = schema.find_schema(op_type, version, call.domain)
            schema.check_form(known_as, proto, call.protos)
            if unfold is not None:
                return unfold(self, call) if call.complete else call.miss()
            attributes = {**schema.find_defaults(known_as), **call.attributes}
            call = dataclasses.replace(call, attributes=attributes)
            folded = self._fold(call, known_as, version, has_rule=rule is not None)
            if folded is not None:
                return folded
            if rule is None:
                return self._inline(_expand(call, version), call)
        if not call.complete:
            return call.miss()
        inputs = list(call.given())
        for number in schema.list_narrow(known_as, inputs) if known_as is not None else ():
            inputs[number] = self.values.narrow(cast("Array", inputs[number]), proto.input[number])
        node = Node(
            self.builder, op_type, version, tuple(inputs), call.names, call.attributes,
            self.values.place, self.values.know, self.budget.hold,
        )  # fmt: skip
        if rule is None:
            return self._inline(contributed.make_function(node), call)
        made = rule(node)
        found = [made] if isinstance(made, Tensor | np.ndarray) else list(made)
        for value in found:
            if isinstance(value, Tensor):
                self.values.derive(value, call.inputs)
        return [MISSING if value is None else value for value in found]

    def _fold(
        self, call: Call, known_as: Any, version: int, *, has_rule: bool
    ) -> list[Found] | None:
        """Outputs of a node with known inputs that fits its schema, if it is folded: ONNX's
        reference evaluates it quickly, and it has a rule or cannot be decomposed."""
        if not call.complete:
            return None
        proto, op_type = call.proto, call.proto.op_type
        types = schema.infer(known_as, op_type, call.given(), len(proto.output),
                             call.protos, call.scope.opsets)  # fmt: skip
        arrays = [value for value in call.inputs if value is None or isinstance(value, np.ndarray)]
        known = arrays and len(arrays) == len(call.inputs)
        is_whole = has_rule or op_type in REFUSED or not schema.has_function(known_as)
        if not known or not is_whole or not can_fold(op_type, arrays, call.attributes):
            return None
        size = measure_results(op_type, arrays, types)
        if size is None or not is_quick(op_type, arrays, call.attributes, size):
            return None
        self.budget.hold(size)
        try:
            found = fold(proto, arrays, call.attributes, call.protos, version, call.domain)
        except DmlcError:
            # Its rule may take more than ONNX's reference does, or says itself what is wrong.
            if not has_rule:
                raise
            return None
        return None if found is None else list(found)

    def _inline(self, function: onnx.FunctionProto, call: Call) -> list[Found]:
        """Outputs of a function of ONNX, whose nodes are inlined."""
        attributes = {own.name: own for own in (*function.attribute_proto, *call.protos)}
        inputs = zip(function.input, call.inputs, strict=False)
        values = {name: value for name, value in inputs if value is not None}
        prefix = next((name for name in call.names if name), spell_name(function.name))
        scope = Scope(
            values,
            {spell_domain(o.domain): o.version for o in function.opset_import},
            attributes,
            dict(zip(function.output, call.names, strict=False)),
            f"{prefix}_",
        )
        self._descend(_drop_absent(function, values), scope)
        wanted = zip(function.output, call.names, strict=False)
        return [scope.find(name) if own else MISSING for name, own in wanted]

    def enter(
        self, graph: onnx.GraphProto, call: Call, given: Mapping[str, Value], prefix: str,
        names: Mapping[str, str],
    ) -> list[Found]:  # fmt: skip
        """Outputs of a node's subgraph, which sees the names of its context."""
        held: dict[str, Found] = {**call.scope.values, **given}
        for initializer in graph.initializer:
            held[initializer.name] = self.values.read_initializer(initializer, prefix)
        inner = dataclasses.replace(call.scope, values=held, names=names, prefix=prefix)
        self.budget.work(NODE_WORK)
        self._descend(graph.node, inner)
        return [inner.find(output.name) for output in graph.output]

    def _descend(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Adds the outputs of the nodes of a function or a subgraph to its scope."""
        if self.budget.depth == DEEPEST:
            raise UnsupportedError(
                f"functions and graphs lie more than {DEEPEST} deep in one another here"
            )
        self.budget.depth += 1
        try:
            self.run(nodes, scope)
        finally:
            self.budget.depth -= 1


def _is_contributed(call: Call) -> bool:
    """Whether an operator is one of ONNX Runtime's; some are used without their domain."""
    own = call.proto.op_type in ("SimplifiedLayerNormalization",)
    return call.domain == contributed.DOMAIN or (own and call.domain == "")


def _expand(call: Call, version: int) -> onnx.FunctionProto:
    """Function by which ONNX defines an operator. Raises `UnsupportedError` if there is none."""
    proto, domain = call.proto, call.domain
    own = schema.find_schema(proto.op_type, version, domain)
    plain: list[int] = [v for v in own.function_opset_versions if v <= version]
    made: list[int] = [v for v in own.context_dependent_function_opset_versions if v <= version]
    if proto.op_type in REFUSED or not (plain or made):
        raise UnsupportedError(REFUSED.get(proto.op_type, "dmlc has no rule for it"))
    function = onnx.FunctionProto()
    if made:
        if not call.complete:
            # What it stands for depends on the types of its inputs.
            raise UnsupportedError("its inputs are not supported")
        resolved = helper.make_node(proto.op_type, proto.input, proto.output, domain=domain)
        resolved.attribute.extend(call.protos)
        types = [describe_type(value).SerializeToString() for value in call.given()]
        try:
            text: bytes = own.get_context_dependent_function_with_opset_version(
                max(made), resolved.SerializeToString(), types
            )
        except RuntimeError as error:
            # ONNX writes the definition as text with the names of the node's graphs in it.
            reason = str(error).splitlines()[0].rstrip(":")
            raise DmlcError(f"ONNX cannot write out its definition: {reason}") from None
    else:
        text = own.get_function_with_opset_version(max(plain))
    function.ParseFromString(text)
    if len(function.output) < len(call.names):
        extents = [e for value in call.given() if value is not None for e in extents_of(value)]
        symbols = find_symbols(extents)
        raise OpenSizeError("what ONNX defines it by depends on sizes that are left open", symbols)
    defaults = [a.default_value for a in own.attributes.values() if a.default_value.name]
    function.attribute_proto.extend(defaults)
    named = [spell_domain(o.domain) for o in function.opset_import]
    for name, number in {domain: version, "": onnx.defs.onnx_opset_version()}.items():
        if name not in named:
            function.opset_import.append(helper.make_opsetid(name, number))
    return function


def _drop_absent(
    function: onnx.FunctionProto, values: Mapping[str, object]
) -> Sequence[onnx.NodeProto]:
    """Nodes of a function, without the names of absent optional inputs."""
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


# Operators with graphs of their own -------------------------------------------------------------

MOST_STEPS = 256
"""The most steps of a loop that are laid out one after another."""


def _choose(importer: Importer, call: Call) -> Sequence[Found]:
    """Outputs of an If whose condition is known."""
    taken = importer.values.know(call.given()[0], "the condition of an If").all()
    branch = cast("onnx.GraphProto", call.attributes["then_branch" if taken else "else_branch"])
    _check_count("outputs of its branch", len(branch.output), len(call.names))
    names = {o.name: name for o, name in zip(branch.output, call.names, strict=True) if name}
    return importer.enter(branch, call, {}, f"{call.names[0]}_", names)


def _repeat(importer: Importer, call: Call) -> Sequence[Found]:
    """Outputs of a Loop whose conditions are known at each step, unrolled."""
    values, inputs = importer.values, call.given()
    body = cast("onnx.GraphProto", call.attributes["body"])
    carried: list[Found] = [value for value in inputs[2:] if value is not None]
    _check_count("inputs of its body", len(body.input), len(inputs))
    _check_count("values that it carries", len(carried), len(inputs) - 2)
    _check_count("outputs of its body", len(body.output), 1 + len(call.names))
    going = inputs[1] is None or _know_one(values, inputs[1], "whether a Loop starts")
    steps = math.inf
    if inputs[0] is not None:
        steps = _know_one(values, inputs[0], "the number of steps of a Loop")
    scanned: list[list[Found]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while going and step < steps:
        if step == MOST_STEPS:
            raise UnsupportedError(f"a Loop of more than {MOST_STEPS} steps")
        own = [np.array(step, np.int64), np.array(True), *_all_there(carried)]
        named = dict(zip((i.name for i in body.input), own, strict=True))
        found = importer.enter(body, call, named, f"{call.names[0]}_{step}_", {})
        if any(isinstance(value, Missing) for value in found):
            return call.miss()
        going = _know_one(values, _all_there(found)[0], "whether a Loop goes on")
        carried = found[1 : 1 + len(carried)]
        for kept, value in zip(scanned, found[1 + len(carried) :], strict=True):
            kept.append(value)
        step += 1
    return [*carried, *(_stack(importer, _all_there(kept), 0) for kept in scanned)]


def _scan(importer: Importer, call: Call) -> Sequence[Found]:
    """Outputs of a Scan, as a loop of the IR or unrolled."""
    if call.scope.opsets[""] < 9:
        raise UnsupportedError("a Scan of the versions before 9 of ONNX")
    values, inputs = importer.values, [v for v in call.given() if v is not None]
    body = cast("onnx.GraphProto", call.attributes["body"])
    count = cast("int", call.attributes["num_scan_inputs"])
    if not 0 < count <= len(inputs):
        raise DmlcError(f"it goes over {count} of its {len(inputs)} inputs")
    _check_count("inputs of its body", len(body.input), len(inputs))
    _check_count("outputs of its body", len(body.output), len(call.names))
    states: list[Found] = list(inputs[: len(inputs) - count])
    scanned = [values.tensor(value) for value in inputs[len(inputs) - count :]]
    results = len(body.output) - len(states)
    if results < 0:
        raise DmlcError(f"its body gives {len(body.output)} of {len(states)} states")

    def listed(name: str, length: int) -> list[int]:
        found = cast("list[int]", call.attributes.get(name) or [0] * length)
        _check_count(name, len(found), length)
        return found

    pairs = zip(scanned, listed("scan_input_axes", count), listed("scan_input_directions", count),
                strict=True)  # fmt: skip
    slices = [
        Scanned(tensor, axis, bool(backwards))
        for tensor, given, backwards in pairs
        for axis in normalize_axes([given], tensor.rank)
    ]
    steps = slices[0].steps
    if any(each.steps != steps for each in slices):
        raise DmlcError("it goes over axes of several sizes")
    turns, places = listed("scan_output_directions", results), listed("scan_output_axes", results)
    prefix = f"{next((name for name in call.names if name), 'scan')}_"
    names = [each.name for each in body.input]

    def enter(given: Sequence[Tensor]) -> list[Value] | None:
        refused = len(importer.refusals)
        found = importer.enter(body, call, dict(zip(names, given, strict=True)), prefix, {})
        del importer.refusals[refused:]
        known = _all_there(found)
        return known if len(known) == len(found) else None

    if not isinstance(steps, int) or steps > FEW_STEPS:
        held = [values.tensor(state) for state in _all_there(states)]
        whole = repeat_step(values, prefix, held, slices, enter)
        if whole is not None:
            ends, rest = whole[: len(states)], whole[len(states) :]
            return [
                *(take_last(values, each) for each in ends),
                *(
                    move_steps(values, each, axis, bool(backwards))
                    for each, axis, backwards in zip(rest, places, turns, strict=True)
                ),
            ]
    steps = need_number(steps, "the number of its steps")
    if not 0 < steps <= MOST_STEPS:
        raise UnsupportedError(f"a Scan of {steps} steps, and not of 1 to {MOST_STEPS}")
    kept: list[list[Found]] = [[] for _ in range(results)]
    for step in range(steps):
        prefix = f"{call.names[0]}_{step}_"
        parts = [take_slice(values, each, step, f"{prefix}part") for each in slices]
        own = [*_all_there(states), *parts]
        found = importer.enter(body, call, dict(zip(names, own, strict=True)), prefix, {})
        if any(isinstance(value, Missing) for value in found):
            return call.miss()
        states = found[: len(states)]
        for values_kept, value in zip(kept, found[len(states) :], strict=True):
            values_kept.append(value)
    stacked = [
        _stack(importer, _all_there(each[::-1] if turned else each), axis)
        for each, turned, axis in zip(kept, turns, places, strict=True)
    ]
    return [*states, *stacked]


def _check_count(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise DmlcError(f"there are {found} {what}, and not {wanted}")


def _know_one(values: Values, value: Value | None, what: str) -> int:
    """Number or condition that must be known."""
    found = values.know(value, what)
    if found.size == 1 and found.dtype == np.dtype(object):
        return need_number(found.item(), what)
    if found.size != 1 or found.dtype.kind not in "biu":
        raise UnsupportedError(f"{what} is no single known number")
    return int(found.item())


def _all_there(values: Sequence[Found]) -> list[Value]:
    return [value for value in values if not isinstance(value, Missing)]


def _stack(importer: Importer, values: Sequence[Value], axis: int) -> Value:
    """Values stacked along a new axis."""
    if not values:
        raise UnsupportedError("a Loop without steps gives no tensor of a known type")
    arrays: list[Array] = [value for value in values if isinstance(value, np.ndarray)]
    if len(arrays) == len(values):
        return np.stack(arrays, axis)
    made = stack_tensors(
        importer.builder, "stacked", [importer.values.tensor(v) for v in values], axis
    )
    importer.values.derive(made, values)
    return made


UNFOLDED = {"If": _choose, "Loop": _repeat, "Scan": _scan}
"""The operators that have graphs of their own, and what lays these out."""
