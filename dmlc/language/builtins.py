"""Functions and facts of the language, one entry each: name, parameters, result and evaluation.

The checker checks calls against the entries and the binder evaluates calls with them, through the
operations of `Evaluation`: a function that these can express is one new entry here.
`docs/reference/language.md` names each.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, cast

from dmlc.language.arrays import are_axes, axes_array, invert_order, list_range, other_axes
from dmlc.language.kinds import BOOL, NUMBER, NUMBERS, TYPE, Form, ValueKind, What
from dmlc.scalars import COMBINERS, OPERATIONS, DataType, Operation, find_data_type
from dmlc.source import DmlcError, Span

Value: TypeAlias = Any
"""Value of the binder: a constant, an element of a computation, or an array of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """Arguments of a call in the order of the parameters: their kinds for the checker, their values
    for the binder; the name itself for a parameter that takes a name."""

    values: Sequence[Any]
    spans: Sequence[Span]
    span: Span


class Evaluation(Protocol):
    """Operations of the binder that entries are defined with."""

    def apply(self, operation: str, given: Given) -> Value:
        """A scalar operation, element by element and entry by entry."""
        ...

    def convert(self, value: Value, to: DataType, span: Span) -> Value: ...

    def stop_gradient(self, given: Given) -> Value: ...

    def is_present(self, tensor: str) -> bool: ...

    def is_since(self, level: str) -> bool: ...

    def flatten(self, places: Value, sizes: tuple[Value, ...], span: Span) -> Value: ...

    def unflatten(self, number: Value, sizes: tuple[Value, ...], span: Span) -> Value: ...

    def whole_sizes(self, value: Value, span: Span) -> tuple[Value, ...]: ...

    def refuse_open(self, given: Given) -> None:
        """Raises `DmlcError` for arguments that depend on open sizes."""
        ...

    def move_axes(self, name: str, axes: tuple[int, ...], given: Given) -> Value:
        """Tensor with axes of size 1 removed (`squeeze`) or added."""
        ...

    def join(self, given: Given) -> Value: ...

    def joined_sizes(self, given: Given) -> Value: ...

    def split(self, given: Given) -> Value: ...

    def gradient(self, given: Given) -> Value:
        """Gradient of a value of a graph with respect to a tensor."""
        ...


class Takes(enum.Enum):
    """Evaluation mode of an argument."""

    VALUE = "its value; inside an expansion, an array's entry"
    WHOLE = "its value; an array is whole inside an expansion too"
    TYPE = "the data type that it names"
    TENSOR = "the name of a tensor"
    TENSORS = "the name of an array of tensors"
    LEVEL = "the name of a feature level"


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a call."""

    takes: Takes
    wrong: str = ""
    """Message about an argument of the wrong kind; `{kind}` stands for its kind."""
    fits: Callable[[ValueKind], bool] = lambda kind: True
    number: str | None = None
    """Name in messages of an argument made of numbers."""
    label: str | None = None
    """Label of a named argument, or None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Builtin:
    """Builtin function of the language."""

    name: str
    parameters: tuple[Parameter, ...]
    gives: What | ValueKind | Callable[[Given], ValueKind]
    """Result: a kind of element computed elementwise, a fixed kind, or a function of the arguments'
    kinds."""
    evaluate: Callable[[Evaluation, Given], Value]
    usage: tuple[str, ...] = ()
    """Message and note about a wrong number of arguments; without it, the number is stated."""
    says: str = ""
    """Description of the result for the documentation and for editors."""

    @property
    def labels(self) -> list[str | None]:
        return [p.label for p in self.parameters]


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """Reduction: a function with bindings, `sum[k : n](...)`, or with `like:` or `axes:`."""

    name: str
    folds: bool
    """Whether it folds a pack, or a compile-time array."""
    booleans: bool
    """Whether it folds booleans."""


def _apart_from(*forms: Form) -> Callable[[ValueKind], bool]:
    return lambda kind: kind.form not in forms


# Scalar functions ------------------------------------------------------------------------------


def _numbers(name: str, count: int) -> tuple[Parameter, ...]:
    return (Parameter(Takes.VALUE, number=f"an argument of '{name}'"),) * count


def _scalar(operation: Operation) -> Builtin:
    name = operation.name
    what = What.BOOL if operation.gives_bool else What.NUMBER
    parameters = _numbers(name, operation.arity)
    return Builtin(name, parameters, what, lambda on, given: on.apply(name, given))


def _clamp(on: Evaluation, given: Given) -> Value:
    (x, low, high), (place, below, above) = given.values, given.spans
    raised = on.apply("max", Given((x, low), (place, below), given.span))
    return on.apply("min", Given((raised, high), (place, above), given.span))


def _cast_kind(given: Given) -> ValueKind:
    named = find_data_type(given.spans[1].text)
    what = What.BOOL if named is DataType.BOOL else What.NUMBER
    of = given.values[0]
    return ValueKind(What.UNKNOWN if named is None else what, of.form, ranks=of.ranks)


