"""What the built-in operators do, by task, and what others call the same.

The facts are a table beside this module, a row for each thing that is done. It is read when it is
first asked for.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

from dmlc.source import join_words

_TABLE = Path(__file__).resolve().parent / "equivalents.csv"
_MOST = 3
FAMILIES = ("directml", "onednn", "training")
"""The families of the library. The table has a column for each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One thing that operators do."""

    task: str
    """The kind of work that it is a part of: "Pooling"."""
    what: str
    operators: tuple[str, ...]
    """Those of the library that do it, by qualified name."""
    onnx: tuple[str, ...]
    """What ONNX calls it."""
    pytorch: tuple[str, ...]
    """What PyTorch calls it, from `torch` on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it is called."""
        return (*self.operators, *(f"onnx.{name}" for name in self.onnx), *self.pytorch)


@functools.cache
def list_operations() -> tuple[Operation, ...]:
    """All that the library does, task by task."""
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return tuple(map(_read, csv.DictReader(lines)))


def list_other_names(operator: str) -> tuple[str, ...]:
    """What others call what the operator of that qualified name does: operators of the library,
    `onnx.NAME`, and functions of PyTorch."""
    found = [o.names for o in list_operations() if operator in o.operators]
    names = dict.fromkeys(name for each in found for name in each)
    return tuple(name for name in names if name != operator)


def suggest_operators(name: str) -> str | None:
    """What is meant by a name that ONNX, PyTorch or another family has for what the library does:
    the operators that do it, of the family that the name says where there are some. None for a name
    that nobody has."""
    family, _, own = name.rpartition(".")
    meant = _fold(own)
    found = [
        operator
        for operation in list_operations()
        if any(_fold(known.rpartition(".")[2]) == meant for known in operation.names)
        for operator in operation.operators
    ]
    found = [o for o in found if o.startswith(f"{family}.")] or found
    if not found or name in found:
        return None
    shown = join_words([f"'{o}'" for o in dict.fromkeys(found[:_MOST])])
    return f"did you mean {shown}?"


def _fold(name: str) -> str:
    return name.replace("_", "").lower()


def _read(row: dict[str, str]) -> Operation:
    return Operation(
        task=row["task"],
        what=row["what"],
        operators=tuple(f"{family}.{name}" for family in FAMILIES for name in row[family].split()),
        onnx=tuple(row["onnx"].split()),
        pytorch=tuple(row["pytorch"].split()),
    )
