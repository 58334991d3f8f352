"""Products by matrix instructions: the accumulators of a tile in each subgroup's matrices, the
multiply steps, and the final stores."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, guard, index, multiply, operate, zero_of
from dmlc.kernel.frame import Frame
from dmlc.kernel.sums import add_up
from dmlc.loops.element import Read
from dmlc.loops.nodes import Dim, Loop, Multiply, Nest, Node, Reduce, walk
from dmlc.loops.tiling import count_points
from dmlc.lowering.scope import Scope
from dmlc.lowering.values import Values
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """Layout of a tile in shared memory: row-major or column-major."""

    array: str
    outer: int
    """Stride between rows of outputs, or columns of them, in elements."""
    point: int

    def find(self, place: k.Expression, number: int, points: k.Expression) -> k.Expression:
        """Offset of the element of output `place + number` at some point."""
        outputs = add(multiply(place, self.outer), index(number * self.outer))
        return add(outputs, multiply(points, self.point))


@dataclasses.dataclass(frozen=True, slots=True)
class _Product:
    """Matrices of one product, with this subgroup's first output."""

    sums: tuple[tuple[str, ...], ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    row: k.Local
    column: k.Local
    strips: tuple[int, int]
    """Rows and columns of a strip, in which each subgroup has one matrix."""
    begin: tuple[tuple[Dim, k.Expression], ...]
    """First row and column of the tile."""


class Products:
    """Lowers the products of one nest, and calls `write` for their bodies."""

    def __init__(
        self,
        nest: Nest,
        frame: Frame,
        values: Values,
        write: Callable[[Sequence[Node], Scope], list[k.Statement]],
    ) -> None:
        self._nest, self._frame, self._values, self._write = nest, frame, values, write
        self._begun: dict[int, _Product] = {}
        self.matrices: list[k.Matrix] = []

    def find(self, node: Reduce) -> Multiply | None:
        """Multiply node of a reduction, if matrix instructions compute it."""
        return next((n for n in walk(node.body) if isinstance(n, Multiply)), None)

    def begin(self, node: Reduce, product: Multiply, scope: Scope) -> list[k.Statement]:
        """A reduction with accumulators in matrices, of which each subgroup has one in each
        strip."""
        shape, (rows, columns) = product.instruction.shape, product.each
        row, column, _ = (n.dim for n in walk(product.body) if isinstance(n, Loop))
        strips = count_points(row) // rows, count_points(column) // columns
        body: list[k.Statement] = []
        subgroup, across = k.Position(k.Geometry.SUBGROUP), index(strips[1] // shape.n)
        first_row = multiply(operate("div", subgroup, across), shape.m)
        first_column = multiply(operate("mod", subgroup, across), shape.n)
        made = _Product(
            tuple(
                tuple(self._add_matrix("sum", k.Use.SUM, product) for _ in range(columns))
                for _ in range(rows)
            ),
            tuple(self._add_matrix("left", k.Use.LEFT, product) for _ in range(rows)),
            tuple(self._add_matrix("right", k.Use.RIGHT, product) for _ in range(columns)),
            self._frame.name(body, "first_row", first_row),
            self._frame.name(body, "first_column", first_column),
            strips,
            tuple((dim.within, scope.start(dim.within)) for dim in (row, column) if dim.within),
        )
        self._begun[product.phase] = made
        every = itertools.chain.from_iterable(made.sums)
        body += [k.FillMatrix(name, zero_of(shape.sum)) for name in every]
        return body + self._write(node.body, scope)

    def ends(self, node: Node) -> bool:
        """Whether accumulators of matrices are stored inside a node."""
        return isinstance(node, Reduce) and not node.body and node.phase in self._begun

    def end(self, node: Reduce, scope: Scope) -> list[k.Statement]:
        """Stores a strip of the accumulators where other items of the group read it."""
        product, into = self._begun[node.phase], node.into
        if into is None:
            raise InternalError("the sums of matrices end up nowhere")
        (_, pitch), _ = into.tile
        place = add(multiply(product.row, pitch), product.column)
        array, made = self._values.arrays[into.buffer], list[k.Statement]([k.Barrier()])
        for i, names in enumerate(product.sums):
            for j, name in enumerate(names):
                here = [*self._find_strip(product, 0, i, scope),
                        *self._find_strip(product, 1, j, scope)]  # fmt: skip
                made += guard(here, [k.StoreMatrix(array, place, name, pitch)])
        return [*made, k.Barrier()]

    def _find_strip(
        self, product: _Product, side: int, number: int, scope: Scope
    ) -> list[k.Expression]:
        """Condition for strip `number` along a side; empty if there is only one."""
        (dim, begin), length = product.begin[side], product.strips[side]
        if len(product.sums if side == 0 else product.sums[0]) == 1:
            return []
        ahead = add_up(scope.start(dim), {}).plus(add_up(begin, {}), -1)
        match ahead.factors:
            case ((term, step),) if step == length and not ahead.constant:
                return [operate("eq", term, index(number))]
            case _:
                pass
        return [operate("eq", scope.start(dim), add(begin, index(number * length)))]

    def _add_matrix(self, name: str, use: k.Use, product: Multiply) -> str:
        """Adds a matrix, and returns its name."""
        shape = product.instruction.shape
        rows = shape.k if use is k.Use.RIGHT else shape.m
        columns = shape.k if use is k.Use.LEFT else shape.n
        dtype = shape.sum if use is k.Use.SUM else shape.factors
        made = k.Matrix(self._frame.names.take(name), dtype, rows, columns, use)
        self.matrices.append(made)
        return made.name

    def write_steps(self, node: Multiply) -> list[k.Statement]:
        """Multiplies the points of a tile, as many at a time as the instruction takes."""
        rows, columns, points = (n.dim for n in walk(node.body) if isinstance(n, Loop))
        product, shape = self._begun[node.phase], node.instruction.shape
        left, right = self._find_tiles(node, rows, columns, points)
        point = self._frame.variable("point")
        body: list[k.Statement] = []
        for tile, names, first, step in (
            (left, product.left, product.row, product.strips[0]),
            (right, product.right, product.column, product.strips[1]),
        ):
            # The rows of the right factor are points.
            is_left = tile is left
            beside = tile.point if is_left else tile.outer
            stride = tile.outer if is_left else tile.point
            for number, name in enumerate(names):
                place = tile.find(first, number * step, point)
                if beside == 1:
                    body.append(k.LoadMatrix(name, tile.array, place, stride))
                else:
                    body.append(k.LoadMatrix(name, tile.array, place, beside, transposed=True))
        body += [
            k.MultiplyMatrices(total, one, other)
            for one, totals in zip(product.left, product.sums, strict=True)
            for other, total in zip(product.right, totals, strict=True)
        ]
        return [k.For(point, index(0), index(count_points(points)), shape.k, tuple(body))]

    def _find_tiles(
        self, node: Multiply, rows: Dim, columns: Dim, points: Dim
    ) -> tuple[_Rows, _Rows]:
        """Layouts of the two factors in shared memory."""
        elements = self._nest.phases[node.phase].elements
        (reduction,) = elements.reductions
        found: dict[Dim, _Rows] = {}
        arrays = {b.name: name for b, name in self._values.arrays.items()}
        for number in reduction.values:
            value = elements.values[number]
            if not isinstance(value, Read):
                raise InternalError("a factor of matrices lies in no tile")
            steps = dict(self._values.terms[node.phase][value.view])
            (own,) = (dim for dim in (rows, columns) if dim in steps)
            lie = [steps[dim] for dim in (own, points)]
            outer, point = (step if isinstance(step, int) else 0 for step in lie)
            found[own] = _Rows(arrays[value.view.tensor], outer, point)
        return found[rows], found[columns]
