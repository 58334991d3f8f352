"""What an output language is, as data: a frozen set of total tables.

A dialect spells types, literals, operations, conversions, loads and stores. Every pair of
operation and type has an entry: a `Spelling`, or `Unsupported` with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dmlc.codegen.functions import Helper
from dmlc.codegen.trace import write_out
from dmlc.kernel import nodes as k
from dmlc.kernel.nodes import Use
from dmlc.kernel.target import Limits, Profile
from dmlc.program import Language
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, DataType, Record
from dmlc.scalars.operation import Entry, Spelled, Spelling, Unsupported, Way


@dataclasses.dataclass(frozen=True, slots=True)
class Syntax:
    """How statements are put together: format strings, in which `{T}` is a type's name, `{x}` the
    name of what is declared, and `{i}` a loop's counter."""

    counter: str
    """Its declaration, with the `{start}` it has first."""
    increment: str
    countdown: str
    """The condition of a loop that goes backwards to `{start}`, and what is left of the head."""
    countdown_body: str
    """What stands first in the body of such a loop, if anything."""
    array: str
    """Of `{n}` elements, a work item's own; `{aligned}` is an alignment, if it has one."""
    shared_array: str
    """The same, shared by its group."""
    choice: tuple[str, str, str]
    """`{c} ? {a} : {b}`, in three pieces where a long line may be broken."""
    is_infix: bool
    """Whether a choice is infix text, and not a call."""
    vector: str
    """The name of the type of `{n}` values of type `{T}`."""
    lanes: str
    """A vector of type `{T}` of the values `{a}`, one for each lane."""
    repeated: str = "({T})({a})"
    """A vector of type `{T}` that has the value `{a}` in each lane."""
    widens: bool = True
    """Whether a vector is made of a single value where one is expected."""
    vector_choice: tuple[str, str, str] | None = None
    """The same as `choice` where each lane has a condition of its own, if that is a call."""
    lane_letters: str = "xyzw"
    """What stands for each lane behind a vector and a point."""
    lane_prefix: str = ""
    """What stands before these."""
    aligned: str = ""
    """What gives an array an alignment of `{b}` bytes: vectors that cross a cache line are slow."""


