"""The `compute` section of an operator, for one binding, as a tensor IR function.

Each local becomes a stage of its compute type, named as the user's local; a local that only
renames something, or that holds no tensor, becomes none. Each output becomes a stage of the
output's own type. A later statement that reads an output reads the value before it is rounded.

Each reduction becomes a stage too, of its compute type, and is computed once however often it
stands: the stage of the local or the output it defines, or one named after what it folds
(`dY_sum`). `mean` is a sum, divided by the number of values where the mean is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.builder import Builder, join_shapes, span_text
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, BoundTensor
from dmlc.binding.nodes import Element, Shape, Value
from dmlc.binding.tensors import show_sizes
from dmlc.language import syntax
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.walk import subexpressions
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, InternalError, Span, UnsupportedError

_MOST_ERRORS = 20


def lower_compute(binding: Binding) -> ir.Function:
    """The bound function. Raises `DmlcError` with every independent mistake found."""
    lowering = _Lowering(binding)
    lowering.run()
    lowering.raise_errors()
    return lowering.function()


def infer_outputs(binding: Binding, wanted: Sequence[str]) -> Mapping[str, Shape]:
    """The shapes that `compute` gives to outputs whose sizes are open. Raises `DmlcError` where a
    mistake keeps it from following one of those wanted; None stands for a value without a shape."""
    lowering = _Lowering(binding)
    lowering.run()
    if any(name not in lowering.inferred for name in wanted):
        lowering.raise_errors()
    return lowering.inferred


class _Lowering:
    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.builder = Builder()
        self.evaluator = Evaluator(binding, self.builder)
        self.stages: list[ir.Stage] = []
        self.errors: list[DmlcError] = []
        self.inferred: dict[str, Shape] = {}
        self.names = dict.fromkeys(binding.definitions)
        self.assigned = dict.fromkeys(s.name.text for s in binding.operator.compute or ())
        self.last_read = _last_reads(binding)

    def run(self) -> None:
        operator = self.binding.operator
        if operator.gradient_of is not None:
            gradient = operator.gradient_of
            self.errors.append(
                UnsupportedError(
                    f"'gradient of {gradient.operator.text}' cannot be bound yet: this version "
                    "binds operators with 'compute'",
                    gradient.span,
                )
            )
        for number, statement in enumerate(operator.compute or ()):
            if isinstance(statement, syntax.ScalarFunction):
                parameters = tuple(p.text for p in statement.parameters)
                name = statement.name.text
                self.evaluator.functions[name] = FunctionDefinition(
                    name, parameters, statement.body, statement.span
                )
                continue
            name = statement.name.text
            try:
                self.evaluator.locals[name] = self.assign(statement, number)
            except DmlcError as error:
                # Whoever reads the name fails for the same reason, which is said once.
                definition = self.binding.definitions.get(name)
                if definition is not None and name not in self.binding.tensors:
                    self.evaluator.locals[name] = error
                else:
                    self.evaluator.locals[name] = DmlcError(())
                    self.errors.append(error)

    def raise_errors(self) -> None:
        found: dict[Diagnostic, None] = {}
        for error in self.errors:
            found.update(dict.fromkeys(error.diagnostics))
        if self.errors:
            unsupported = all(isinstance(e, UnsupportedError) for e in self.errors)
            kind = UnsupportedError if unsupported else DmlcError
            raise kind(list(found)[:_MOST_ERRORS])

    def assign(self, statement: syntax.Assignment, number: int) -> Value:
        """Defines a name, and gives what reading it means from here on."""
        if statement.indices is not None:
            place = statement.name.span.to(statement.indices[-1].span)
            raise UnsupportedError(
                f"index notation {span_text(statement.span)} cannot be bound yet: this version "
                "binds formulas on whole tensors",
                place,
            )
        value = self.evaluator.evaluate(statement.value)
        tensor = self.binding.tensors.get(statement.name.text)
        if tensor is not None:
            return self.define_output(tensor, value, statement, number)
        return self.define_local(value, statement)

    def define_local(self, value: Value, statement: syntax.Assignment) -> Value:
        if not isinstance(value, Element) or self.builder.loaded(value) is not None:
            return value
        dtype, shape = self.builder.dtype(value), self.builder.shape(value)
        if not isinstance(dtype, DataType) or shape is None:
            return value
        return self.add_stage(statement.name.text, dtype, value, shape, statement.span)

    def define_output(
        self, tensor: BoundTensor, value: Value, statement: syntax.Assignment, number: int
    ) -> Value:
        name, place = tensor.name, statement.value.span
        dtype = self.binding.dtype(name, place)
        compute = dtype.compute
        if isinstance(value, Element):
            found = self.builder.dtype(value)
            if isinstance(found, DataType) and found is not compute:
                raise DmlcError(
                    f"'{name}' is {dtype.name}, but the value assigned to it is "
                    f"{found.name}: write cast(..., {dtype.name})",
                    place,
                )
        element = self.builder.adapt(value, compute, place)
        if tensor.sizes is None and not self.binding.symbolic:
            self.inferred[name] = self.builder.shape(element)
            return element
        extents = self.binding.extents(name, statement.span)
        shape = self.builder.shape(element)
        if shape is not None and join_shapes(shape, extents) != extents:
            raise DmlcError(
                f"'{name}' has sizes {show_sizes(extents)}, but the value assigned to it has "
                f"sizes {show_sizes(shape)}: they must be the same, or 1 in the value",
                place,
            )
        if dtype.is_storage_only and self.last_read.get(name, -1) > number:
            element = self.add_stage(f"{name}_value", compute, element, extents, statement.span)
            self.add_stage(name, dtype, element, extents, statement.span)
            return element
        return self.add_stage(name, dtype, element, extents, statement.span)

    def add_stage(
        self,
        wanted: str,
        dtype: DataType,
        value: Element,
        domain: tuple[ir.Extent, ...],
        span: Span,
    ) -> Element:
        """A stage that holds the value, and a load of it."""
        builder = self.builder
        fold = builder.find_fold(value)
        if fold is not None and (fold.dtype, fold.shape) != (dtype, domain):
            fold = None  # Its own stage holds it, and this one converts or repeats that.
        for inner in builder.list_folds(value):
            if fold is None or inner != value:
                self.add_fold(inner, wanted, span)
        name = self.fresh_name(wanted) if wanted not in self.binding.tensors else wanted
        if fold is None:
            stage = ir.Stage(name, dtype, domain, builder.body(value, domain), None, span)
        else:
            stage = ir.Stage(
                name, dtype, domain, builder.fold_body(fold), builder.reduction(fold), span
            )
            builder.hold(value, name)
        self.stages.append(stage)
        return builder.load(name, dtype, domain)

    def add_fold(self, value: Element, stem: str, span: Span) -> None:
        """A stage of its own for a reduction inside a statement."""
        fold = self.builder.find_fold(value)
        if fold is None or not isinstance(fold.dtype, DataType) or fold.shape is None:
            raise InternalError("a stage needs a fold of a type and a shape", span)
        stem = self.builder.loaded(Element(fold.operands[0])) or stem
        name = f"{stem}_{fold.payload}"
        name = self.fresh_name(name if name not in self.assigned else f"{name}_1")
        body, reduction = self.builder.fold_body(fold), self.builder.reduction(fold)
        self.stages.append(ir.Stage(name, fold.dtype, fold.shape, body, reduction, span))
        self.builder.hold(value, name)

    def fresh_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}_{count}"
        self.names[name] = None
        return name

    def function(self) -> ir.Function:
        binding = self.binding
        parameters: list[ir.Parameter] = []
        results: list[ir.Result] = []
        for tensor in binding.tensors.values():
            span = tensor.definition.span
            if tensor.definition.output:
                results.append(ir.Result(tensor.name, tensor.strides))
            else:
                parameters.append(
                    ir.Parameter(
                        tensor.name,
                        binding.dtype(tensor.name, span),
                        binding.extents(tensor.name, span),
                        tensor.strides,
                        span,
                    )
                )
        return ir.Function(
            binding.operator.short_name,
            tuple(parameters),
            tuple(self.stages),
            tuple(results),
            _in_place(parameters, self.stages, results),
            binding.operator.syntax.name.span,
        )


def _last_reads(binding: Binding) -> dict[str, int]:
    """The last statement that reads each name's value; asking for its sizes is no reading."""
    found: dict[str, int] = {}
    for number, statement in enumerate(binding.operator.compute or ()):
        body = statement.body if isinstance(statement, syntax.ScalarFunction) else statement.value
        facts: set[int] = set()
        for expression in subexpressions(body):
            if isinstance(expression, syntax.Member):
                facts.add(id(expression.base))
            if isinstance(expression, syntax.Reference) and id(expression) not in facts:
                # A function may be called by any statement after it.
                last = isinstance(statement, syntax.ScalarFunction)
                found[expression.name] = len(binding.operator.compute or ()) if last else number
    return found