def _cast(on: Evaluation, given: Given) -> Value:
    value, to = given.values
    if not isinstance(to, DataType):
        raise DmlcError(
            "cast takes a data type, such as FLOAT32, second", given.spans[1], code="E0304"
        )
    return on.convert(value, to, given.span)


_CAST = (
    Parameter(
        Takes.VALUE,
        "'cast' takes a number, but this is {kind}",
        lambda kind: kind.what in (What.NUMBER, What.BOOL),
    ),
    Parameter(
        Takes.TYPE,
        "the second argument of 'cast' is a data type, such as FLOAT32",
        lambda kind: kind.what is What.TYPE,
    ),
)


# Tensors ---------------------------------------------------------------------------------------


def _tensor(name: str) -> Parameter:
    fits = _apart_from(Form.SCALAR, Form.ARRAY)
    return Parameter(Takes.VALUE, f"'{name}' takes a tensor", fits)


AXES = Parameter(
    Takes.VALUE,
    "'axes:' takes a compile-time array, such as [0, 2]",
    _apart_from(Form.TENSOR, Form.SCALAR),
    "an axis",
    "axes",
)
_AXIS = Parameter(
    Takes.VALUE, "an axis is one whole number", _apart_from(Form.TENSOR, Form.ARRAY), "an axis",
    "axis",
)  # fmt: skip


def _moving(name: str) -> Builtin:
    def evaluate(on: Evaluation, given: Given) -> Value:
        return on.move_axes(name, axes_array(given.values[1], given.spans[1]), given)

    return Builtin(
        name,
        (_tensor(name), AXES),
        lambda given: ValueKind(given.values[0].what, Form.TENSOR),
        evaluate,
        (f"'{name}' takes a tensor and axes: {name}(x, axes: [...])",),
    )


# Arrays ----------------------------------------------------------------------------------------


def _array(
    name: str,
    gives: ValueKind,
    says: str,
    evaluate: Callable[[Evaluation, Given], Value],
    *takes: str,
) -> Builtin:
    """Function of whole arrays; `takes` describes each argument."""
    number = None if name == "length" else f"an argument of '{name}'"
    parameters = [
        Parameter(
            Takes.WHOLE,
            f"'{name}' takes {what}",
            _apart_from(Form.TENSOR, Form.SCALAR if "array" in what else Form.ARRAY),
            number,
        )
        for what in takes
    ]
    return Builtin(name, tuple(parameters), gives, evaluate, says=says)


def _length(on: Evaluation, given: Given) -> Value:
    value = given.values[0]
    if not isinstance(value, tuple):
        raise DmlcError("'length' takes an array", given.spans[0], code="E0303")
    return len(cast("tuple[Value, ...]", value))


def _other_axes(on: Evaluation, given: Given) -> Value:
    (listed, count), (place, counted) = given.values, given.spans
    return other_axes(listed, count, place, counted)


def _are_axes(on: Evaluation, given: Given) -> Value:
    (listed, count), (place, counted) = given.values, given.spans
    return are_axes(listed, count, place, counted)


def _range(on: Evaluation, given: Given) -> Value:
    on.refuse_open(given)
    return list_range(given.values[0], given.values[1], given.span)


def _flatten(on: Evaluation, given: Given) -> Value:
    sizes = on.whole_sizes(given.values[1], given.spans[1])
    return on.flatten(given.values[0], sizes, given.spans[0])


def _unflatten(on: Evaluation, given: Given) -> Value:
    sizes = on.whole_sizes(given.values[1], given.spans[1])
    return on.unflatten(given.values[0], sizes, given.spans[0])


# The tables ------------------------------------------------------------------------------------