def make_c_syntax(shared: str) -> Syntax:
    """That of languages like C, in which arrays that a group shares begin with a word."""
    return Syntax(
        counter="{T} {i} = {start}",
        increment="++{i}",
        countdown="{i}-- > {start};",
        countdown_body="",
        array="{T} {x}[{n}]{aligned};",
        shared_array=shared + " {T} {x}[{n}]{aligned};",
        choice=("{c}", "? {a}", ": {b}"),
        is_infix=True,
        vector="{T}{n}",
        lanes="({T})({a})",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class BufferView:
    """A buffer as a template shows it."""

    name: str
    tensor: str
    type: str
    dtype: str
    slot: int
    written: bool
    access: str


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarView:
    """A scalar argument as a template shows it."""

    name: str
    type: str
    slot: int
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True)
class SourceParts:
    """What a file is made of, for what only one language's template shows."""

    buffers: tuple[BufferView, ...]
    scalars: tuple[ScalarView, ...]
    helpers: tuple[str, ...]
    """The names of the helper functions in it."""
    dtypes: frozenset[DataType]
    """Every type that values have."""
    code: str
    """All text that a compiler would read types in."""
    entry_point: str
    root_signature: bool
    """Whether the host makes none of its own."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MatrixForms:
    """How matrices are written that a subgroup holds: `{m}` is one, and `{M}` its type."""

    declarations: str
    """What the rest needs, before the entry point."""
    names: tuple[str, ...]
    """The names in it."""
    type: str
    """Of elements `{S}` of so many `{bits}`, `{rows}` by `{columns}`, for the `{use}`."""
    uses: Mapping[Use, str]
    declare: str
    fill: str
    """All elements become `{a}`."""
    layouts: tuple[str, str]
    """Of what lies row by row, and column by column."""
    load: str
    """From the element `{e}` on, which `{p}` has at `{i}`, in the `{layout}`, `{stride}` apart."""
    store: str
    multiply: str
    """`{m}` takes `{left}` by `{right}` in addition."""
    subgroup: str
    """The number of a subgroup in its group."""
    lanes: int
    """The lanes of the vectors that arrays are made of, at most."""


FOUR = 4
"""The lanes of vectors that languages have names for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Atomics:
    """Words of buffers that are changed atomically, where their type says so."""

    type: str
    """The type of a word that is a `{T}`."""
    load: str
    """The value of the word `{e}`."""
    store: str
    """A whole word `{e}` that is stored: `{a}`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One way to write an output language."""

    language: Language
    template: str
    details: Callable[[SourceParts], Mapping[str, object]]
    """What the template shows besides what all templates do."""
    profiles: tuple[str, ...]
    """Names of the device profiles it has, the default first."""
    limits: Limits
    types: Mapping[DataType, str]
    """Names of the types values are computed in. A vector's is this and its number of lanes."""
    index_types: Mapping[tuple[int, bool], str]
    """Names of the types of positions, by their bits and whether they are signed."""
    index_suffixes: Mapping[tuple[int, bool], str]
    """What gives a literal that type."""
    wide_index: str
    """How a position `{j}` of 64 bits is written where an element is picked."""
    storage: Mapping[DataType, str | Unsupported]
    """Names of the types that buffers hold."""
    literal: Callable[[DataType, bool | int | float], str]
    """A constant of a compute type, on one line, that reads back equal."""
    operations: Mapping[tuple[str, DataType], Entry]
    """By operation and operand type."""
    masks: bool
    """Whether comparisons of vectors give integers, 0 or -1, and not vectors of booleans."""
    maps_lanes: bool
    """Whether a function that is written for one value is called for each lane of a vector, by
    another one that is written out; if not, it is written out for vectors."""
    promoted: frozenset[DataType]
    """The types of which a choice between two scalars is taken for one of a wider type."""
    conversions: Mapping[tuple[DataType, DataType], Entry]
    """By compute types, from and to."""
    loads: Mapping[DataType, Spelling]
    """`{p}` is the buffer, `{i}` the index inside infix text, `{j}` the index by itself, `{at}` the
    address of both, `{n}` the number of lanes, and `{e}` the element as an array has it, or as many
    as there are lanes. Where several elements share a word, `{e}` is the word, and `{h}` the bit at
    which the element begins in it."""
    stores: Mapping[DataType, Spelling]
    """The same, with `{a}` for the value, and `{h}` inside infix text."""
    packs: Mapping[DataType, Spelling]
    """The words of four neighbours `{a}` that share some: what is stored of them."""
    streaming: Mapping[DataType, Spelling]
    """Vector stores that may pass the caches by; `{f}` says whether they do. Empty where the
    language has none."""
    prefetches: Mapping[DataType, Spelling]
    """The hint that an element is read soon. Empty where no profile gives it."""
    halves: Mapping[DataType, Spelling]
    """How `{w}`, a word that two elements share, takes the value `{a}` as its half `{h}` (0 or 1):
    for the types that buffers hold so."""
    helpers: Mapping[str, Helper]
    """The functions that are text, by their keys."""
    zeros: Mapping[DataType, str]
    """A zero that only the running kernel knows to be one, by type: what a literal zero becomes in
    arithmetic, where drivers would otherwise fold `x * 0` and `x / 0` whatever x is. Empty where
    compilers can be trusted with literals."""
    pin: Spelling | None
    """How `{a}`, a float that was rounded, is kept as it is. None where compilers compute as
    written."""
    unpinned: Mapping[str, tuple[str, ...]]
    """The operations that are pinned where others take what they give, and what may take it as it
    is all the same."""
    syntax: Syntax
    local: Callable[[str, str, DataType], str]
    """The declaration of a constant local, from its name, and its type's name and kind."""
    variable: Callable[[str, str, DataType], str]
    """The same of a local that changes."""
    function: Callable[[str, str, Sequence[tuple[str, str]]], str]
    """The head of a function, and what opens its body: from the type's name of its result, its
    name, and the type's name and the name of each parameter."""
    reinterpret: str
    """The bits of `{a}` as a value of type `{R}`, whose lanes are of type `{E}`."""
    elements: Spelling
    """An array's: `{p}` is the array, `{i}` the index, `{at}` the address of both, `{n}` the number
    of lanes."""
    puts: Spelling
    """The same, with `{a}` for the value."""
    shuffles: Entry
    """A vector of `{lanes}` of the vectors `{a}` and `{b}`, numbered from those of `{a}` on."""
    barrier: str
    memory_barriers: tuple[str, ...]
    """What stands instead where items wait for what others stored to buffers, too."""
    unroll: str
    """What stands before a loop that should be unrolled, if anything; beside it, where a blank ends
    that."""
    unroll_registers: str
    """The same of one that goes over arrays of registers."""
    until: str
    """How the counter of such a loop compares with its end while the loop goes on."""
    rolled: str
    """What stands before a loop that should not be, if anything."""
    lead: str
    """The elements of buffer `{p}`, of `{s}` bytes each, before an address that is a multiple of
    `{n}` bytes, as a `{I}`. Empty where no profile streams."""
    positions: Mapping[str, str]
    """The work group's number (`group`; `single` where groups hold one work item; `rows` where
    they are laid out in rows of `{row}`) and the work item's (`lane`), of type `{I}`; `signed
    group` and so on, where it is another text for signed positions."""
    scalar: str
    """How the scalar argument `{x}` is read."""
    reserved: Callable[[str], bool]
    """Whether the language keeps a name for itself."""
    registers: bool
    """Buffers that are read and buffers that are written are numbered each by themselves."""
    in_place: bool
    """One buffer may be bound for reading and for writing at once."""
    entry_point: str | None
    """The entry point's name, where it does not depend on the function."""
    shader_model: str
    """Of HLSL; empty elsewhere."""
    item: str
    """What one of the many that run at once is called."""
    own_names: tuple[str, ...]
    """Names that the template uses."""
    matrices: MatrixForms | None = None
    """None where kernels have no matrices."""
    atomics: Atomics | None = None
    """None where any word of a buffer is changed atomically."""
    shift_type: str = ""
    """The type that a position is made to shift by it; empty where any integer does."""

    words: Dialect | None = None
    """How buffers are written whose vectors have more lanes than `plain`."""
    plain: int = FOUR
    sharing: Dialect | None = None
    """How kernels are written whose work items share groups, where that is another way."""

    @property
    def name(self) -> str:
        """The target that the language is."""
        return self.language.target

    def of_buffer(self, buffer: k.Buffer) -> Dialect:
        """How a buffer is written."""
        return self.words if buffer.lanes > self.plain and self.words is not None else self

    def of_profile(self, profile: Profile) -> Dialect:
        """How kernels are written for a kind of device."""
        return self.sharing if profile.group_size > 1 and self.sharing is not None else self


