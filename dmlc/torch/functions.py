"""Choice of the function for a call: for any number of elements, with open sizes, or for the call's
sizes.

An element-wise subject is bound once for all sizes. Any other is bound to the sizes of the call,
which gives the fastest kernels. After a number of these, it is bound to the sizes that have been
the same in all calls, so that inputs of ever new sizes, such as sentences, are not compiled again
and again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import torch

from dmlc.binding import TensorDesc, ir_name
from dmlc.ir import Extent, Function
from dmlc.sizes import evaluate_size, holds
from dmlc.source import DmlcError
from dmlc.torch.results import is_dense
from dmlc.torch.subjects import Subject, freeze, solve
from dmlc.torch.tensors import data_type_of, describe

FIXED = 16
"""How many sizes are bound as they are, before others leave open what changed: a network has an
operator in as many places, each with sizes of its own."""
_MOST_SEEN = 32


class Functions:
    """Functions of a subject. Thread-safe."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._lock = threading.Lock()
        self._seen: dict[object, list[tuple[int, ...]]] = {}
        """The sizes that calls alike but for these have had, all of a call in a row."""

    def find(
        self,
        tensors: Mapping[str, torch.Tensor],
        results: Sequence[torch.Tensor],
        settings: Mapping[str, object],
        *,
        may_open: bool,
    ) -> tuple[Function, dict[str, int]]:
        """Function for tensors, and the values of its symbols. A call that states sizes of its own
        `may_open` none. Raises `DmlcError`."""
        if is_dense([*tensors.values(), *results]):
            types = {name: data_type_of(t.dtype) for name, t in tensors.items()}
            given = [data_type_of(t.dtype) for t in results]
            function = self._subject.bind_elements(types, settings, given)
            if function is not None:
                (symbol,) = function.symbols()
                return function, {symbol: results[0].numel()}
        described = {name: self._describe(t) for name, t in tensors.items()}
        stored = [self._describe(t) for t in results]
        if may_open and not any(d.strides for d in (*described.values(), *stored)):
            found = self._open(described, stored, settings)
            if found is not None:
                return found
        function = self._subject.bind(described, settings, stored)
        shaped = {ir_name(n): (d.data_type, _numbers(d.sizes or ())) for n, d in described.items()}
        return function, solve(function, shaped)

    def _describe(self, tensor: torch.Tensor) -> TensorDesc:
        return describe(tensor.reshape(1) if self._subject.lifts and not tensor.dim() else tensor)

    def _open(
        self,
        given: Mapping[str, TensorDesc],
        stored: Sequence[TensorDesc],
        settings: Mapping[str, object],
    ) -> tuple[Function, dict[str, int]] | None:
        """Function with symbols for the sizes that differed between calls; None after few calls, or
        if such a function is refused."""
        shapes = {name: _numbers(d.sizes or ()) for name, d in given.items()}
        alike = tuple((n, given[n].data_type, len(s)) for n, s in shapes.items()), freeze(settings)
        row = tuple(size for shape in shapes.values() for size in shape)
        with self._lock:
            seen = self._seen.setdefault(alike, [])
            if row not in seen and len(seen) < _MOST_SEEN:
                seen.append(row)
            rows = list(dict.fromkeys((*seen, row)))
        if len(rows) <= FIXED or 0 in row:
            return None
        # What has always been the same size is taken to be one: the operator may demand it.
        names: dict[tuple[int, ...], str] = {}
        extents: list[Extent] = []
        for column in zip(*rows, strict=True):
            same = len(set(column)) == 1
            extents.append(column[0] if same else names.setdefault(column, f"D{len(names)}"))
        sizes = {name: column[rows.index(row)] for column, name in names.items()}
        rest = iter(extents)
        described = {
            name: TensorDesc(given[name].data_type, [next(rest) for _ in shape])
            for name, shape in shapes.items()
        }
        try:
            results = [TensorDesc(d.data_type) for d in stored]
            function = self._subject.bind(described, settings, results)
        except DmlcError:
            return None  # It needs its sizes.
        found = {stage.name: stage.extents for stage in function.stages}
        fits = all(
            tuple(evaluate_size(extent, sizes) for extent in found[result.name]) == desc.sizes
            for result, desc in zip(function.results, stored, strict=True)
        )
        if not fits or not all(holds(check, sizes) for check in function.checks):
            return None
        return function, sizes


def _numbers(sizes: Sequence[Extent]) -> tuple[int, ...]:
    return tuple(size for size in sizes if isinstance(size, int))
