"""Symbols of a graph: their sizes, from those stated and from the tensors given.

A symbol that stands alone in an input's sizes has the size found there. An expression such as `2 *
N` is solved for its only unknown symbol if it is linear in it. Every declared size is then checked
against the given one. A symbol that stays unknown is left open until kernels run if it is the size
of an input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.tensors import TensorDesc, refuse_excess, show_sizes
from dmlc.binding.values import OpenSize, expect_extent, show, span_text, whole_number
from dmlc.ir import Extent
from dmlc.language import syntax
from dmlc.language.walk import names_read
from dmlc.scalars import find_data_type
from dmlc.source import Diagnostic, DmlcError, InternalError, Note, Span, unknown_name

_LARGEST_SIZE = 2**31 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """Size of a symbol, and its source: an input, or None if the caller states it."""

    size: Extent
    given: syntax.GraphInput | None


class Symbols:
    """Symbols of one binding of a graph, as far as they are known."""

    def __init__(self, graph: syntax.Graph, surroundings: Binding) -> None:
        self.graph = graph
        self.evaluator = Evaluator(surroundings)
        self.known: dict[str, _Known] = {}
        self.diagnostics: list[Diagnostic] = []

    def state(self, dims: Mapping[str, int]) -> None:
        """Sets the sizes that the caller states."""
        names = [s.text for s in self.graph.symbols]
        for name, size in dims.items():
            if name not in names:
                self.diagnostics.append(
                    unknown_name(f"symbol of graph '{self.graph.name.text}'", name, names)
                )
                continue
            if not 0 <= size <= _LARGEST_SIZE:
                wanted = f"a whole number of 0 to {_LARGEST_SIZE}"
                self._fail(f"the size of symbol '{name}' must be {wanted}, but is {size}")
                continue
            self._learn(name, _Known(size, None))

    def infer(self, sizes: Mapping[str, tuple[Extent, ...]]) -> None:
        """Solves for symbols from the sizes of inputs, and checks these against the graph."""
        pairs: list[tuple[syntax.GraphInput, int, syntax.Expression, Extent]] = []
        for given in self.graph.inputs:
            found = sizes.get(given.name.text)
            if found is None:
                continue
            if len(found) != len(given.type.sizes):
                has = f"input '{given.name.text}' has {len(given.type.sizes)} dimensions"
                but = f"but the sizes given, {show_sizes(found)}, are {len(found)}"
                self._fail(f"{has}, {but}", given.type.span)
                continue
            pairs += [
                (given, axis, size, found[axis]) for axis, size in enumerate(given.type.sizes)
            ]
        for given, _, expression, size in pairs:
            if isinstance(expression, syntax.Reference):
                self._meet(expression, size, given)
        progress = True
        while progress:
            progress = False
            for given, _, expression, size in pairs:
                progress |= self._solve(expression, size, given)
        for given, axis, expression, size in pairs:
            if not isinstance(expression, syntax.Reference):
                self._hold(given, axis, expression, size)

    def leave_open(self) -> None:
        """Leaves unknown symbols open that are sizes of inputs."""
        for given in self.graph.inputs:
            for size in given.type.sizes:
                if isinstance(size, syntax.Reference) and self._open(size):
                    self._learn(size.name, _Known(size.name, given))

    def require(self, sizes: Sequence[syntax.Expression]) -> None:
        """Adds a diagnostic for each unknown symbol of some sizes."""
        wanted = {n: None for size in sizes for n in self._open(size)}
        for symbol in self.graph.symbols:
            if symbol.text in wanted:
                name = symbol.text
                stated = f"dims={{'{name}': 8}}, or --dim {name}=8"
                note = Note(
                    f"give the sizes of an input that has it, or state it: {stated}; a symbol that "
                    "is an input's size by itself may be left open"
                )
                self._fail(f"the size of symbol '{name}' is not known", symbol.span, note)

    def desc(self, declared: syntax.TensorType | None) -> TensorDesc:
        """Declared type with its sizes evaluated. Raises `DmlcError`."""
        dtype = None if declared is None else find_data_type(declared.dtype.text)
        if declared is None or dtype is None:
            raise InternalError("a checked type is known")
        sizes = [self._size(size) for size in declared.sizes]
        refuse_excess(span_text(declared.span), sizes, declared.span)
        return TensorDesc(dtype, sizes)

    def _fail(self, message: str, span: Span | None = None, *notes: Note) -> None:
        self.diagnostics.append(Diagnostic(message, span, notes, code="E0807"))

    # One symbol -----------------------------------------------------------------------------

    def _learn(self, name: str, known: _Known) -> None:
        self.known[name] = known
        size = known.size
        self.evaluator.locals[name] = OpenSize.of(size) if isinstance(size, str) else size

    def _meet(self, symbol: syntax.Reference, size: Extent, given: syntax.GraphInput) -> None:
        """Sets a symbol from the size of an input, or checks that size against the known one."""
        known = self.known.get(symbol.name)
        if known is None:
            self._learn(symbol.name, _Known(size, given))
        elif known.size != size:
            name, first = given.name.text, known.given
            if first is None:
                message = f"is stated to be {known.size}, but '{name}' has {size} there"
                self._fail(f"symbol '{symbol.name}' {message}", symbol.span)
            else:
                other = first.name.text
                message = f"has two sizes: {known.size} in '{other}' and {size} in '{name}'"
                declared = Note(f"'{other}' is declared here", first.span)
                self._fail(f"symbol '{symbol.name}' {message}", symbol.span, declared)

    def _solve(self, expression: syntax.Expression, size: Extent, given: syntax.GraphInput) -> bool:
        """Sets the only unknown symbol of an expression that is linear in it; returns whether it
        did."""
        unknown = self._open(expression)
        if len(unknown) != 1 or isinstance(expression, syntax.Reference) or isinstance(size, str):
            return False
        values: list[int] = []
        for trial in (0, 1):
            self.evaluator.locals[unknown[0]] = trial
            try:
                value = whole_number(self.evaluator.constant(expression))
            except DmlcError:
                value = None
            del self.evaluator.locals[unknown[0]]
            if value is None:
                return False
            values.append(value)
        slope = values[1] - values[0]
        if slope == 0 or (size - values[0]) % slope != 0 or (size - values[0]) // slope < 0:
            return False
        # Whether it is linear shows when the expression is held to the size.
        self._learn(unknown[0], _Known((size - values[0]) // slope, given))
        return True

    def _open(self, expression: syntax.Expression) -> list[str]:
        """Unknown symbols of an expression."""
        symbols = {s.text for s in self.graph.symbols}
        return [n for n in names_read(expression) if n in symbols and n not in self.known]

    def _hold(
        self, given: syntax.GraphInput, axis: int, expression: syntax.Expression, size: Extent
    ) -> None:
        if self._open(expression):
            return
        try:
            declared = self._size(expression)
        except DmlcError as error:
            self.diagnostics += error.diagnostics
            return
        if declared != size:
            text = span_text(expression.span)
            shown = str(declared)
            if not isinstance(expression, syntax.Literal):
                known = [n for n in names_read(expression) if n in self.known]
                where = ", ".join(f"{n} is {self.known[n].size}" for n in known)
                shown = f"{text}, which is {declared}" + (f" where {where}" if where else "")
            has = f"input '{given.name.text}' has size {size} along axis {axis}"
            self._fail(f"{has}, but the graph says {shown}", expression.span)

    def _size(self, expression: syntax.Expression) -> Extent:
        """Value of a declared size. Raises `DmlcError` if it is no size."""
        value = self.evaluator.constant(expression)
        if isinstance(value, OpenSize):
            return expect_extent(value, "a declared size", expression.span)
        size = whole_number(value)
        if size is None or not 0 <= size <= _LARGEST_SIZE:
            raise DmlcError(
                f"{span_text(expression.span)} is {show(value)}, and a size is a whole number of "
                f"0 to {_LARGEST_SIZE}",
                expression.span,
                code="E0807",
            )
        return size
