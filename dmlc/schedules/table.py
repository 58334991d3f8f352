"""The schedule table: parameters of rules by kernel class, type and size, for classes of devices.

    device nvidia.sm_90              // what follows is for it, and wins over what is for nvidia
      fact subgroup 32               // what is known of the device: the model of times takes it
    row product FLOAT32 2^20..       // products of 2^20 outputs and more
      tile 128 128 8 8 ahead         // and the numbers that rules take for them
    row column_reduction any any reorders; columns 16

`table.txt` beside this module ships with dmlc; a user's file has the same syntax, and its rows go
first. A device also has the rows of the classes above it: `nvidia.sm_90` those of `nvidia`, then
those of `gpu`. One row applies to a kernel: that of the nearest class; then one for its type rather
than for `any`; then that for the narrower range of sizes.

A row whose parameters may change the order of a sum says `reorders`. No device is queried: the same
input and table make the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dmlc.kernel.target import PROFILES, Profile, Row, find_profile
from dmlc.loops.script import ScheduleError, list_lines
from dmlc.scalars import TENSOR_TYPES, DataType
from dmlc.source import Diagnostic, Note, Source, Span, check_known, find_named

KINDS = {
    "product": "sums of products with rows and columns: matrix products, attention's included",
    "convolution": "the same over windows: convolutions and their gradients",
    "skinny_product": "sums of products of few rows or columns, on GPUs: at most 16, or 32 of both",
    "row_reduction": "reductions whose points lie side by side: softmax, layer normalization",
    "column_reduction": "reductions whose outputs do: batch normalization of NHWC, sums of rows",
    "elementwise": "everything without a reduction",
    "scan": "cumulative sums and products",
    "sort": "sorts and top-k",
}
"""Descriptions of the kernel classes."""
_NAMES = tuple(name for profile in PROFILES for name in (*profile.classes, profile.name))
"""Names of devices that tables may have lines for, apart from architectures."""
_SUMS = frozenset(KINDS) - {"elementwise", "sort"}
_FOLDS = frozenset({"row_reduction", "column_reduction"})
_PRODUCTS = frozenset({"product", "convolution"})


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A parameter of rules: a field of `Profile`."""

    name: str
    kinds: Mapping[str, frozenset[str]]
    """Kernel classes that it affects, by profile."""
    least: int
    most: int
    reorders: frozenset[str]
    """Kernel classes in which it may change the order of sums."""
    usage: str = "N"
    read: Callable[[Sequence[str]], tuple[int, ...]] | None = None
    """Parser of values other than a single power of two. Raises `ValueError` with the reason."""


_ANY_SIDE = {4, 8}
_SHARED_BYTES = 1 << 14
"""Shared memory of a group that every device has, in bytes."""
_LEAST_ITEMS, _MOST_ITEMS = 32, 256


def _read_tile(words: Sequence[str]) -> tuple[int, ...]:
    """ROWS COLUMNS EACH DEPTH [ahead]."""
    *numbers, last = words
    ahead = last == "ahead"
    values = _read_integers(numbers if ahead else words, 4)
    rows, columns, each, depth = values
    if any(n & (n - 1) for n in values):
        raise ValueError("all of its numbers are powers of two")
    if each not in _ANY_SIDE:
        raise ValueError("a work item has 4 by 4 outputs, or 8 by 8")
    if not 4 <= depth <= 64:
        raise ValueError("a tile has 4 to 64 points")
    items = rows // each * (columns // each)
    if not _LEAST_ITEMS <= items <= _MOST_ITEMS or min(rows, columns) < each:
        raise ValueError(
            f"it takes {items} work items, and groups have {_LEAST_ITEMS} to {_MOST_ITEMS}"
        )
    padded = depth if ahead else depth + 4
    taken = 4 * (rows + columns) * padded * (2 if ahead else 1)
    if taken > _SHARED_BYTES:
        raise ValueError(
            f"it takes {taken:,} bytes of shared memory, and every device has {_SHARED_BYTES:,}"
        )
    return (*values, int(ahead))


def _read_panel(words: Sequence[str]) -> tuple[int, ...]:
    """ROWS COLUMNS DEPTH."""
    values = _read_integers(words, 3)
    if not all(16 <= n <= 4096 for n in values):
        raise ValueError("its numbers are 16 to 4,096")
    return values


def _read_integers(words: Sequence[str], count: int) -> tuple[int, ...]:
    if len(words) != count or not all(re.fullmatch(r"[1-9][0-9]{0,9}", word) for word in words):
        raise ValueError(f"it takes {count} whole numbers")
    return tuple(map(int, words))