def _in_place(
    parameters: list[ir.Parameter], stages: list[ir.Stage], results: list[ir.Result]
) -> tuple[tuple[str, str], ...]:
    """The results that may be stored over a parameter: each element is read, by the stages that
    lead to this one result, only to compute the element that replaces it."""
    inputs = {p.name: frozenset((p.name,)) for p in parameters}
    reads: dict[str, frozenset[str]] = dict(inputs)
    elsewhere: set[str] = set()
    extents = {p.name: p.extents for p in parameters}
    domains: dict[str, tuple[ir.Extent, ...]] = {}
    types: dict[str, DataType] = {}
    for stage in stages:
        needed: frozenset[str] = frozenset()
        for load in stage.body.loads():
            needed |= reads[load.tensor]
            folded = stage.reduction is not None
            if load.tensor in extents and (folded or extents[load.tensor] != stage.domain):
                elsewhere.add(load.tensor)
        reads[stage.name], domains[stage.name], types[stage.name] = (
            needed,
            stage.domain,
            stage.dtype,
        )
    pairs: list[tuple[str, str]] = []
    for result in results:
        for parameter in parameters:
            name = parameter.name
            alone = all(name not in reads[r.name] for r in results if r is not result)
            same = (types[result.name], domains[result.name], result.strides) == (
                parameter.dtype,
                parameter.extents,
                parameter.strides,
            )
            if name in reads[result.name] and alone and same and name not in elsewhere:
                pairs.append((result.name, name))
    return tuple(pairs)
