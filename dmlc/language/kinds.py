"""Kinds of expressions in the checker, before anything is bound.

A `ValueKind` is what the tables imply: number or boolean; scalar, array or tensor; possible ranks.
`UNKNOWN` is the kind of a function's parameter and of an erroneous expression: it fits everywhere,
so that one error is reported once.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping

from dmlc.language import syntax
from dmlc.language.attribute_types import What
from dmlc.language.definitions import (
    AttributeDefinition,
    EnumDefinition,
    TensorDefinition,
)
from dmlc.scalars import DataType
from dmlc.source import UNKNOWN_NAME, Diagnostic, Fix, Note, Span, unknown_name


class Form(enum.Enum):
    SCALAR = "one value"
    ARRAY = "an array"
    TENSOR = "a tensor"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class ValueKind:
    what: What
    form: Form
    enum: EnumDefinition | None = None
    values: tuple[str, ...] | None = None
    """Permitted values of a string."""
    ranks: frozenset[int] | None = None
    """Possible ranks of a tensor; None if unknown."""
    pack: bool = False
    """Whether it is a pack variable, which has a value per axis."""

    @property
    def is_unknown(self) -> bool:
        return self.what is What.UNKNOWN

    def describe(self) -> str:
        return f"a {self.enum.name}" if self.enum is not None else self.what.value


UNKNOWN = ValueKind(What.UNKNOWN, Form.UNKNOWN)
BROKEN = ValueKind(What.UNKNOWN, Form.UNKNOWN, values=())
"""Kind of a declaration that could not be read. A name compared with it may be a member of an
unknown enum."""
NUMBER = ValueKind(What.NUMBER, Form.SCALAR)
BOOL = ValueKind(What.BOOL, Form.SCALAR)
STRING = ValueKind(What.STRING, Form.SCALAR)
TYPE = ValueKind(What.TYPE, Form.SCALAR)
NUMBERS = ValueKind(What.NUMBER, Form.ARRAY)
PACK = ValueKind(What.NUMBER, Form.SCALAR, pack=True)


def tensor_kind(tensor: TensorDefinition) -> ValueKind:
    """Kind of a tensor as a whole."""
    booleans = {t is DataType.BOOL for t in tensor.dtypes}
    what = What.UNKNOWN
    if len(booleans) == 1:
        what = What.BOOL if booleans.pop() else What.NUMBER
    form = Form.UNKNOWN if tensor.array else Form.TENSOR
    return ValueKind(what, form, ranks=frozenset(tensor.ranks))


def attribute_kind(attribute: AttributeDefinition) -> ValueKind:
    form = Form.ARRAY if attribute.is_array else Form.SCALAR
    what = attribute.type.what
    values = attribute.values if what is What.STRING else None
    return ValueKind(what, form, attribute.enum, values)


class Reporter:
    """Reader or checker that adds each error to `diagnostics` and goes on. An erroneous expression
    has an unknown kind, so that one error is reported once."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics

    def fail(
        self, message: str, span: Span, *notes: str | Note, code: str, fixes: Iterable[Fix] = ()
    ) -> ValueKind:
        made = tuple(n if isinstance(n, Note) else Note(n) for n in notes)
        self.diagnostics.append(Diagnostic(message, span, made, code=code, fixes=tuple(fixes)))
        return UNKNOWN

    def fail_unknown(
        self,
        what: str,
        name: str,
        known: Iterable[str],
        span: Span,
        code: str = UNKNOWN_NAME,
        cure: str | None = None,
        meant: str | None = None,
    ) -> ValueKind:
        """Reports a name that is none of `known`; `meant` is the one to suggest, if not the
        nearest."""
        self.diagnostics.append(unknown_name(what, name, known, span, code, cure, meant))
        return UNKNOWN


class SymbolTable:
    """Symbol table of one operator or graph, filled as its statements are checked."""

    def __init__(
        self,
        enums: Mapping[str, EnumDefinition],
        functions: Mapping[str, syntax.ScalarFunction],
        results: Mapping[str, ValueKind],
        *,
        elements: bool = False,
    ) -> None:
        self.enums = enums
        self.functions = dict(functions)
        self.results = dict(results)
        """Kind of each checked function's result."""
        self.elements = elements
        """Whether elements of tensors may be read: in `compute`, not in `require` or a default."""
        self.tensors: dict[str, TensorDefinition] = {}
        self.attributes: dict[str, AttributeDefinition] = {}
        self.dimensions: dict[str, ValueKind] = {}
        """Names of sizes and shapes in the `Dimensions` column."""
        self.broken: set[str] = set()
        """Names of unreadable table rows. Nothing else is known of them, and they are not reported
        as unknown."""
        self.locals: dict[str, ValueKind] = {}
        """Locals and outputs defined so far."""
        self.later: dict[str, Span] = {}
        """Names that this statement or a later one defines."""
        self.recurrent: dict[str, int] = {}
        """Number of indices of those names that the statements of a recurrence may read at other
        steps."""
        self.later_functions: dict[str, Span] = {}