def _gpu(*kinds: str) -> dict[str, frozenset[str]]:
    return {"gpu": frozenset(kinds)}


def _both(gpu: frozenset[str], cpu: frozenset[str]) -> dict[str, frozenset[str]]:
    return {"gpu": gpu, "cpu": cpu}


_NONE: frozenset[str] = frozenset()
NUMBERS = {
    number.name: number
    for number in (
        Number("tile", {"gpu": _PRODUCTS}, 0, 0, _NONE, "ROWS COLUMNS EACH DEPTH [ahead]",
               _read_tile),
        Number("panel", {"cpu": _PRODUCTS}, 0, 0, _PRODUCTS, "ROWS COLUMNS DEPTH", _read_panel),
        Number("group_size", _gpu("elementwise", "scan", "sort", *_FOLDS), 32, 256, _SUMS),
        Number("vectors", _gpu("elementwise"), 1, 8, _NONE),
        Number("per_item", _both(frozenset({"elementwise"}), _FOLDS | {"elementwise"}),
               1, 1 << 20, _FOLDS),
        Number("columns", _gpu("column_reduction"), 8, 128, _FOLDS),
        Number("points", _gpu(*_FOLDS), 1, 16, _FOLDS),
        Number("fill", _gpu("elementwise", *_FOLDS), 16, 1 << 14, _FOLDS),
        Number("piece", _both(_FOLDS, _FOLDS), 256, 1 << 20, _FOLDS),
        Number("groups", _both(frozenset(KINDS), _SUMS - {"skinny_product"}), 1, 4096, _SUMS),
    )
}  # fmt: skip
"""Parameters of rows."""

FACTS = {
    "subgroup": "work items that run together",
    "units": "SMs, compute units, or cores, of a typical device",
    "threads": "work items that a unit can hold",
    "registers": "registers of 32 bits that a unit has",
    "shared": "bytes of shared memory of a unit",
    "bandwidth": "10^9 bytes a second that a copy moves",
    "cached": "bytes of the cache that all units share",
    "rate": "10^9 instructions of a lane a second, of all units",
}
"""Descriptions of the facts about a device."""

