"""Lowering of the `compute` section of one binding to a tensor IR function.

Each local becomes a stage of its compute type, under its own name; a local that only renames
something, or that holds no tensor, becomes none. Each output becomes a stage of the output's own
type. A later statement that reads an output reads the value before it is rounded. A statement in
index notation, `T[i...] = e`, is a stage over its index variables.

Each reduction becomes a stage too, of its compute type, and is computed once however often it is
written: the stage of the local or the output that it defines, or one named after its operand
(`dY_sum`); in index notation, over the index variables it depends on. `mean` is a sum, divided by
the number of values where the mean is read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.axes import join_shapes
from dmlc.binding.conversions import type_name
from dmlc.binding.facts import Binding, BoundTensor, ir_name
from dmlc.binding.nodes import IndexVariable, Node, Shape, Value, shape_of
from dmlc.binding.recurrences import Course, Recurrent, sort_stages
from dmlc.binding.scope import TOP, Scope
from dmlc.binding.stages import StageMaker, make_bound
from dmlc.binding.tensors import MAXIMUM_RANK, show_sizes
from dmlc.binding.values import span_text
from dmlc.language import syntax
from dmlc.language.recurrences import Recurrence, find_recurrences
from dmlc.language.walk import subexpressions, walk
from dmlc.scalars import DataType
from dmlc.sizes import find_symbols
from dmlc.source import DmlcError, Span, counted, unknown_name


def lower_compute(binding: Binding) -> ir.Function:
    """Bound function. Raises `DmlcError` with every independent error."""
    lowering = Lowering(binding)
    lowering.run()
    lowering.raise_errors()
    return lowering.function()


def infer_outputs(binding: Binding, wanted: Sequence[str]) -> Mapping[str, Shape]:
    """Shapes that `compute` gives to the outputs in `wanted`, whose sizes are not given; None for a
    value without a shape. Raises `DmlcError` if an error prevents the inference."""
    lowering = Lowering(binding)
    lowering.run()
    if any(name not in lowering.inferred for name in wanted):
        lowering.raise_errors()
    return lowering.inferred


def lower_condition(binding: Binding, difference: syntax.Difference) -> ir.Function | bool:
    """Condition of a `differs` section: a function of its elements, or its value if it is the same
    for all of them. It may name what `compute` defines. Raises `DmlcError` if it cannot be
    evaluated."""
    lowering = Lowering(binding)
    if binding.operator.compute is not None:
        lowering.run()
        lowering.raise_errors()
    return lowering.decide(difference.defined)


class Lowering(StageMaker):
    """Lowering of the statements of one binding to stages, in order."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self.kept = dict.fromkeys(binding.tensors)
        self.names = dict.fromkeys(ir_name(name) for name in binding.definitions)
        self.assigned = dict.fromkeys(s.name.text for s in binding.operator.compute or ())
        for tensor in binding.tensors.values():
            if tensor.sizes is not None:
                self.extents[ir_name(tensor.name)] = tensor.sizes
        self.inferred: dict[str, Shape] = {}
        self.opened = 0
        """Index of the first stage of the open recurrence."""

    @functools.cached_property
    def last_read(self) -> dict[str, int]:
        """Last statement that reads each name's value. A read of its sizes does not count."""
        found: dict[str, int] = {}
        statements = self.binding.operator.compute or ()
        for number, statement in enumerate(statements):
            facts: set[int] = set()
            for expression in subexpressions(statement):
                if isinstance(expression, syntax.Member):
                    facts.add(id(expression.base))
                if isinstance(expression, syntax.Reference) and id(expression) not in facts:
                    # A function may be called by any statement after it.
                    last = isinstance(statement, syntax.ScalarFunction)
                    found[expression.name] = len(statements) if last else number
        return found

    def run(self) -> None:
        operator = self.binding.operator
        if operator.compute is None and operator.syntax.gradient_of is not None:
            # It was checked without the library that has the operator.
            name = operator.syntax.gradient_of.operator
            self.errors.append(
                DmlcError(unknown_name("operator", name.text, (), name.span, code="E0202"))
            )
        statements = operator.compute or ()
        recurrences = find_recurrences(statements, self.binding.definitions)
        opening = {r.first: r for r in recurrences}
        closing = {r.last: r for r in recurrences}
        for number, statement in enumerate(statements):
            if number in opening:
                self.open_recurrence(opening[number])
            self.define_statement(statement, number)
            if number in closing:
                self.define_several((), self.close_recurrence)

    def define_statement(self, statement: syntax.Statement, number: int) -> None:
        name = statement.name.text
        if isinstance(statement, syntax.ScalarFunction):
            self.evaluator.functions[name] = statement
            return
        definition = self.binding.definitions.get(name)
        if definition is None or name in self.binding.tensors:
            self.define(name, functools.partial(self.assign, statement, number))
            return
        try:
            self.evaluator.locals[name] = self.assign(statement, number)
        except DmlcError as error:
            self.evaluator.locals[name] = error  # Nobody has asked for it, unless it is read.

    def assign(self, statement: syntax.Assignment, number: int) -> Value:
        """Lowers an assignment, and returns the value that later reads of its name have."""
        name = statement.name.text
        tensor = self.binding.tensors.get(name)
        if tensor is None and self.binding.members(name):
            return self.define_array(self.binding.members(name), statement, number)
        scope, variables = TOP, None
        if statement.indices is not None:
            scope, variables = self.bind_indices(statement, statement.indices, tensor)
        value = self.evaluator.evaluate(statement.value, None, scope)
        if variables is not None:
            self.check_element(value, statement)
        recurrent = self.evaluator.recurrent.get(name)
        if recurrent is not None and variables is not None:
            return self.define_recurrent(recurrent, value, statement, variables)
        if tensor is not None:
            return self.define_output(tensor, value, statement, number, variables)
        return self.define_local(value, statement, variables)

    # Index notation -----------------------------------------------------------------------

    def bind_indices(
        self,
        statement: syntax.Assignment,
        indices: Sequence[syntax.Binding],
        tensor: BoundTensor | None,
    ) -> tuple[Scope, tuple[IndexVariable, ...]]:
        """Index variables of `T[n, y...] = e`, with the extents stated, or else T's own; a pack
        takes the axes that the other variables leave. Returns none for an output without sizes."""
        place = _head(statement)
        if self.binding.symbolic:
            raise self.evaluator.needs_sizes("index notation", place)
        sizes = None if tensor is None else tensor.sizes
        stated = all(index.extent is not None for index in indices)
        others = [index for index in indices if not index.pack]
        leaves_none = bool(others) and all(index.extent is not None for index in others)
        if sizes is None and not stated and not leaves_none:
            sizes = self.binding.extents(statement.name.text, place)
        spare = 0 if sizes is None or stated else len(sizes) - len(indices)
        if spare < -1 or (spare != 0 and not any(index.pack for index in indices)):
            raise DmlcError(
                f"'{statement.name.text}' has {len(sizes or ())} dimensions, but is defined with "
                f"{counted(len(indices), 'index', 'indices')}",
                place,
                code="E0401",
            )
        names: dict[str, Value] = {}
        variables: list[IndexVariable] = []
        for index in indices:
            start = len(variables)
            own = (sizes or ())[start : start + (spare + 1 if index.pack else 1)]
            binding = self.evaluator.index.bind(index, TOP, start, own)
            bound, names[index.variable.text] = walk(binding)
            variables += [v.free[0] for v in bound]
        domain = tuple(v.extent for v in variables)
        if sizes is not None and domain != sizes:
            symbols = find_symbols((*sizes, *domain))
            listed = " and ".join(f"'{symbol}'" for symbol in symbols)
            note = f"they may differ where sizes are left open: give {listed} a number"
            raise DmlcError(
                f"'{statement.name.text}' has sizes {show_sizes(sizes)}, but is defined over "
                f"{show_sizes(domain)}",
                place,
                [note] if symbols else [],
                code="E0402",
            )
        if not 1 <= len(domain) <= MAXIMUM_RANK:
            raise DmlcError(
                f"'{statement.name.text}' would have {len(domain)} dimensions: a tensor has 1 to "
                f"{MAXIMUM_RANK}",
                place,
                code="E0409",
            )
        return Scope(names, depth=len(variables)), tuple(variables)

    def check_element(self, value: Value, statement: syntax.Assignment) -> None:
        """Checks that an indexed statement assigns one element."""
        name, place = statement.name.text, statement.value.span
        if isinstance(value, tuple):
            count = len(value)
            raise DmlcError(
                f"one element of '{name}' is defined here, but {span_text(place)} is an array of "
                f"{count} values",
                place,
                code="E0303",
            )
        if shape_of(value) is not None:
            raise DmlcError(
                f"one element of '{name}' is defined here, but {span_text(place)} is a whole "
                "tensor: index it",
                place,
                code="E0303",
            )

    # Recurrences --------------------------------------------------------------------------

    def open_recurrence(self, recurrence: Recurrence) -> None:
        """Binds the names that a recurrence defines to their values at the current step."""
        try:
            self.note_recurrence(recurrence)
        except DmlcError as error:
            unknown = [n for n in recurrence.names if n not in self.evaluator.recurrent]
            self.note_failure(unknown, error)

    def note_recurrence(self, recurrence: Recurrence) -> None:
        self.opened = len(self.stages)
        statements = (self.binding.operator.compute or ())[recurrence.first : recurrence.last + 1]
        own: list[syntax.Assignment] = []
        for each in statements:
            if isinstance(each, syntax.ScalarFunction):
                self.evaluator.functions[each.name.text] = each
            elif each.name.text in recurrence.names:
                own.append(each)
        course: Course | None = None
        for statement in own:
            scope, variables = self.bind_indices(statement, statement.indices or (), None)
            extents = tuple(v.extent for v in variables)
            place = _head(statement)
            if course is None:
                course = Course(extents[0], self.builder.nodes.bind(0, extents[0]))
            if course.steps != extents[0]:
                raise DmlcError(
                    f"'{statement.name.text}' has {extents[0]} steps, and '{own[0].name.text}', "
                    f"which takes part in the same recurrence, has {course.steps}",
                    place,
                    code="E0413",
                )
            del scope
            name = self.fresh_name(statement.name.text)
            before = self.fresh_name(f"{name}_before")
            self.kept[name] = None
            self.extents[before] = extents
            made = Recurrent(name, before, extents, statement.name.span, course)
            self.evaluator.recurrent[statement.name.text] = made
        self.find_types(own)

    def find_types(self, statements: Sequence[syntax.Assignment]) -> None:
        """Infers the types of what a recurrence defines from its formulas, where a read of the
        recurrence itself takes the type of the other operand."""
        recurrent = self.evaluator.recurrent
        failed: DmlcError | None = None
        for _ in statements:
            failed = None
            for statement in statements:
                own = recurrent[statement.name.text]
                own.defined = True
                if own.dtype is not None:
                    continue
                try:
                    own.dtype = self.find_type(statement)
                    own.number = own.dtype is not DataType.BOOL
                except DmlcError as error:
                    failed = failed or error
            if all(own.dtype is not None for own in recurrent.values()):
                break
        else:
            if failed is not None:
                raise failed
        for own in recurrent.values():
            own.dtype = own.dtype or DataType.FLOAT32
            # The reads made during the inference do not count.
            own.defined = own.delayed = False

    def find_type(self, statement: syntax.Assignment) -> DataType | None:
        """Type of what a statement of a recurrence defines, or None for a number of any type.
        Values of unknown type count as numbers first, then as booleans."""
        recurrent = [own for own in self.evaluator.recurrent.values() if not own.number]
        try:
            return self.find_value_type(statement)
        except DmlcError as error:
            for own in recurrent:
                own.truth = True
            try:
                return self.find_value_type(statement)
            except DmlcError:
                raise error from None
            finally:
                for own in recurrent:
                    own.truth = False

    def find_value_type(self, statement: syntax.Assignment) -> DataType | None:
        scope, _ = self.bind_indices(statement, statement.indices or (), None)
        value = self.evaluator.evaluate(statement.value, None, scope)
        if isinstance(value, bool):
            return DataType.BOOL
        if not isinstance(value, Node) or value.soft:
            return None
        return value.dtype if isinstance(value.dtype, DataType) else None

    def define_recurrent(
        self,
        recurrent: Recurrent,
        value: Value,
        statement: syntax.Assignment,
        variables: tuple[IndexVariable, ...],
    ) -> Value:
        """Stage of a name that a recurrence defines."""
        dtype = recurrent.dtype or DataType.FLOAT32
        place = statement.value.span
        if isinstance(value, Node) and value.dtype is not dtype and not value.takes_type:
            raise DmlcError(
                f"'{recurrent.stage}' is {dtype.name} where the recurrence reads it, and "
                f"{type_name(value.dtype)} here",
                place,
                code="E0413",
            )
        value = self.builder.conversions.adapt(value, dtype, place)
        made = self.add_stage(
            recurrent.stage, dtype, value, recurrent.extents, statement.span, variables
        )
        recurrent.defined = True
        return made

    def close_recurrence(self) -> Sequence[Value]:
        """Makes a loop of the stages of a recurrence."""
        names = dict(self.evaluator.recurrent)
        self.evaluator.recurrent.clear()
        if names and all(own.defined for own in names.values()):
            first = next(iter(names.values()))
            found, loop = sort_stages(self.stages[self.opened :], names, first.span)
            self.stages[self.opened :] = found
            self.loops += [] if loop is None else [loop]
        return ()

    # Names --------------------------------------------------------------------------------

    def define_local(
        self,
        value: Value,
        statement: syntax.Assignment,
        variables: tuple[IndexVariable, ...] | None,
    ) -> Value:
        """Stage of a local that is a tensor. A number without a type, defined by index, is INT32,
        INT64 or FLOAT32."""
        name, place = statement.name.text, statement.value.span
        if variables is None:
            return self.define_tensor(name, value, statement.span)
        value = self.builder.folds.settle(self.builder.conversions.weak(value, place), place)
        extents = tuple(v.extent for v in variables)
        return self.add_stage(name, self.storage(value), value, extents, statement.span, variables)

    def define_output(
        self,
        tensor: BoundTensor,
        value: Value,
        statement: syntax.Assignment,
        number: int,
        variables: tuple[IndexVariable, ...] | None = None,
    ) -> Value:
        name, place = tensor.name, statement.value.span
        dtype = self.binding.dtype(name, place)
        compute = dtype.compute
        if isinstance(value, Node) and value.dtype is not compute and not value.takes_type:
            raise DmlcError(
                f"'{name}' is {dtype.name}, but the value assigned to it is "
                f"{type_name(value.dtype)}: write cast(..., {dtype.name})",
                place,
                code="E0302",
            )
        element = self.builder.conversions.adapt(value, compute, place)
        if tensor.sizes is None and not self.binding.symbolic:
            if variables is None:
                self.inferred[name] = element.shape
                return element
            # A stage, so that statements after it can read the output by index.
            self.inferred[name] = extents = tuple(v.extent for v in variables)
            return self.add_stage(name, compute, element, extents, statement.span, variables)
        extents = self.binding.extents(name, statement.span)
        shape = element.shape
        if shape is not None and join_shapes(shape, extents) != extents:
            raise DmlcError(
                f"'{name}' has sizes {show_sizes(extents)}, but the value assigned to it has "
                f"sizes {show_sizes(shape)}: they must be the same, or 1 in the value",
                place,
                code="E0402",
            )
        span = statement.span
        if dtype.is_storage_only and self.last_read.get(name, -1) > number:
            element = self.add_stage(f"{name}_value", compute, element, extents, span, variables)
            self.add_stage(name, dtype, element, extents, span)
            return element
        return self.add_stage(name, dtype, element, extents, span, variables)

    # Arrays of tensors --------------------------------------------------------------------

    def define_array(
        self, members: list[BoundTensor], statement: syntax.Assignment, number: int
    ) -> Value:
        """Defines the entries of an array of outputs from `split` or `[e...]`."""
        if statement.indices is not None:
            message = (
                f"'{statement.name.text}' is an array of tensors, and is defined as a whole: by "
                "split(X, axis: A), or [e...]"
            )
            raise DmlcError(message, statement.name.span, code="E0411")
        self.evaluator.targets = [self.binding.extents(m.name, statement.span) for m in members]
        value = self.evaluator.evaluate(statement.value)
        self.evaluator.targets = None
        items = value if isinstance(value, tuple) else ()
        if len(items) != len(members):
            message = (
                f"'{statement.name.text}' is an array of {counted(len(members), 'tensor')}: write "
                "split(X, axis: A), or [e...] with an array of as many in e"
            )
            raise DmlcError(message, statement.value.span, code="E0411")
        for member, item in zip(members, items, strict=True):
            self.define_output(member, item, statement, number)
        return value

    def decide(self, statement: syntax.Assignment) -> ir.Function | bool:
        """Function of a condition alone, or the condition's value if it is the same for all
        elements."""
        name, place = statement.name.text, statement.value.span
        scope, variables = TOP, None
        if statement.indices is not None:
            tensor = self.binding.tensors.get(name)
            scope, variables = self.bind_indices(statement, statement.indices, tensor)
        value = self.evaluator.evaluate(statement.value, None, scope)
        if isinstance(value, bool):
            return value
        if not isinstance(value, Node) or value.dtype is not DataType.BOOL:
            raise DmlcError(f"{span_text(place)} is no condition", place, code="E0302")
        extents = value.shape or (1,)
        if variables is not None:
            self.check_element(value, statement)
            extents = tuple(v.extent for v in variables)
        self.add_stage("differs", DataType.BOOL, value, extents, place, variables)
        results = [ir.Result(self.stages[-1].name)]
        checks = self.binding.checks
        return make_bound(self.binding, self.stages, checks, self.loops, results)

    def function(self) -> ir.Function:
        return make_bound(self.binding, self.stages, self.binding.checks, self.loops)


def _head(statement: syntax.Assignment) -> Span:
    """Span of `T[i...]` in `T[i...] = e`."""
    name, value = statement.name.span, statement.value.span
    end = name.source.text.rfind("]", name.end, value.start) + 1
    return Span(name.source, name.start, end)
