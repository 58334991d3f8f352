"""What the checker knows about an expression before anything is bound.

A `Kind` says as much as the tables say: number or boolean, one value or an array or a tensor,
its possible ranks. `UNKNOWN` is what a parameter of a function is, and what follows a mistake:
it fits everywhere, so that one mistake is reported once.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from dmlc.language.attribute_types import What
from dmlc.language.definitions import (
    AttributeDefinition,
    EnumDefinition,
    FunctionDefinition,
    TensorDefinition,
)
from dmlc.scalars import DataType
from dmlc.source import Span


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
    """Of a string: what it may be."""
    ranks: frozenset[int] | None = None
    """Of a tensor: the dimension counts it may have; None if nothing is known."""
    pack: bool = False
    """True for a pack variable, which has a value per axis."""

    @property
    def is_unknown(self) -> bool:
        return self.what is What.UNKNOWN

    def describe(self) -> str:
        return f"a {self.enum.name}" if self.enum is not None else self.what.value


UNKNOWN = ValueKind(What.UNKNOWN, Form.UNKNOWN)
BROKEN = ValueKind(What.UNKNOWN, Form.UNKNOWN, values=())
"""What the name of a declaration is that could not be read: what is compared with it may be a
member of an enum that is not known either."""
NUMBER = ValueKind(What.NUMBER, Form.SCALAR)
BOOL = ValueKind(What.BOOL, Form.SCALAR)
STRING = ValueKind(What.STRING, Form.SCALAR)
TYPE = ValueKind(What.TYPE, Form.SCALAR)
NUMBERS = ValueKind(What.NUMBER, Form.ARRAY)
PACK = ValueKind(What.NUMBER, Form.SCALAR, pack=True)


def tensor_kind(tensor: TensorDefinition) -> ValueKind:
    """The kind of a tensor's elements, all of them at once."""
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


class SymbolTable:
    """What the expressions of one place may name. Filled in as statements are checked."""

    def __init__(
        self,
        enums: Mapping[str, EnumDefinition],
        functions: Mapping[str, FunctionDefinition],
        results: Mapping[str, ValueKind],
        *,
        elements: bool = False,
    ) -> None:
        self.enums = enums
        self.functions = dict(functions)
        self.results = dict(results)
        """The kind each function gives, once it has been checked."""
        self.elements = elements
        """Whether tensors' elements may be read: in `compute`, not in `require` or a default."""
        self.tensors: dict[str, TensorDefinition] = {}
        self.attributes: dict[str, AttributeDefinition] = {}
        self.dimensions: dict[str, ValueKind] = {}
        """The names of sizes, and of whole shapes, that the `Dimensions` column has."""
        self.broken: set[str] = set()
        """The names of what the tables could not read: nothing more is known of them, and they are
        no names that are unknown."""
        self.locals: dict[str, ValueKind] = {}
        """Locals and outputs that are defined by now."""
        self.later: dict[str, Span] = {}
        """Names that a later statement defines, or that this one does."""
        self.recurrent: dict[str, int] = {}
        """Of these, those that the statements of a recurrence read at other steps: the number of
        their indices."""
        self.later_functions: dict[str, Span] = {}