_DEVICE, _FACT, _ROW, _REORDERS, _ANY = "device", "fact", "row", "reorders", "any"
_TYPES = {dtype.name: dtype for dtype in TENSOR_TYPES}
_NAME = re.compile(r"[a-z]+(\.[a-z0-9_]+)?")
_SIZES = re.compile(r"2\^(?P<first>[0-9]{1,2})(?P<on>\.\.(2\^(?P<last>[0-9]{1,2}))?)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A parsed table."""

    devices: tuple[str, ...]
    """Devices that it has lines for."""
    rows: tuple[Row, ...]
    facts: Mapping[str, Mapping[str, int]]
    """Facts by device, then by name."""

    def find_facts(self, device: str) -> dict[str, int]:
        """Facts about a device: its own, or else those of the class above it."""
        found: dict[str, int] = {}
        for level in list_levels(device):
            found = {**self.facts.get(level, {}), **found}
        return found


@functools.cache
def read_table() -> Table:
    """The table that ships with dmlc."""
    path = Path(__file__).with_name("table.txt")
    return parse_table(Source(path.name, path.read_text(encoding="utf-8")))


def list_devices() -> tuple[str, ...]:
    """Device classes of the table, with their architectures."""
    return read_table().devices


def list_levels(device: str) -> tuple[str, ...]:
    """A device and the classes above it, the nearest first: `nvidia.sm_90`, `nvidia`, `gpu`."""
    first, _, below = device.partition(".")
    roots = (profile.name for profile in PROFILES if first in profile.classes)
    return (device, *([first] if below else []), *roots)


def find_root(device: str) -> str:
    """Profile of a device class."""
    return list_levels(device)[-1]


def choose_profile(
    name: str | None, usual: str, gpu_class: str | None, own: Source | None
) -> Profile:
    """Profile named `name`, or else that of a device class, or else the `usual` one, with the rows
    of the table for the class; rows of the caller's table `own` go first. Without a class, the rows
    are those for the profile.

    Raises `UnknownNameError` for an unknown profile, and `ScheduleError` for a class that is
    unknown or for another profile, and for a table with mistakes or without lines for the class.
    """
    given = None if own is None else parse_table(own)
    if gpu_class is not None:
        known = dict.fromkeys((*list_devices(), *(() if given is None else given.devices)))
        classes = [device for device in known if find_profile(find_root(device)).grouped]
        check_known("GPU class", classes, gpu_class, error=ScheduleError)
    profile = find_profile(name or (usual if gpu_class is None else find_root(gpu_class)))
    if gpu_class is not None and not profile.grouped:
        raise ScheduleError(
            f"'{gpu_class}' is a class of GPUs, and kernels for the profile '{profile.name}' are "
            "asked for",
            notes=[f"leave the class out, or ask for the profile '{find_root(gpu_class)}'"],
        )
    device = profile.name if gpu_class is None else gpu_class
    tables = [*([] if given is None else [given]), read_table()]
    rows = tuple(row for table in tables for row in _order(table.rows, device))
    if given is not None and not _order(given.rows, device):
        there = ", ".join(dict.fromkeys(row.device for row in given.rows))
        raise ScheduleError(
            f"'{own.name if own else ''}' has "
            + (f"rows for {there}, and none for {device}" if there else "no rows"),
            notes=[f"name the class that they are for: --gpu-class {there.partition(',')[0]}"]
            if there and there != "cpu"
            else ["rows for CPUs serve kernels of the profile 'cpu'"]
            if there
            else [],
        )
    if gpu_class is None and not rows:
        return profile
    return dataclasses.replace(profile, device_class=gpu_class or "", rows=rows)


def _order(rows: Sequence[Row], device: str) -> list[Row]:
    """Rows for a device, in order of precedence."""
    levels = list_levels(device)

    def rank(row: Row) -> tuple[int, bool, int, int]:
        last = 64 if row.last is None else row.last
        return (levels.index(row.device), row.dtype is None, last - row.first, -row.first)

    return sorted((row for row in rows if row.device in levels), key=rank)


# Text -----------------------------------------------------------------------------------------


def parse_table(source: Source) -> Table:
    """Table from its text. Raises `ScheduleError` with the location and the cure of each
    mistake."""
    return _Reader(source).read()


@dataclasses.dataclass(slots=True)
class _Draft:
    """A row whose lines are being read."""

    row: Row
    reorders: bool
    numbers: dict[str, tuple[int | tuple[int, ...], Span, str]] = dataclasses.field(
        default_factory=dict[str, tuple["int | tuple[int, ...]", Span, str]]
    )


class _Reader:
    """Parser of a table's lines."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._device = ""
        self._devices: dict[str, None] = {}
        self._facts: dict[str, dict[str, int]] = {}
        self._drafts: list[_Draft] = []
        self._draft: _Draft | None = None
        """Row that the current lines belong to."""
        self._wrong: list[Diagnostic] = []

    def read(self) -> Table:
        for line in list_lines(self._source):
            try:
                self._read_line(line)
            except ScheduleError as error:
                self._wrong += error.diagnostics
        rows: list[Row] = []
        for draft in self._drafts:
            try:
                rows.append(self._finish(draft, rows))
            except ScheduleError as error:
                self._wrong += error.diagnostics
        if self._wrong:
            raise ScheduleError(self._wrong)
        return Table(tuple(self._devices), tuple(rows), self._facts)

    def _read_line(self, line: Span) -> None:
        word, *rest = line.text.split()
        if word == _DEVICE:
            self._begin_device(rest, line)
        elif not self._device:
            raise _refuse(line, f"'{word}' stands before any device", "begin with: device gpu")
        elif word == _FACT:
            self._add_fact(rest, line)
        elif word == _ROW:
            self._begin_row(rest, line)
        elif self._draft is None:
            check_known("line", (_DEVICE, _FACT, _ROW), word, span=line, error=ScheduleError)
        else:
            self._add_number(self._draft, word, rest, line)

    def _begin_device(self, rest: Sequence[str], line: Span) -> None:
        (name,) = rest if len(rest) == 1 else [""]
        if not _NAME.fullmatch(name):
            raise _refuse(
                line, "expected 'device NAME'", "a class, or CLASS.ARCHITECTURE in small letters"
            )
        first = name.partition(".")[0]
        check_known("device class", _NAMES, first, span=line, error=ScheduleError)
        self._devices[name] = None
        self._device, self._draft = name, None

    def _add_fact(self, rest: Sequence[str], line: Span) -> None:
        name, value = rest if len(rest) == 2 else ("", "")
        if not re.fullmatch(r"[1-9][0-9]{0,11}", value):
            raise _refuse(line, "expected 'fact NAME NUMBER'", f"names: {', '.join(FACTS)}")
        check_known("fact", FACTS, name, span=line, error=ScheduleError)
        self._facts.setdefault(self._device, {})[name] = int(value)

    def _begin_row(self, rest: Sequence[str], line: Span) -> None:
        self._draft = None
        if len(rest) not in (3, 4) or rest[3:] not in ([], [_REORDERS]):
            raise _refuse(
                line, f"expected 'row CLASS TYPE SIZES' or 'row CLASS TYPE SIZES {_REORDERS}'",
                "as in: row product FLOAT32 2^20.., or: row elementwise any any",
            )  # fmt: skip
        kind, dtype, sizes = rest[:3]
        check_known("kernel class", KINDS, kind, span=line, error=ScheduleError)
        check_known("data type", (*_TYPES, _ANY), dtype, span=line, error=ScheduleError)
        first, last = _read_sizes(sizes, line)
        head = f"{self._device} {kind} {dtype} {sizes}"
        row = Row(self._device, kind, _TYPES.get(dtype), first, last, (), head, line)
        self._draft = _Draft(row, len(rest) == 4)
        self._drafts.append(self._draft)

    def _add_number(self, draft: _Draft, name: str, words: Sequence[str], line: Span) -> None:
        root, kind = find_root(self._device), draft.row.kind
        fitting = {n.name: n for n in NUMBERS.values() if kind in n.kinds.get(root, ())}
        what = f"number of a {kind} on a {root}"
        number = find_named(what, name, fitting, line, error=ScheduleError)
        if name in draft.numbers:
            raise ScheduleError(f"'{name}' is given twice", line)
        try:
            value = _read_number(number, words)
        except ValueError as error:
            raise _refuse(line, f"{name}: {error}", f"write: {name} {number.usage}") from None
        draft.numbers[name] = value, line, line.text

    def _finish(self, draft: _Draft, before: Sequence[Row]) -> Row:
        """Row from all of its lines."""
        row = draft.row
        if not draft.numbers:
            raise _refuse(row.span, "the row has no numbers", "give some below it, or delete it")
        changing = [n for n in draft.numbers if row.kind in NUMBERS[n].reorders]
        if changing and not draft.reorders:
            raise _refuse(
                row.span, f"{' and '.join(changing)} may change the order of sums",
                f"say so at the end of the line: {_REORDERS}",
            )  # fmt: skip
        if draft.reorders and not changing:
            raise _refuse(
                row.span, "no number of the row changes the order of a sum",
                f"delete '{_REORDERS}'",
            )  # fmt: skip
        for other in before:
            keys = [(r.device, r.kind, r.dtype, r.first, r.last) for r in (row, other)]
            if keys[0] == keys[1]:
                notes = (Note("the first", other.span),)
                raise ScheduleError(Diagnostic("there are two such rows", row.span, notes))
        said = "; ".join(" ".join(text.split()) for _, _, text in draft.numbers.values())
        text = f"{row.text}: {said}" + (f" ({_REORDERS} sums)" if changing else "")
        numbers = tuple((name, value) for name, (value, _, _) in draft.numbers.items())
        return dataclasses.replace(row, numbers=numbers, text=text)


def _read_sizes(text: str, line: Span) -> tuple[int, int | None]:
    """Powers of two at which a range of sizes starts and ends."""
    if text == _ANY:
        return 0, None
    match = _SIZES.fullmatch(text)
    first = int(match["first"]) if match else 0
    last = int(match["last"]) if match and match["last"] else first + 1
    if match is None or last <= first or last > 63:
        raise _refuse(
            line, f"'{text}' are no sizes",
            "2^20 are those from 2^20 on and below 2^21; 2^20..2^24 those below 2^24; 2^20.. all "
            "from there; any: all, and those known at run time only",
        )  # fmt: skip
    return first, None if match["on"] and not match["last"] else last


def _read_number(number: Number, words: Sequence[str]) -> int | tuple[int, ...]:
    if number.read is not None:
        if not words:
            raise ValueError("it takes numbers")
        return number.read(words)
    (value,) = _read_integers(words, 1)
    if value & (value - 1) or not number.least <= value <= number.most:
        raise ValueError(f"it is a power of two from {number.least:,} to {number.most:,}")
    return value


def _refuse(line: Span, message: str, cure: str) -> ScheduleError:
    return ScheduleError(message, line, [cure])


def print_row(row: Row) -> str:
    """Row as in a file, without its device."""
    head, _, numbers = row.text.partition(": ")
    said = numbers.removesuffix(f" ({_REORDERS} sums)")
    _, *words = head.split()
    end = f" {_REORDERS}" if said != numbers else ""
    lines = [f"{_ROW} {' '.join(words)}{end}", *(f"  {each}" for each in said.split("; "))]
    return "\n".join(lines)


def name_type(dtype: DataType | None) -> str:
    """A row's type as in a table."""
    return _ANY if dtype is None else dtype.name
