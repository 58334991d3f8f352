"""Refusal of functions that an output language cannot express, before lowering. The messages name
the tensor or the operation, its type and the dialect's reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dmlc import ir
from dmlc.codegen.dialect import Dialect
from dmlc.codegen.targets import TARGETS, find_target
from dmlc.kernel.target import Profile
from dmlc.scalars import DataType
from dmlc.scalars.operation import Unsupported
from dmlc.source import Diagnostic, Note, UnsupportedError

_MOST = 20
"""Largest number of diagnostics shown."""


def check_support(function: ir.Function, dialect: Dialect, profile: Profile) -> None:
    """Raises `UnsupportedError` with every type or operation that the dialect lacks; for a target
    that is not general, with the targets that have it."""
    if profile.name not in dialect.profiles:
        raise UnsupportedError(
            f"target '{dialect.name}' has no '{profile.name}' profile; "
            f"it has {' and '.join(repr(p) for p in dialect.profiles)}",
            function.span,
        )
    found = _list_lacking(function, dialect)[:_MOST]
    if not found:
        return
    if not find_target(dialect.name).is_general:
        others = [t for t in TARGETS if t.is_general]
        able = [t.name for t in others if not _list_lacking(function, t.dialects[0])]
        note = Note(f"what can express it all: {', '.join(able)}")
        found[-1] = dataclasses.replace(found[-1], notes=(note,) if able else ())
    raise UnsupportedError(found)


def _list_lacking(function: ir.Function, dialect: Dialect) -> list[Diagnostic]:
    """Types and operations that a dialect lacks."""
    return list(dict.fromkeys((*_tensors(function, dialect), *_stages(function, dialect))))


def _tensors(function: ir.Function, dialect: Dialect) -> Iterator[Diagnostic]:
    results = {r.name for r in function.results}
    for name, tensor in function.tensors().items():
        storage = dialect.storage[tensor.dtype]
        stored = isinstance(tensor, ir.Parameter) or name in results
        if stored and isinstance(storage, Unsupported):
            yield Diagnostic(
                f"target '{dialect.name}' cannot hold tensor '{name}' of type "
                f"{tensor.dtype.name}: {storage.reason}",
                tensor.span,
            )


def _stages(function: ir.Function, dialect: Dialect) -> Iterator[Diagnostic]:
    tables = {table.name for table in function.tables}
    for stage in function.stages:
        instructions = stage.body.instructions
        entry = _find_type(dialect, stage.dtype)
        if stage.reduction is not None and isinstance(entry, Unsupported):
            # The indices that it finds are converted to its type, without an instruction.
            yield Diagnostic(
                f"target '{dialect.name}' cannot compute with {stage.dtype.name}: {entry.reason}",
                stage.span,
            )
        for instruction in instructions:
            dtype = ir.value_type(instruction)
            entry: object = None
            what = ""
            match instruction:
                case ir.Apply(operation=operation, operands=operands):
                    dtype = ir.value_type(instructions[operands[0]])
                    if dtype is DataType.INDEX:
                        dtype = DataType.INT32  # whatever positions lack, integers have
                    what = f"compute '{operation.name}' of {dtype.name}"
                    entry = dialect.operations[operation.name, dtype]
                case ir.Cast(operand=operand):
                    source = ir.value_type(instructions[operand])
                    what = f"convert {source.name} to {dtype.name}"
                    if source is DataType.INDEX:
                        what = f"convert positions to {dtype.name}"
                        source = DataType.INT32  # whatever positions lack, integers have
                    if source is not dtype and dtype is not DataType.INDEX:
                        entry = dialect.conversions[source, dtype]
                case ir.Load(tensor=name) if name in tables and dtype not in dialect.loads:
                    what = f"hold the constant '{name}' of type {dtype.name}"
                    entry = dialect.storage[dtype]
                case ir.Constant() if dtype is not DataType.INDEX:
                    what = f"compute with {dtype.name}"
                    entry = _find_type(dialect, dtype)
                case _:
                    pass
            if isinstance(entry, Unsupported):
                yield Diagnostic(
                    f"target '{dialect.name}' cannot {what}: {entry.reason}", stage.span
                )


def _find_type(dialect: Dialect, dtype: DataType) -> object:
    """Reason that a dialect cannot compute with a type; None if it can."""
    known = dtype is DataType.INDEX or dtype.compute in dialect.types
    return None if known else dialect.storage[dtype]
