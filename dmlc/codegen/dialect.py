"""Output language as data: a frozen set of total tables.

A dialect spells types, literals, operations, conversions, loads and stores. Every pair of operation
and type has an entry: a `Spelling`, or `Unsupported` with the reason.
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
    """Statement syntax: format strings with `{T}` for a type's name, `{x}` for the declared name,
    and `{i}` for a loop's counter."""

    local: str
    """Declaration of a constant local."""
    variable: str
    """Declaration of a variable local."""
    parameter: str
    """Parameter of a function."""
    function: str
    """Head of a function up to the start of its body, with the parameters `{given}`."""
    counter: str
    """Declaration of the counter, with its first value `{start}`."""
    increment: str
    countdown: str
    """Condition and rest of the head of a loop that counts down to `{start}`."""
    countdown_body: str
    """First statement in the body of such a loop, or empty."""
    array: str
    """Private array of `{n}` elements; `{aligned}` is its alignment, if any."""
    shared_array: str
    """Shared array of a group."""
    choice: tuple[str, str, str]
    """Choice `{c} ? {a} : {b}`, in three pieces between which a long line may be broken."""
    is_infix: bool
    """Whether a choice is an infix operator, and not a call."""
    vector: str
    """Vector type of `{n}` values of type `{T}`."""
    lanes: str
    """Vector of type `{T}` of the values `{a}`, one per lane."""
    repeated: str = "({T})({a})"
    """Vector of type `{T}` with the value `{a}` in each lane."""
    widens: bool = True
    """Whether a scalar converts implicitly to a vector."""
    vector_choice: tuple[str, str, str] | None = None
    """Choice with a condition per lane, if that is a call."""
    lane_letters: str = "xyzw"
    """Name of each lane after a vector and a dot."""
    lane_prefix: str = ""
    """Prefix of lane names."""
    precise: str = ""
    """Qualifier before declarations of floats, which forbids the compiler to reorder them."""
    aligned: str = ""
    """Alignment of an array to `{b}` bytes: vectors that cross a cache line are slow."""


