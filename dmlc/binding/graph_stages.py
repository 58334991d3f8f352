"""Tensors of a graph, its inputs and stages, and their gradients.

The stages of a gradient stand beside the graph's own and read those whose values they need, so that
differentiation computes nothing twice. Fusion decides what is stored and what is recomputed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dmlc import ir
from dmlc.binding.call_errors import raise_mistakes
from dmlc.binding.emission import Emission
from dmlc.binding.facts import Binding
from dmlc.binding.gradient import warn_of_nothing
from dmlc.binding.nodes import Node, Op, Weak
from dmlc.binding.stages import StageMaker, keep_loops
from dmlc.binding.tensors import TensorDesc, show_sizes
from dmlc.binding.values import span_text
from dmlc.language import syntax
from dmlc.language.builtins import Given
from dmlc.language.check_gradient import MOST_ORDERS, TOO_MANY_ORDERS
from dmlc.scalars import DataType, find_data_type
from dmlc.source import Diagnostic, DmlcError, Note, Span
from dmlc.transform.differentiate import differentiate
from dmlc.transform.inline import inline_stages
from dmlc.transform.simplify import list_live, rename_loop, rename_stage, simplify_stage


@dataclasses.dataclass(frozen=True, slots=True)
class GraphTensor:
    """Tensor of the graph, and the span of its name."""

    name: str
    dtype: DataType
    extents: tuple[ir.Extent, ...]
    span: Span


class GraphStages(StageMaker):
    """Stages of a graph; each is a tensor with a data type."""

    def __init__(
        self, graph: syntax.Graph, surroundings: Binding, inputs: Mapping[str, TensorDesc]
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.types: dict[str, DataType] = {}
        """Data type of each tensor made so far."""
        super().__init__(surroundings)
        self.kept = dict.fromkeys(n.text for s in self.graph.statements for n in s.names)
        self.assigned = self.kept
        self.names = {**dict.fromkeys(inputs), **self.kept}
        self.warnings: list[Diagnostic] = []
        self.at_hand: dict[str, None] = {}
        """Results of calls that gradients read directly, such as that of a softmax. For an
        element-wise result, gradients read its operands instead, so that the operand a choice does
        not take has no effect, not even as NaN."""
        self.orders: dict[str, int] = {}
        """Order of differentiation of the stages that are gradients."""
        self.statement: syntax.GraphStatement | None = None
        """Statement being lowered."""
        self.evaluator.differentiate = self.differentiate_call
        for name, desc in inputs.items():
            self.types[name] = desc.data_type
            self.extents[name] = desc.sizes or ()
            self.evaluator.locals[name] = self.load(name)

    def load(self, name: str) -> Node:
        return self.builder.nodes.load(name, self.types[name], self.extents[name])

    def append(self, stage: ir.Stage, emission: Emission) -> None:
        super().append(stage, emission)
        self.types[stage.name] = stage.dtype

    def parameters(self) -> list[ir.Parameter]:
        return [
            ir.Parameter(
                given.name.text,
                desc.data_type,
                desc.sizes or (),
                desc.stored_strides,
                given.span,
            )
            for given in self.graph.inputs
            for desc in (self.inputs[given.name.text],)
        ]

    def stem(self, span: Span, part: str) -> str:
        """Stem of the names of an expression's stages: the statement's name, followed by `part` if
        the expression is only a part of it."""
        if self.statement is None:
            return part
        name = self.statement.name.text
        return name if span == self.statement.value.span else f"{name}_{part}"

    def storage(self, value: Node) -> DataType:
        """Data type of a value as a tensor: that of the tensors it is computed from if they agree;
        FLOAT32 if they have several floating-point types."""
        dtype = value.dtype
        if dtype is Weak.INTEGER or dtype is DataType.INDEX:
            return DataType.INT32
        if isinstance(dtype, DataType) and dtype is not DataType.FLOAT32:
            return dtype
        found = [t for t in _list_types(value, self.types) if t.compute is DataType.FLOAT32]
        return found[0] if len(found) == 1 else DataType.FLOAT32

    # Gradients ----------------------------------------------------------------------------

    def differentiate(self, gradient: syntax.Gradient, names: Sequence[syntax.Name]) -> list[Node]:
        """Gradients with respect to some tensors, in stages of these names."""
        of = [self.find_tensor(e, f"{names[0].text}_of") for e in gradient.of]
        wrt = [self.find_tensor(e) for e in gradient.wrt]
        given = [self.find_tensor(e) for e in gradient.given]
        return self.derive(of, wrt, given, [name.text for name in names], gradient.span)

    def differentiate_call(self, value: Node, wrt: Node, given: Given) -> Node:
        """Result of `gradient(value, wrt: x)`."""
        stem = self.stem(given.span, "gradient")
        of = self.as_tensor(value, f"{stem}_of", given.spans[0])
        by = self.as_tensor(wrt, None, given.spans[1])
        return self.derive([of], [by], [], [stem], given.span)[0]

    def find_tensor(self, expression: syntax.Expression, name: str | None = None) -> GraphTensor:
        """Tensor that holds an expression; a value that no tensor holds is stored under `name`."""
        value = self.evaluator.evaluate(expression)
        if not isinstance(value, Node) or value.shape is None:
            raise DmlcError(
                f"{span_text(expression.span)} is no tensor", expression.span, code="E0706"
            )
        return self.as_tensor(value, name, expression.span)

    def as_tensor(self, value: Node, name: str | None, span: Span) -> GraphTensor:
        """Tensor that holds a value. Raises `DmlcError` without a name for a value that none
        holds."""
        found = self.builder.nodes.loaded(value)
        if found is None and name is None:
            raise DmlcError(
                f"{span_text(span)} is computed here: give it a name, and read that below",
                span,
                ["a gradient is with respect to an input or a value that has a name"],
                code="E0706",
            )
        if found is None:
            found = self.builder.nodes.loaded(self.hold(name or "", value, span)) or ""
        return GraphTensor(found, self.types[found], self.extents[found], span)

    def derive(
        self,
        of: Sequence[GraphTensor],
        wrt: Sequence[GraphTensor],
        given: Sequence[GraphTensor],
        names: Sequence[str],
        span: Span,
    ) -> list[Node]:
        """Gradients of some tensors with respect to others, each in a stage of the name in
        `names`."""
        raise_mistakes(_check_asked(of, wrt, given))
        sources: dict[str, str | None] = {}
        for number, tensor in enumerate(of):
            if tensor.name in sources:
                raise DmlcError(
                    f"{span_text(tensor.span)} is named twice", tensor.span, code="E0706"
                )
            sources[tensor.name] = given[number].name if given else None
        wanted: dict[str, str] = {}
        for tensor, name in zip(wrt, names, strict=True):
            if tensor.name not in wanted:
                taken = name in self.extents or name not in self.kept
                wanted[tensor.name] = self.fresh_name(name) if taken else name
        needed = list_live(self.stages, [*sources, *wanted], self.loops)
        order = 1 + max((self.orders.get(stage.name, 0) for stage in needed), default=0)
        if order > MOST_ORDERS:
            raise DmlcError(TOO_MANY_ORDERS, span, code="E0701")
        parameters = self.parameters()
        at_hand = {**self.at_hand, **wanted}
        kept = [stage.name for stage in needed if stage.name in at_hand]
        made, derived_loops, warnings = _derive_stages(
            parameters, needed, sources, wanted, kept, self.fresh_name, span, self.loops
        )
        self.add_made(made, order)
        self.loops += derived_loops
        self.warnings += warnings
        return [self.load(wanted[tensor.name]) for tensor in wrt]

    def add_made(self, stages: Sequence[ir.Stage], order: int) -> None:
        """Appends finished stages, whose reads are already proved in bounds; `order` is their order
        of differentiation."""
        self.stages += stages
        for stage in stages:
            self.types[stage.name], self.extents[stage.name] = stage.dtype, stage.extents
            self.orders[stage.name] = order


# Gradients -----------------------------------------------------------------------------------


def _check_asked(
    of: Sequence[GraphTensor], wrt: Sequence[GraphTensor], given: Sequence[GraphTensor]
) -> list[Diagnostic]:
    """Errors in a request for gradients of tensors, or in the seeds `given` for them."""
    found: list[Diagnostic] = []
    for tensor in (*of, *wrt):
        if not tensor.dtype.is_float:
            message = f"{span_text(tensor.span)} is {tensor.dtype.name}, and has no gradient"
            found.append(Diagnostic(message, tensor.span, code="E0703"))
    for tensor in () if given else of:
        if any(extent != 1 for extent in tensor.extents):
            cure = "say from which gradient of it, as in 'from dy', or reduce it to one value"
            sizes = show_sizes(tensor.extents)
            message = f"{span_text(tensor.span)} has sizes {sizes}, and a gradient is of one value"
            found.append(Diagnostic(message, tensor.span, (Note(cure),), code="E0706"))
    for tensor, own in zip(of, given, strict=False):
        for what, one, two in (
            ("", own.dtype.name, tensor.dtype.name),
            ("sizes ", show_sizes(own.extents), show_sizes(tensor.extents)),
        ):
            if one != two:
                has = "has" if what else "is"
                message = (
                    f"{span_text(own.span)} {has} {what}{one}, but what it is the gradient of "
                    f"{has} {what}{two}"
                )
                note = Note("a gradient has the type and the sizes of its tensor", tensor.span)
                found.append(Diagnostic(message, own.span, (note,), code="E0706"))
    return found


def _derive_stages(
    parameters: Sequence[ir.Parameter],
    stages: Sequence[ir.Stage],
    given: Mapping[str, str | None],
    wanted: Mapping[str, str],
    at_hand: Sequence[str],
    fresh: Callable[[str], str],
    span: Span,
    loops: Sequence[ir.Loop],
) -> tuple[list[ir.Stage], list[ir.Loop], list[Diagnostic]]:
    """Stages of gradients, to be appended to the graph's, their loops, and warnings.

    `stages` are those between the tensors differentiated and those differentiated by. `given` maps
    each tensor to the tensor of its own gradient, or to None for 1; `wanted` maps each tensor
    differentiated by to the name of its gradient. Stages in `at_hand` are read, not recomputed.
    """
    made = {s.name for s in stages}
    results = tuple(ir.Result(name) for name in given if name in made)
    kept_loops = keep_loops(loops, stages)
    function = ir.Function("forward", tuple(parameters), tuple(stages), results, loops=kept_loops)
    # Stages in `at_hand` are inputs with fresh names, and are renamed back afterwards.
    adjoints = {name: fresh(f"{name}_given") for name in given}
    kept = {name: fresh(f"{name}_kept") for name in at_hand}
    found = differentiate(function, tuple(wanted), adjoints, wanted, kept)
    names = {adjoints[name]: own for name, own in given.items() if own is not None}
    names |= {own: name for name, own in kept.items()}
    tensors = function.tensors()
    ones = {a: _make_one(a, tensors[n]) for n, a in adjoints.items() if given[n] is None}
    derived: list[ir.Stage] = []
    added = [loop for loop in found.function.loops if loop.stages[0] not in made]
    for delay in (delay for loop in added for delay in loop.delays):
        names[delay.name] = fresh(delay.name)
    for stage in found.function.stages:
        if stage.name not in made:
            names[stage.name] = stage.name if stage.name in wanted.values() else fresh(stage.name)
            if any(load.tensor in ones for load in stage.body.loads()):
                stage = simplify_stage(inline_stages(stage, ones))
            derived.append(rename_stage(stage, names, span))
    warnings = [warn_of_nothing(f"'{wanted[n]}'", f"'{n}'", span) for n in found.vanishing]
    read = {load.tensor for stage in derived for load in stage.body.loads()}
    used = [one for name, one in ones.items() if name in read]
    return [*used, *derived], [rename_loop(loop, names) for loop in added], warnings


def _make_one(name: str, tensor: ir.Tensor) -> ir.Stage:
    """Gradient of a value with respect to itself: a stage of ones."""
    dtype = tensor.dtype.compute
    body = ir.Body.make([ir.Constant(dtype, 1.0)], 0)
    return ir.Stage(name, dtype, tensor.extents, body, None, tensor.span)


# Types ------------------------------------------------------------------------------------------


def _list_types(value: Node, types: Mapping[str, DataType]) -> list[DataType]:
    """Types that a value is computed from: those that casts name, and those of the tensors it
    reads, from `types`. Conditions and operands of comparisons do not count."""
    found: dict[DataType, None] = {}
    seen: set[Node] = set()
    pending = [value]
    while pending:
        node = pending.pop()
        if node in seen or node.dtype is DataType.BOOL:
            continue
        seen.add(node)
        named = find_data_type(str(node.payload)) if node.form is Op.CAST else None
        if node.form in (Op.LOAD, Op.READ):
            named = types[str(node.payload)]
        if named is not None:
            found[named] = None
            continue
        pending.extend(reversed(node.operands))
    return list(found)