COMPUTE_TYPES: tuple[DataType, ...] = tuple(t for t in TENSOR_TYPES if not t.is_storage_only)
"""The types values are computed in."""

INTEGERS: tuple[DataType, ...] = tuple(t for t in COMPUTE_TYPES if t.is_integer)


INFIX: Mapping[str, str] = MappingProxyType(
    {o.name: o.infix for o in OPERATIONS.values() if o.infix is not None}
)
"""What all of the languages write as C does, where it means the same."""


def operation_pairs() -> tuple[tuple[str, DataType], ...]:
    """Every operation with every type its operands may have: what a dialect's table covers."""
    return tuple(
        (operation.name, dtype)
        for operation in OPERATIONS.values()
        for dtype in (*COMPUTE_TYPES, DataType.INDEX)
        if operation.operands.accept(dtype)
    )


def _spell_call(function: str, arity: int) -> str:
    """A call of a function of up to three operands."""
    return f"{function}({', '.join(('{a}', '{b}', '{c}')[:arity])})"


def spell_float(operation: Record, spelled: Spelled | None, dtype: DataType) -> Entry:
    """An operation on floats of a type, as its record says for a language."""
    single = dtype is DataType.FLOAT32
    way = spelled if not isinstance(spelled, tuple) else spelled[0 if single else 1]
    name, arity = operation.name, operation.arity
    match way:
        case None:
            return Unsupported(f"'{name}' takes no floats")
        case Way.INFIX:
            return Spelling(INFIX[name], compound=True)
        case Way.CALL:
            return Spelling(_spell_call(name, arity))
        case Way.HELPER:
            return Spelling(_spell_call("{H}", arity), helper=name)
        case Way.ROUTINE:
            routine = operation.float32 if single else operation.float64
            if routine is None:
                return Unsupported(f"the record of '{name}' has no routine of {dtype.name}")
            return Spelling(_spell_call("{H}", arity), helper=write_out(routine))
        case _:
            return way


def make_table(
    spell: Callable[[str, DataType], Entry],
) -> Mapping[tuple[str, DataType], Entry]:
    """The total table of operations that a function spells."""
    return MappingProxyType({pair: spell(*pair) for pair in operation_pairs()})


def make_conversions(
    spell: Callable[[DataType, DataType], Entry],
) -> Mapping[tuple[DataType, DataType], Entry]:
    """The total table of conversions between compute types that a function spells."""
    pairs = ((a, b) for a in COMPUTE_TYPES for b in COMPUTE_TYPES if a is not b)
    return MappingProxyType({(a, b): spell(a, b) for a, b in pairs})
