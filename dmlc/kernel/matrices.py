"""Cooperative matrices of an interpreted kernel: one of each in every subgroup.

The items of a subgroup execute a matrix statement together, and must agree on its index. Each of
them accesses a share of the elements, so that races with other items are detected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.kernel import nodes as k
from dmlc.kernel.memory import Cells, Fail, Who, WorkItems
from dmlc.scalars import Array, convert

Statement: TypeAlias = k.FillMatrix | k.LoadMatrix | k.StoreMatrix | k.MultiplyMatrices
_Value: TypeAlias = Callable[[Who], Array]


class Matrices:
    """The matrices of a launch."""

    def __init__(
        self, kernel: k.Kernel, items: WorkItems, cells: Mapping[str, Cells], fail: Fail
    ) -> None:
        self._items, self._cells, self._fail = items, cells, fail
        self._size = kernel.launch.subgroup or 1
        count = items.all.size // self._size
        self._declared = {m.name: m for m in kernel.matrices}
        self._held = {
            m.name: np.zeros((count, m.size), m.dtype.compute.dtype) for m in kernel.matrices
        }
        self._filled = {m.name: np.zeros(count, np.bool_) for m in kernel.matrices}

    def make_step(
        self, statement: Statement, make: Callable[[k.Expression], _Value]
    ) -> Callable[[Who], None]:
        """Closure of a statement; `make` gives the closures of expressions."""
        match statement:
            case k.FillMatrix(matrix=name, value=value):
                given = make(value)

                def fill(who: Who) -> None:
                    here = self._find_subgroups(who)
                    self._store(name, here, self._agree(given(who), here)[:, None])

                return fill
            case k.MultiplyMatrices():
                return lambda who: self._multiply(statement, self._find_subgroups(who))
            case k.LoadMatrix(matrix=name, index=index, stride=stride):
                place, cells = make(index), self._cells[statement.array]

                def load(who: Who) -> None:
                    here = self._find_subgroups(who)
                    shares = [
                        self._items.among(cells.read(at, 1, who), who).reshape(-1, self._size)
                        for at in self._list_indices(place(who), name, stride, here, statement)
                    ]
                    values = np.concatenate(shares, axis=1)
                    self._store(name, here, values if here is None else self._spread(values, here))

                return load
            case k.StoreMatrix(matrix=name, index=index, stride=stride):
                place, cells = make(index), self._cells[statement.array]

                def store(who: Who) -> None:
                    here = self._find_subgroups(who)
                    self._demand_filled(name, here)
                    first = 0
                    for at in self._list_indices(place(who), name, stride, here, statement):
                        part = self._held[name][:, first : first + self._size]
                        cells.write(at, part.reshape(-1), 1, who)
                        first += self._size

                return store

    def _find_subgroups(self, who: Who) -> Array | None:
        """Mask of the subgroups that some items form; None for all. Faults if part of a subgroup is
        missing."""
        if who is None:
            return None
        here = np.asarray(who).reshape(-1, self._size)
        some, whole = np.any(here, axis=1), np.all(here, axis=1)
        if (some != whole).any():
            apart = (some != whole)[:, None] & here
            self._fail("some items of a subgroup are elsewhere", apart[here], who)
        return some

    def _agree(self, values: Array, here: Array | None) -> Array:
        """Value of each subgroup. Faults if its items differ."""
        if values.shape[0] == 1:
            return np.broadcast_to(values, self._items.all.size // self._size)
        each = values.reshape(-1, self._size)
        differs = (each != each[:, :1]).any(axis=1)
        if (differs if here is None else differs & here).any():
            self._fail("items of a subgroup do not agree", None, None)
        return each[:, 0]

    def _list_indices(
        self,
        index: Array,
        name: str,
        stride: int,
        here: Array | None,
        statement: k.LoadMatrix | k.StoreMatrix,
    ) -> Sequence[Array]:
        """Indices of the elements, as arrays with one entry per item: each item handles one element
        at a time."""
        matrix, items = self._declared[name], self._items.all.size
        first = self._agree(index, here).astype(np.int64)
        uneven = first % matrix.align(statement) != 0
        if (uneven if here is None else uneven & here).any():
            place = int(first[uneven][0])
            self._fail(f"a row of '{name}' begins at element {place}", None, None)
        begin = np.repeat(first, self._size)
        numbers = np.arange(matrix.size, dtype=np.int64)
        rows, columns = numbers // matrix.columns, numbers % matrix.columns
        if isinstance(statement, k.LoadMatrix) and statement.transposed:
            rows, columns = columns, rows
        offsets = (rows * stride + columns).reshape(-1, self._size)
        return [begin + np.tile(each, items // self._size) for each in offsets]

    def _spread(self, values: Array, here: Array) -> Array:
        """Values of the subgroups in `here`, with zeros for the others."""
        whole = np.zeros((here.size, values.shape[1]), values.dtype)
        whole[here] = values
        return whole

    def _demand_filled(self, name: str, here: Array | None) -> None:
        """Faults if a matrix is undefined in a subgroup that uses it."""
        filled = self._filled[name] if here is None else self._filled[name] | ~here
        if not filled.all():
            self._fail(f"'{name}' is read before it is written", None, None)

    def _store(self, name: str, here: Array | None, values: Array) -> None:
        held = self._held[name]
        self._filled[name] |= np.True_ if here is None else here
        self._held[name] = (
            np.broadcast_to(values, held.shape).copy()
            if here is None
            else np.where(here[:, None], values, held)
        )

    def _multiply(self, statement: k.MultiplyMatrices, here: Array | None) -> None:
        """Adds the products in order of the inner index, rounding each sum to its compute type."""
        for name in (statement.left, statement.right, statement.sum):
            self._demand_filled(name, here)
        shapes = [self._declared[n] for n in (statement.left, statement.right, statement.sum)]
        left, right, total = (
            self._held[m.name].reshape(-1, m.rows, m.columns).astype(m.dtype.compute.dtype)
            for m in shapes
        )
        wide = shapes[2].dtype.compute.dtype
        for point in range(shapes[0].columns):
            product = left[:, :, point, None].astype(wide) * right[:, None, point, :].astype(wide)
            total = total + product
        flat = total.reshape(total.shape[0], -1)
        stored = shapes[2].dtype
        if stored.compute is not stored:
            flat = convert(convert(flat, stored), stored.compute)
        self._store(statement.sum, here, flat)
