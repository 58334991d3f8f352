"""Equivalents of the built-in operators in other systems, by task. The facts are a table beside
this module, with a row for each operation, read at its first use."""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

from dmlc.source import join_words

_TABLE = Path(__file__).resolve().parent / "equivalents.csv"
_MOST = 3
FAMILIES = ("directml", "onednn", "training")
"""Families of the library, each with a column in the table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """Operation that operators compute."""

    task: str
    """Kind of work it belongs to: "Pooling"."""
    what: str
    operators: tuple[str, ...]
    """Operators of the library that compute it, by qualified name."""
    onnx: tuple[str, ...]
    """Names in ONNX."""
    pytorch: tuple[str, ...]
    """Names in PyTorch, beginning with `torch`."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of it."""
        return (*self.operators, *(f"onnx.{name}" for name in self.onnx), *self.pytorch)


@functools.cache
def list_operations() -> tuple[Operation, ...]:
    """Operations of the library, task by task."""
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return tuple(map(_read, csv.DictReader(lines)))


def list_other_names(operator: str) -> tuple[str, ...]:
    """Equivalents of the operator of that qualified name: operators of the library, `onnx.NAME`,
    and functions of PyTorch."""
    found = [o.names for o in list_operations() if operator in o.operators]
    names = dict.fromkeys(name for each in found for name in each)
    return tuple(name for name in names if name != operator)


def suggest_operators(name: str) -> str | None:
    """Operators that compute the operation of a name in ONNX, PyTorch or another family, as text:
    those of the family in the name, if any. None for an unknown name."""
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
