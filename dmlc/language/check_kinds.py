"""Base of the checks of expressions: agreement of kinds, and error messages.

`check_expressions` and `check_calls` derive from `Checking` and walk the syntax.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.builtins import REDUCTIONS
from dmlc.language.kinds import Form, Reporter, SymbolTable, ValueKind, What
from dmlc.source import Diagnostic, Note, Span, join_words


@dataclasses.dataclass(slots=True)
class Expansion:
    """Expansion `...`, with whether an array occurred in it."""

    met: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TypingContext:
    """Context of an expression: the variables in scope, and the constructs around it."""

    variables: Mapping[str, ValueKind]
    pack: Expansion | None = None
    in_function: bool = False

    def outside_pack(self) -> TypingContext:
        return self if self.pack is None else dataclasses.replace(self, pack=None)


class Checking(Reporter, abc.ABC):
    """Checker of expressions against the symbol table `names`."""

    def __init__(self, names: SymbolTable, diagnostics: list[Diagnostic]) -> None:
        super().__init__(diagnostics)
        self.names = names

    @abc.abstractmethod
    def visit(
        self,
        expression: syntax.Expression,
        context: TypingContext,
        expected: ValueKind | None = None,
    ) -> ValueKind:
        """Kind of an expression. `expected` gives the enum in which a bare name is looked up. It
        recurses: the parser has bounded the depth."""

    @abc.abstractmethod
    def expand(self, pack: syntax.Pack, context: TypingContext) -> ValueKind:
        """Kind of the operand of `...`, which must contain an array."""

    def hold_once(self, name: syntax.Name, seen: dict[str, Span], message: str, first: str) -> None:
        """Reports a repeated name; `seen` has the spans of the earlier names, and `first` is the
        note at the earlier one."""
        if name.text in seen:
            self.fail(message, name.span, Note(first, seen[name.text]), code="E0205")
        seen.setdefault(name.text, name.span)

    def names_array(self, expression: syntax.Expression) -> bool:
        """Whether an expression is the name of an array of tensors."""
        if not isinstance(expression, syntax.Reference):
            return False
        tensor = self.names.tensors.get(expression.name)
        return tensor is not None and tensor.array

    def per_axis(self, kind: ValueKind, context: TypingContext) -> ValueKind:
        """Kind of an array's entry inside `e...`; other kinds unchanged."""
        if kind.form in (Form.ARRAY, Form.UNKNOWN) and context.pack is not None:
            context.pack.met = True
        if kind.form is Form.ARRAY and context.pack is not None:
            return dataclasses.replace(kind, form=Form.SCALAR)
        if kind.form is Form.ARRAY and context.in_function:
            return dataclasses.replace(kind, form=Form.UNKNOWN)
        return kind

    def combine(
        self, kinds: Sequence[ValueKind], context: TypingContext, span: Span
    ) -> tuple[Form, frozenset[int] | None]:
        """Form and possible ranks of values combined element by element."""
        forms = {k.form for k in kinds}
        known = [k.ranks for k in kinds if k.form is Form.TENSOR and k.ranks is not None]
        ranks = known[0] if known else None
        for other in known[1:]:
            if ranks is not None and not ranks & other:
                self.fail(
                    f"tensors of {show_ranks(ranks)} and of {show_ranks(other)} dimensions "
                    "cannot be combined element by element",
                    span,
                    "unsqueeze(x, axes: [0]) adds a dimension of size 1 in front",
                    code="E0402",
                )
                return Form.UNKNOWN, None
            ranks = other if ranks is None else ranks & other
        if {Form.TENSOR, Form.ARRAY} <= forms and not context.in_function:
            message = "a tensor and an array cannot be combined element by element"
            self.fail(message, span, "index the array, as in 'Sizes[0]'", code="E0303")
            return Form.UNKNOWN, None
        for form in (Form.UNKNOWN, Form.TENSOR, Form.ARRAY):
            if form in forms:
                return form, ranks if form is Form.TENSOR else None
        return Form.SCALAR, None

    def folded(self, name: str, body: ValueKind, span: Span, form: Form) -> ValueKind:
        """Kind of a reduction of values of a kind, in some form."""
        reduction = REDUCTIONS.get(name)
        what = What.BOOL if reduction is not None and reduction.booleans else What.NUMBER
        self.expect(body, what, f"what '{name}' folds", span)
        return ValueKind(what, form)

    def expect_number(self, kind: ValueKind, role: str, span: Span) -> ValueKind:
        return self.expect(kind, What.NUMBER, role, span)

    def expect(
        self, kind: ValueKind, what: What, role: str, span: Span, cure: str | None = None
    ) -> ValueKind:
        if kind.is_unknown or kind.what is what:
            return kind
        notes = ("compare it, as in 'x != 0'",) if what is What.BOOL else ()
        notes = notes if cure is None else (cure,)
        return self.fail(
            f"{role} must be {what.value}, but this is {kind.describe()}",
            span,
            *notes,
            code="E0301",
        )

    def expect_kind(self, kind: ValueKind, wanted: ValueKind, role: str, span: Span) -> None:
        if not kind.is_unknown and (kind.what, kind.enum) != (wanted.what, wanted.enum):
            self.fail(
                f"{role} must be {wanted.describe()}, but this is {kind.describe()}",
                span,
                code="E0301",
            )

    def agree(self, left: ValueKind, right: ValueKind, span: Span, what: str) -> None:
        if left.is_unknown or right.is_unknown:
            return
        if left.what is not right.what or left.enum is not right.enum:
            self.fail(
                f"{what} must be of one kind, but one is {left.describe()} and one is "
                f"{right.describe()}",
                span,
                code="E0301",
            )


def show_ranks(ranks: Iterable[int]) -> str:
    """`4`, `1 to 8`, or `2 or 4`."""
    ordered = sorted(ranks)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return join_words(map(str, ordered))