_SCALAR = (
    *(_scalar(o) for o in OPERATIONS.values() if o.symbol is None and not o.internal),
    Builtin("clamp", _numbers("clamp", 3), What.NUMBER, _clamp),
    Builtin(
        "stop_gradient",
        _numbers("stop_gradient", 1),
        What.NUMBER,
        lambda on, given: on.stop_gradient(given),
        says="gives its operand, with the derivative 0",
    ),
    Builtin("cast", _CAST, _cast_kind, _cast),
)
_OF_ARRAYS = (
    _array("length", NUMBER, "the number of entries", _length, "an array"),
    _array(
        "range", NUMBERS,
        "a, a + 1 and so on below b; `range(0, n)` inside `...` is the number of the axis",
        _range,
        "two whole numbers", "two whole numbers",
    ),
    _array(
        "other_axes", NUMBERS, "the axes of n that a does not list",
        _other_axes,
        "a compile-time array, such as [0, 2]", "a dimension count, second",
    ),
    _array(
        "are_axes", BOOL, "whether a lists axes of n dimensions, each once",
        _are_axes,
        "a compile-time array, such as [0, 2]", "a dimension count, second",
    ),
    _array(
        "inverse", NUMBERS, "where a permutation takes each axis",
        lambda on, given: invert_order(given.values[0], given.spans[0]),
        "a permutation, an array such as [1, 0]",
    ),
    _array(
        "flatten", NUMBER, "the number of a place, the last axis fastest", _flatten,
        "an array of positions, first", "an array of sizes, second",
    ),
    _array(
        "unflatten", NUMBERS, "the place of a number, an array", _unflatten,
        "a whole number, first", "an array of sizes, second",
    ),
)  # fmt: skip
_OF_TENSORS = (
    _moving("squeeze"),
    _moving("unsqueeze"),
    Builtin(
        "join",
        (Parameter(Takes.TENSORS, "'join' takes an array of tensors"), _AXIS),
        lambda given: ValueKind(What.UNKNOWN, Form.TENSOR),
        lambda on, given: on.join(given),
        ("'join' takes an array of tensors and an axis: join(x, axis: A)",),
    ),
    Builtin(
        "joined_sizes",
        (Parameter(Takes.TENSORS, "'joined_sizes' takes an array of tensors"), _AXIS),
        NUMBERS,
        lambda on, given: on.joined_sizes(given),
        ("'joined_sizes' takes an array of tensors and an axis: joined_sizes(x, axis: A)",),
    ),
    Builtin(
        "split",
        (_tensor("split"), _AXIS),
        lambda given: ValueKind(given.values[0].what, Form.UNKNOWN),
        lambda on, given: on.split(given),
        ("'split' takes a tensor and an axis: split(x, axis: A)",),
    ),
    Builtin(
        "present",
        (Parameter(Takes.TENSOR, "'present' takes the name of a tensor"),),
        BOOL,
        lambda on, given: on.is_present(given.values[0]),
    ),
    Builtin(
        "since",
        (Parameter(Takes.LEVEL, "'since' takes a feature level, such as DML_FEATURE_LEVEL_6_2"),),
        BOOL,
        lambda on, given: on.is_since(given.values[0]),
    ),
)
_GRADIENT = Builtin(
    "gradient",
    (_tensor("gradient"), dataclasses.replace(_tensor("gradient"), label="wrt")),
    lambda given: ValueKind(What.NUMBER, Form.TENSOR, ranks=given.values[1].ranks),
    lambda on, given: on.gradient(given),
    ("'gradient' takes a value and what to differentiate by", "as in gradient(loss, wrt: x)"),
)


def _by_name(entries: Iterable[Builtin]) -> Mapping[str, Builtin]:
    return {entry.name: entry for entry in entries}


SCALAR_FUNCTIONS = _by_name(_SCALAR)
ARRAY_FUNCTIONS = _by_name(_OF_ARRAYS)
FUNCTIONS = _by_name((*_SCALAR, *_OF_TENSORS, *_OF_ARRAYS))
"""Functions that formulas may call without declaring them, except reductions."""
GRAPH_FUNCTIONS = _by_name((*FUNCTIONS.values(), _GRADIENT))
"""Functions that graphs may call."""

REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(
    {
        r.name: r
        for r in (
            *(Reduction(c.name, not c.positional, c.accepts(DataType.BOOL))
              for c in COMBINERS.values()),
            Reduction("mean", folds=True, booleans=False),
        )
    }
)  # fmt: skip

BUILT_IN: tuple[str, ...] = tuple(dict.fromkeys((*SCALAR_FUNCTIONS, *REDUCTIONS, *GRAPH_FUNCTIONS)))
"""Names that no file may declare."""


def find_reduction(name: str, count: int, named: bool) -> Reduction | None:
    """Reduction that a call with `count` arguments denotes: `max(x, like: T)` is one, and `max(x,
    y)` is a function."""
    is_one = named or count == 1 or name not in SCALAR_FUNCTIONS
    return REDUCTIONS.get(name) if is_one else None


# Facts -----------------------------------------------------------------------------------------


class Described(Protocol):
    """Properties of named tensors in the binder. Raises `DmlcError` for an open one."""

    def dtype(self, name: str, span: Span | None) -> DataType: ...

    def sizes(self, name: str, span: Span | None) -> tuple[Value, ...]: ...

    def count(self, name: str, span: Span | None) -> Value: ...

    def strides(self, name: str, span: Span | None) -> tuple[Value, ...]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """Fact: a name after `T.`."""

    says: str
    gives: ValueKind
    evaluate: Callable[[Described, str, Span], Any]


FACTS: Mapping[str, Fact] = MappingProxyType(
    {
        "DataType": Fact("the data type", TYPE, lambda of, name, span: of.dtype(name, span)),
        "DimensionCount": Fact(
            "the number of dimensions", NUMBER, lambda of, name, span: len(of.sizes(name, span))
        ),
        "Sizes": Fact(
            "the sizes, an array with one for each dimension", NUMBERS,
            lambda of, name, span: of.sizes(name, span),
        ),
        "ElementCount": Fact(
            "the number of elements", NUMBER, lambda of, name, span: of.count(name, span)
        ),
        "Strides": Fact(
            "the strides in elements, an array with one for each dimension", NUMBERS,
            lambda of, name, span: of.strides(name, span),
        ),
    }
)  # fmt: skip
ARRAY_FACTS: Mapping[str, str] = MappingProxyType({"Count": "how many tensors the array has"})
"""Facts about an array of tensors, in words."""
SENTENCE_FACTS: tuple[str, ...] = ("DataType", "DimensionCount", "Sizes")
"""Facts that a sentence may equate."""