def make_c_syntax(shared: str) -> Syntax:
    """Syntax of C-like languages, with the given qualifier for shared arrays."""
    return Syntax(
        local="const {T} {x}",
        variable="{T} {x}",
        parameter="const {T} {x}",
        function="{T} {x}({given})\n{{",
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
    """Buffer in the form of a template."""

    name: str
    tensor: str
    type: str
    dtype: str
    slot: int
    written: bool
    access: str


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarView:
    """Scalar argument in the form of a template."""

    name: str
    type: str
    slot: int
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True)
class SourceParts:
    """Parts of a file, for the details of one language's template."""

    buffers: tuple[BufferView, ...]
    scalars: tuple[ScalarView, ...]
    helpers: tuple[str, ...]
    """Names of the helper functions in it."""
    dtypes: frozenset[DataType]
    """Types of all values in it."""
    code: str
    """Text in which types occur that a compiler must know."""
    entry_point: str
    root_signature: bool
    """Whether the file has a root signature, since the host makes none."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MatrixForms:
    """Syntax of matrices held by a subgroup: `{m}` is one, and `{M}` its type."""

    declarations: str
    """Declarations before the entry point."""
    names: tuple[str, ...]
    """Names in the declarations."""
    type: str
    """Matrix type with elements `{S}` of `{bits}` bits, `{rows}` by `{columns}`, for the
    `{use}`."""
    uses: Mapping[Use, str]
    declare: str
    fill: str
    """Sets all elements to `{a}`."""
    layouts: tuple[str, str]
    """Names of the row-major and the column-major layout."""
    load: str
    """Loads from element `{e}`, at `{i}` of `{p}`, in the `{layout}`, with the leading dimension
    `{stride}`."""
    store: str
    multiply: str
    """Adds the product of `{left}` and `{right}` to `{m}`."""
    subgroup: str
    """Index of a subgroup in its group."""
    lanes: int
    """Largest number of lanes of the vectors that arrays consist of."""


FOUR = 4
"""Lanes of the longest named vector types."""


@dataclasses.dataclass(frozen=True, slots=True)
class Atomics:
    """Syntax of atomically changed words of buffers, where their type must say so."""

    type: str
    """Atomic type of a word of type `{T}`."""
    load: str
    """Value of the word `{e}`."""
    store: str
    """Store of the value `{a}` to a whole word `{e}`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Dialect of an output language."""

    language: Language
    template: str
    details: Callable[[SourceParts], Mapping[str, object]]
    """Values of the template beyond those that all templates have."""
    profiles: tuple[str, ...]
    """Names of its device profiles, the default first."""
    limits: Limits
    types: Mapping[DataType, str]
    """Names of the compute types. A vector type is this and its number of lanes."""
    index_types: Mapping[tuple[int, bool], str]
    """Names of the index types, by their bits and whether they are signed."""
    index_suffixes: Mapping[tuple[int, bool], str]
    """Suffix of a literal of that type."""
    wide_index: str
    """Form of a 64-bit index `{j}` in a subscript."""
    storage: Mapping[DataType, str | Unsupported]
    """Names of the storage types of buffers."""
    literal: Callable[[DataType, bool | int | float], str]
    """Constant of a compute type, on one line, that reads back equal."""
    operations: Mapping[tuple[str, DataType], Entry]
    """Operations by name and operand type."""
    masks: bool
    """Whether comparisons of vectors give integers, 0 or -1, instead of vectors of booleans."""
    maps_lanes: bool
    """Whether a scalar function is applied to vectors by a generated function that calls it per
    lane; otherwise a vector version is generated."""
    promoted: frozenset[DataType]
    """Types that a choice between two scalars is promoted from."""
    conversions: Mapping[tuple[DataType, DataType], Entry]
    """Conversions by compute types, from and to."""
    loads: Mapping[DataType, Spelling]
    """Loads. `{p}` is the buffer, `{i}` the index inside infix text, `{j}` the index by itself,
    `{at}` the address of both, `{n}` the number of lanes, and `{e}` the element as a subscript, or
    as many as there are lanes. If several elements share a word, `{e}` is the word, and `{h}` the
    element's first bit in it."""
    stores: Mapping[DataType, Spelling]
    """Stores: as loads, with `{a}` for the value, and `{h}` inside infix text."""
    packs: Mapping[DataType, Spelling]
    """Words that store four neighbours `{a}` which share words."""
    streaming: Mapping[DataType, Spelling]
    """Vector stores that may bypass the caches; `{f}` says whether they do. Empty if the language
    has none."""
    prefetches: Mapping[DataType, Spelling]
    """Prefetch hints for elements. Empty if no profile uses them."""
    halves: Mapping[DataType, Spelling]
    """Update of half `{h}` (0 or 1) of `{w}`, a word shared by two elements, to the value `{a}`,
    for the types that buffers store so."""
    helpers: Mapping[str, Helper]
    """Helper functions with a fixed text, by their keys."""
    zeros: Mapping[DataType, str]
    """Run-time zero by type: a zero whose value only the running kernel knows. It replaces literal
    zeros in arithmetic, where drivers would otherwise fold `x * 0` and `x / 0` whatever x is. Empty
    if compilers can be trusted with literals."""
    pin: Spelling | None
    """Form of `{a}`, a rounded float, that compilers must not recompute. None if they compute as
    written."""
    unpinned: Mapping[str, tuple[str, ...]]
    """Operations whose results are pinned as operands of others, each with the operations that take
    its result unpinned."""
    syntax: Syntax
    reinterpret: str
    """Bits of `{a}` as a value of type `{R}`, whose lanes are of type `{E}`."""
    elements: Spelling
    """Loads from an array: `{p}` is the array, `{i}` the index, `{at}` the address of both, `{n}`
    the number of lanes."""
    puts: Spelling
    """Stores to an array, with `{a}` for the value."""
    shuffles: Entry
    """Shuffle of the vectors `{a}` and `{b}` to the `{lanes}`, numbered from those of `{a}` on."""
    barrier: str
    memory_barriers: tuple[str, ...]
    """Barriers for items that wait for others' stores to buffers as well."""
    unroll: str
    """Unrolling hint before a loop, or empty; on the same line if it ends in a blank."""
    unroll_registers: str
    """Unrolling hint for a loop over arrays of registers."""
    until: str
    """Comparison of the counter of such a loop with its end while the loop goes on."""
    rolled: str
    """Hint against unrolling before a loop, or empty."""
    lead: str
    """Number of elements of buffer `{p}`, of `{s}` bytes each, before an address that is a multiple
    of `{n}` bytes, as an `{I}`. Empty if no profile streams."""
    positions: Mapping[str, str]
    """Index of the work group (`group`; `single` for groups of one work item; `rows` for groups in
    rows of `{row}`) and of the work item (`lane`), of type `{I}`; `signed group` and so on for
    signed indices, if their text differs."""
    scalar: str
    """Read of the scalar argument `{x}`."""
    reserved: Callable[[str], bool]
    """Whether a name is reserved by the language."""
    registers: bool
    """Whether read buffers and written buffers are numbered separately."""
    in_place: bool
    """Whether one buffer may be bound for reading and for writing at once."""
    entry_point: str | None
    """Name of the entry point, if it does not depend on the function."""
    shader_model: str
    """Shader model of HLSL; empty for other languages."""
    item: str
    """Word for a work item."""
    own_names: tuple[str, ...]
    """Names that the template uses."""
    matrices: MatrixForms | None = None
    """Syntax of matrices; None if kernels have none."""
    atomics: Atomics | None = None
    """Syntax of atomic words; None if every word of a buffer can be changed atomically."""
    shift_type: str = ""
    """Type of a shift's right operand; empty if it may be any integer."""

    words: Dialect | None = None
    """Dialect for buffers whose vectors have more lanes than `plain`."""
    plain: int = FOUR
    sharing: Dialect | None = None
    """Dialect for kernels whose work items share groups, if it differs."""

    @property
    def name(self) -> str:
        """Name of the language's target."""
        return self.language.target

    def declare(self, form: str, name: str, type_name: str, dtype: DataType) -> str:
        """Declaration of a local by a form of the syntax."""
        made = form.format(T=type_name, x=name)
        return self.syntax.precise + made if dtype.is_float else made

    def begin_function(self, result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
        """Head of a function, from its result type, its name, and the type and name of each
        parameter."""
        given = ", ".join(self.syntax.parameter.format(T=t, x=x) for t, x in parameters)
        return self.syntax.function.format(T=result, x=name, given=given)

    def of_buffer(self, buffer: k.Buffer) -> Dialect:
        """Dialect of a buffer."""
        return self.words if buffer.lanes > self.plain and self.words is not None else self

    def of_profile(self, profile: Profile) -> Dialect:
        """Dialect of the kernels for a device profile."""
        return self.sharing if profile.grouped and self.sharing is not None else self


COMPUTE_TYPES: tuple[DataType, ...] = tuple(t for t in TENSOR_TYPES if not t.is_storage_only)
"""Compute types."""

INTEGERS: tuple[DataType, ...] = tuple(t for t in COMPUTE_TYPES if t.is_integer)


INFIX: Mapping[str, str] = MappingProxyType(
    {o.name: o.infix for o in OPERATIONS.values() if o.infix is not None}
)
"""Infix operators that all of the languages write as C does, for the types on which they mean the
same."""


def operation_pairs() -> tuple[tuple[str, DataType], ...]:
    """Pairs of operation and operand type that a dialect's table covers."""
    return tuple(
        (operation.name, dtype)
        for operation in OPERATIONS.values()
        for dtype in (*COMPUTE_TYPES, DataType.INDEX)
        if operation.operands.accept(dtype)
    )


def _spell_call(function: str, arity: int) -> str:
    """Call of a function of up to three operands."""
    return f"{function}({', '.join(('{a}', '{b}', '{c}')[:arity])})"


def spell_float(operation: Record, spelled: Spelled | None, dtype: DataType) -> Entry:
    """Entry of an operation on floats, from its record's spelling for a language."""
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
    """Total table of operations from a spelling function."""
    return MappingProxyType({pair: spell(*pair) for pair in operation_pairs()})


def make_conversions(
    spell: Callable[[DataType, DataType], Entry],
) -> Mapping[tuple[DataType, DataType], Entry]:
    """Total table of conversions between compute types from a spelling function."""
    pairs = ((a, b) for a in COMPUTE_TYPES for b in COMPUTE_TYPES if a is not b)
    return MappingProxyType({(a, b): spell(a, b) for a, b in pairs})
