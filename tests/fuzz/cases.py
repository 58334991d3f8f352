"""A case: tensors, formulas over them, and the text of an operator that says both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from dmlc.binding import TensorDesc
from dmlc.catalog import parse
from dmlc.ir import Function
from dmlc.scalars import DataType as T
from tests.fuzz.evaluate import Evaluation
from tests.fuzz.possible import Array, Rules, Values, is_float, limits, load, spread, store
from tests.fuzz.shrink import smaller_trees
from tests.fuzz.trees import Name, Node, Read, show, walk

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, 1e-3, 88.7, -103.9, 65504.0, 65520.0,
    16777216.0, 16777217.0, 2147483648.0, -2147483904.0, 4294967296.0, 9.3e18, 1e19, 1e30, 3e38,
    3.4028234663852886e38, 1e-30, 1.1754943508222875e-38, 1e-40, 1e-45, 6e-8, 5.9604645e-8,
    math.inf, -math.inf, math.nan, math.pi, -math.pi / 2, 0.1,
)  # fmt: skip
STYLES = ("special", "moderate", "small")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input: type and sizes, the order of its axes in memory, and what values it has."""

    name: str
    dtype: T
    sizes: tuple[int, ...]
    style: str = "special"
    order: tuple[int, ...] | None = None
    """Axes from the slowest to the fastest, where that is not their own order."""
    most: int | None = None
    """Positions below this are drawn often."""

    def make(self, seed: int) -> Array:
        """Values of the style."""
        random = np.random.default_rng([seed, *self.name.encode()])
        made = self._values(random, math.prod(self.sizes)).reshape(self.sizes)
        if self.order is not None:
            back = np.argsort(self.order)
            made = np.ascontiguousarray(made.transpose(self.order)).transpose(back)
        return made

    def _values(self, random: np.random.Generator, count: int) -> Array:
        if self.dtype is T.BOOL:
            return random.integers(0, 2, count).astype(np.bool_)
        if is_float(self.dtype):
            with np.errstate(all="ignore"):
                plain = random.normal(0, 3, count)
                if self.style == "small":
                    return random.integers(-4, 5, count).astype(self.dtype.dtype)
                if self.style == "moderate":
                    return plain.astype(self.dtype.dtype)
                scaled = plain * 2.0 ** random.integers(-150, 130, count)
                kinds = random.random(count)
                mixed = np.where(kinds < 0.5, plain, np.where(kinds < 0.6, scaled, 0.0))
                special = random.choice(np.array(SPECIAL), count)
                return np.where(kinds < 0.6, mixed, special).astype(self.dtype.dtype)
        least, most = limits(self.dtype)
        kind = self.dtype.dtype
        if self.most is not None:
            near = random.integers(max(least, -2), min(most, self.most + 3), count).astype(kind)
            if self.style == "small":
                return near
            edge = random.choice(np.array([least, most, most - 1, 0], kind), count)
            return np.where(random.random(count) < 0.2, edge, near)
        small = random.integers(max(least, -9), 10, count).astype(kind)
        if self.style == "small":
            return small
        whole = random.integers(least, most, count, kind, endpoint=True)
        if self.style == "moderate":
            return np.where(random.random(count) < 0.5, small, whole)
        edges = np.array([0, 1, least, most, most - 1, least + 1, most // 2], kind)
        kinds = random.random(count)
        return np.where(
            kinds < 0.4, small, np.where(kinds < 0.6, whole, random.choice(edges, count))
        )


@dataclasses.dataclass(frozen=True)
class Statement:
    """`name = e`, or `name[i : n] = e`; `dtype` is that of an output, None for one's own name."""

    name: str
    value: Node
    dtype: T | None = None
    indices: tuple[tuple[str, int], ...] | None = None

    def __str__(self) -> str:
        if self.indices is None:
            return f"{self.name} = {show(self.value)}"
        over = ", ".join(f"{name} : {extent}" for name, extent in self.indices)
        return f"{self.name}[{over}] = {show(self.value)}"


@dataclasses.dataclass(frozen=True)
class Case:
    """Some outputs over some inputs. `sizes` are those of outputs that no index defines."""

    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    sizes: tuple[int, ...]
    seed: int
    open: bool = False
    """Whether the operator is bound without sizes."""

    @property
    def outputs(self) -> tuple[Statement, ...]:
        return tuple(s for s in self.statements if s.dtype is not None)

    def smaller(self) -> Iterator[Case]:
        """Cases with less in them."""
        outputs = self.outputs
        if len(outputs) > 1:
            for output in outputs:
                yield self._cut((*(s for s in self.statements if s.dtype is None), output))
        for at in range(len(self.statements)):
            if len(outputs) > 1 or self.statements[at].dtype is None:
                yield self._cut((*self.statements[:at], *self.statements[at + 1 :]))
        for at, statement in enumerate(self.statements):
            for value in smaller_trees(statement.value):
                made = dataclasses.replace(statement, value=value)
                yield self._cut((*self.statements[:at], made, *self.statements[at + 1 :]))
        for at, tensor in enumerate(self.tensors):
            if tensor.order is not None:
                plain = dataclasses.replace(tensor, order=None)
                yield dataclasses.replace(
                    self, tensors=(*self.tensors[:at], plain, *self.tensors[at + 1 :])
                )
        for axis, size in enumerate(self.sizes):
            for less in (1, size // 2, size - 1):
                if 0 < less < size:
                    yield self._resize(axis, size, less)

    def _cut(self, statements: tuple[Statement, ...]) -> Case:
        """The case with those statements alone, and the tensors that they read."""
        read = {n.name for s in statements for n in walk(s.value) if isinstance(n, Name | Read)}
        tensors = tuple(t for t in self.tensors if t.name in read) or self.tensors[:1]
        return dataclasses.replace(self, tensors=tensors, statements=statements)

    def _resize(self, axis: int, size: int, less: int) -> Case:
        def cut(sizes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(less if a == axis and n == size else n for a, n in enumerate(sizes))

        tensors = tuple(dataclasses.replace(t, sizes=cut(t.sizes)) for t in self.tensors)
        return dataclasses.replace(self, tensors=tensors, sizes=cut(self.sizes))

    def text(self) -> str:
        rows = [f"| {t.name} | Input | {t.dtype.short} |" for t in self.tensors]
        rows += [f"| {s.name} | Output | {s.dtype.short} |" for s in self.outputs if s.dtype]
        lines = ["operator F {", "    tensors {", "        | Tensor | Kind | Types |"]
        lines += [f"        {row}" for row in rows]
        lines += ["    }", "    compute {"]
        lines += [f"        {s}" for s in self.statements]
        return "\n".join([*lines, "    }", "}", ""])

    def bind(self) -> Function:
        operator = parse(self.text()).operators["F"]
        given: dict[str, TensorDesc] = {}
        for tensor in self.tensors:
            if self.open:
                given[tensor.name] = TensorDesc(tensor.dtype)
                continue
            strides = None
            if tensor.order is not None:
                array = tensor.make(self.seed)
                strides = tuple(s // array.itemsize for s in array.strides)
            given[tensor.name] = TensorDesc(tensor.dtype, tensor.sizes, strides)
        for output in self.outputs:
            assert output.dtype is not None
            sized = output.indices is None and not self.open
            given[output.name] = TensorDesc(output.dtype, self.sizes if sized else None)
        return operator.bind(given)

    def describe(self) -> str:
        """The case as text, and what shows it again."""
        made = [
            f"{t.name}={t.dtype.name}{list(t.sizes)} {t.style} {t.order or ''}"
            for t in self.tensors
        ]
        head = f"seed {self.seed}, open {self.open}, sizes {list(self.sizes)}; "
        return head + ", ".join(made) + "\n" + self.text()

    def inputs(self) -> dict[str, Array]:
        return {t.name: t.make(self.seed) for t in self.tensors}

    def expected(self, rules: Rules, inputs: Mapping[str, Array]) -> dict[str, Values]:
        """What each output may be."""
        types = {t.name: t.dtype for t in self.tensors}
        run = Evaluation({n: load(types[n], a) for n, a in inputs.items()}, rules)
        found: dict[str, Values] = {}
        for statement in self.statements:
            over = statement.indices or ()
            value = run.take(statement.value, statement.dtype, over)
            if run.is_known(statement.value):
                run.known.add(statement.name)
            shape = self.sizes
            if statement.indices is not None:
                shape = tuple(extent for _, extent in over)
            if statement.dtype is None:
                run.tensors[statement.name] = (
                    value if statement.indices is None else spread(value, shape)
                )
                continue
            # Statements after it read what was computed; what is stored is rounded.
            run.tensors[statement.name] = spread(value, shape)
            found[statement.name] = store(rules, run.tensors[statement.name], statement.dtype)
        return found
