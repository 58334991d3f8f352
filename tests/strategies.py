"""Hypothesis strategies for well-formed tensor IR, and for arrays to evaluate it on."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import strategies as st

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Function,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    check_in_place,
    packed_strides,
    value_type,
)
from dmlc.scalars import COMBINERS, OPERATIONS, TENSOR_TYPES, Array, DataType, Kind
from dmlc.scalars import DataType as T

FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1.5, 1e-3, 3e38, 1e-45, math.inf, -math.inf, math.nan)
NAMES = (
    "X",
    "dY",
    "t",
    "in",
    "inf",
    "where",
    "sum",
    "i0",
    "r1",
    "v0",
    "a.b",
    "func",
    "_",
    "cast",
    "select",
)
COMPUTE_TYPES = tuple(dict.fromkeys(t.compute for t in TENSOR_TYPES))


def constants(dtype: DataType) -> st.SearchStrategy[Constant]:
    """Literals of a compute type or of INDEX."""
    if dtype is T.BOOL:
        return st.booleans().map(lambda value: Constant(dtype, value))
    if dtype.is_float:
        width = 32 if dtype is T.FLOAT32 else 64
        wide = st.one_of(
            st.sampled_from(FLOATS).map(lambda v: float(dtype.dtype.type(v))),
            st.floats(width=width),
        )
        return wide.map(lambda value: Constant(dtype, value))
    limits = np.iinfo(dtype.dtype)
    whole = st.one_of(
        st.sampled_from((0, 1, 2, limits.max, limits.min, max(-1, limits.min))),
        st.integers(int(limits.min), int(limits.max)),
    )
    return whole.map(lambda value: Constant(dtype, int(value)))


class _BodyDraw:
    """Draws one body: every value it adds is well typed, every load stays inside its tensor."""

    def __init__(
        self,
        draw: st.DrawFn,
        tensors: dict[str, Parameter | Stage],
        axes: dict[Index, Extent],
        transcendental: bool,
    ) -> None:
        self.draw = draw
        self.tensors = tensors
        self.axes = axes
        self.transcendental = transcendental
        self.instructions: list[Instruction] = []

    def add(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def apply(self, name: str, *operands: int) -> int:
        operation = OPERATIONS[name]
        dtype = operation.result_type(value_type(self.instructions[operands[0]]))
        return self.add(Apply(operation, operands, dtype))

    def index(self, value: int) -> int:
        return self.add(Constant(T.INDEX, value))

    def position(self, extent: Extent) -> int | None:
        """A position along an axis of that size, if there is any."""
        exact = [i for i, e in self.axes.items() if e == extent]
        if isinstance(extent, str):
            return self.add(self.draw(st.sampled_from(exact))) if exact else None
        if extent == 0:
            return self.add(exact[0]) if exact else None
        inside = [i for i, e in self.axes.items() if isinstance(e, int) and e <= extent]
        kinds = ["constant", "clamped", "repeated"] + (["axis"] * 5 if inside else [])
        match self.draw(st.sampled_from(kinds)):
            case "axis":
                return self.add(self.draw(st.sampled_from(exact or inside)))
            case "constant":
                return self.index(self.draw(st.integers(0, extent - 1)))
            case "repeated":
                bounded = [i for i, e in self.axes.items() if isinstance(e, int)]
                if not bounded:
                    return self.index(extent - 1)
                moved = self.apply(
                    "add", self.add(self.draw(st.sampled_from(bounded))), self.index(3)
                )
                return self.apply("mod", moved, self.index(extent))
            case _:
                free = self.value(T.INDEX, 1)
                return self.apply(
                    "min", self.apply("max", free, self.index(0)), self.index(extent - 1)
                )

    def load(self, dtype: DataType) -> int | None:
        loadable = [n for n, t in self.tensors.items() if t.dtype.compute is dtype]
        if not loadable:
            return None
        tensor = self.tensors[self.draw(st.sampled_from(loadable))]
        extents = tensor.extents
        positions: list[int] = []
        for extent in extents:
            found = self.position(extent)
            if found is None:
                return None
            positions.append(found)
        return self.add(Load(tensor.name, tuple(positions), dtype))

    def value(self, dtype: DataType, depth: int) -> int:
        earlier = [n for n, i in enumerate(self.instructions) if value_type(i) is dtype]
        kinds = ["constant", "load", "load"]
        if dtype is T.INDEX:
            kinds = ["constant", "index", "index"]
        if earlier:
            kinds.append("earlier")
        if depth > 0:
            kinds += ["apply"] * 4 + ["select", "cast"]
        match self.draw(st.sampled_from(kinds)):
            case "load":
                found = self.load(dtype)
                if found is not None:
                    return found
            case "index" if self.axes:
                return self.add(self.draw(st.sampled_from(list(self.axes))))
            case "earlier":
                return self.draw(st.sampled_from(earlier))
            case "apply":
                return self.application(dtype, depth)
            case "select":
                condition = self.value(T.BOOL, depth - 1)
                then, otherwise = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
                return self.add(Select(condition, then, otherwise, dtype))
            case "cast":
                source = self.draw(st.sampled_from((*COMPUTE_TYPES, T.INDEX)))
                return self.add(Cast(self.value(source, depth - 1), dtype))
            case _:
                pass
        return self.add(self.draw(constants(dtype)))

    def application(self, dtype: DataType, depth: int) -> int:
        choices: list[tuple[str, DataType]] = []
        for operation in OPERATIONS.values():
            if operation.transcendental and not self.transcendental:
                continue
            choices += [
                (operation.name, operand)
                for operand in ((*COMPUTE_TYPES, T.INDEX) if operation.gives_bool else (dtype,))
                if operation.operands.accept(operand) and operation.result_type(operand) is dtype
            ]
        name, operand = self.draw(st.sampled_from(choices))
        given = [self.value(operand, depth - 1) for _ in range(OPERATIONS[name].arity)]
        return self.apply(name, *given)


@st.composite
def functions(draw: st.DrawFn, transcendental: bool = True) -> Function:
    """Well-formed functions of a few stages: element-wise, broadcast, gathered and reduced."""
    run_time = draw(st.integers(0, 7)) == 0
    names = list(draw(st.permutations(NAMES)))
    tensors: dict[str, Parameter | Stage] = {}
    parameters: list[Parameter] = []
    sizes = st.sampled_from((1, 2, 3, 4, 2, 3, 0) if draw(st.integers(0, 9)) == 0 else (1, 2, 3))
    rank = draw(st.integers(0, 3))
    common = draw(st.lists(sizes, min_size=rank, max_size=rank))
    for _ in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(TENSOR_TYPES))
        extents: tuple[Extent, ...] = ("n",)
        strides = None
        if not run_time:
            extents = tuple(draw(st.sampled_from((size, 1))) for size in common)
            if draw(st.booleans()):
                strides = tuple(draw(st.integers(0, 12)) for _ in extents)
        parameters.append(Parameter(names.pop(), dtype, extents, strides))
        tensors[parameters[-1].name] = parameters[-1]
    stages: list[Stage] = []
    for _ in range(draw(st.integers(1, 4))):
        stages.append(draw(_stages(names.pop(), tensors, run_time, common, transcendental)))
        tensors[stages[-1].name] = stages[-1]
    chosen = draw(st.lists(st.sampled_from(stages), min_size=1, unique_by=lambda s: s.name))
    results = tuple(Result(s.name, draw(_result_strides(s))) for s in chosen)
    function = Function(
        draw(st.sampled_from(("f", "relu_grad", "a.b", "inf"))),
        tuple(parameters),
        tuple(stages),
        results,
    )
    pairs = tuple(
        (r.name, p.name)
        for r in results
        for p in parameters
        if check_in_place(function, ((r.name, p.name),)) is None
    )
    return dataclasses.replace(function, in_place=pairs)


@st.composite
def _stages(
    draw: st.DrawFn,
    name: str,
    tensors: dict[str, Parameter | Stage],
    run_time: bool,
    common: list[int],
    transcendental: bool,
) -> Stage:
    domain: tuple[Extent, ...] = ("n",) if run_time else tuple(common)
    if not run_time and draw(st.integers(0, 3)) == 0:
        domain = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    axes: dict[Index, Extent] = {Index(axis): extent for axis, extent in enumerate(domain)}
    dtype = draw(st.sampled_from(TENSOR_TYPES))
    reduction = None
    body_type = dtype.compute
    if draw(st.integers(0, 3)) == 0:
        labels = draw(st.lists(st.integers(0, 12), max_size=2, unique=True))
        sizes = [draw(st.integers(0, 4)) for _ in labels]
        combiners = [
            name for name, c in COMBINERS.items() if (dtype.is_integer or not c.positional)
            and c.accepts(dtype)
        ]  # fmt: skip
        combiner = draw(st.sampled_from(combiners))
        if COMBINERS[combiner].positional:
            body_type = draw(st.sampled_from([t for t in COMPUTE_TYPES if t.kind is not Kind.BOOL]))
        reduction = Reduction(combiner, tuple(zip(labels, sizes, strict=True)))
        axes |= {Index(label, True): size for label, size in reduction.axes}
    body = _BodyDraw(draw, tensors, axes, transcendental)
    result = body.value(body_type, draw(st.integers(0, 4)))
    guard = None
    if reduction is not None and draw(st.booleans()):
        guard = body.value(T.BOOL, 2)
    return Stage(name, dtype, domain, Body.make(body.instructions, result, guard), reduction)


@st.composite
def _result_strides(draw: st.DrawFn, stage: Stage) -> tuple[int, ...] | None:
    sizes = tuple(e for e in stage.extents if isinstance(e, int))
    if len(sizes) != len(stage.extents) or draw(st.booleans()):
        return None
    order = draw(st.permutations(range(len(sizes))))
    packed = packed_strides(tuple(sizes[axis] for axis in order))
    gap = draw(st.integers(1, 3))
    return tuple(packed[order.index(axis)] * gap for axis in range(len(sizes)))


def make_inputs(function: Function, seed: int, count: int = 7) -> dict[str, Array]:
    """Arrays for a function, special values among them; run-time sizes are `count`."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for parameter in function.parameters:
        shape = tuple(e if isinstance(e, int) else count for e in parameter.extents)
        made[parameter.name] = make_array(parameter.dtype, shape, random)
    return made


def make_array(dtype: DataType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Random values of a type, a third of them special."""
    size = math.prod(shape)
    if dtype is T.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        values = random.normal(0, 3, size)
        special = random.choice(np.array(FLOATS), size)
        mixed = np.where(random.random(size) < 0.3, special, values).reshape(shape)
        with np.errstate(all="ignore"):
            return mixed.astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    values = random.integers(limits.min, limits.max, size, dtype.dtype, endpoint=True)
    special = random.choice(np.array([0, 1, limits.min, limits.max], dtype.dtype), size)
    return np.where(random.random(size) < 0.3, special, values).reshape(shape)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are equal in type, shape and every bit, any NaN being one NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    nan = a != a
    raw = np.dtype(f"u{a.dtype.itemsize}")
    equal = (
        a.view(raw) == b.view(raw) if a.shape else a.reshape(1).view(raw) == b.reshape(1).view(raw)
    )
    return bool(np.all(equal | (nan & (b != b))))
