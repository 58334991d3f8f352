"""Reductions as IR text, inputs for them, and how near a device must come to the reference."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc import ir
from dmlc.scalars import Array, DataType

COMBINERS = ("sum", "max", "min", "product", "argmin", "argmax")
BOOLEAN_COMBINERS = ("any", "all")


@dataclasses.dataclass(frozen=True)
class Shape:
    """A tensor's sizes and the axes that stay."""

    sizes: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def folded(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.sizes)) if axis not in self.kept)

    @property
    def points(self) -> int:
        """Folded into one output."""
        return math.prod(self.sizes[axis] for axis in self.folded)


SHAPES = {
    "one value": Shape((1, 1), ()),
    "everything": Shape((37, 129), ()),
    "everything, in pieces": Shape((70_001,), ()),
    "rows": Shape((9, 83), (0,)),
    "tiny rows": Shape((700, 3), (0,)),
    "columns": Shape((41, 70), (1,)),
    "many columns, in pieces": Shape((2100, 65), (1,)),
    "channels": Shape((3, 5, 4, 61), (1,)),
    "long channels": Shape((2, 3, 1500), (1,)),
    "channels last": Shape((3, 17, 20), (2,)),
    "every other axis": Shape((3, 4, 5, 6, 2, 3), (0, 2, 4)),
    "eight axes": Shape((2, 1, 3, 2, 1, 4, 2, 5), (1, 3, 7)),
}
"""The classes of shapes that kernels differ for."""


def reduction(name: str, combiner: str, shape: Shape, dtype: str, tensor: str = "X") -> str:
    """A stage that folds a tensor; what is kept stands first, in order."""
    domain = ", ".join(f"i{n} < {shape.sizes[axis]}" for n, axis in enumerate(shape.kept))
    over = ", ".join(f"r{axis} < {shape.sizes[axis]}" for axis in shape.folded)
    at = ", ".join(
        f"i{shape.kept.index(axis)}" if axis in shape.kept else f"r{axis}"
        for axis in range(len(shape.sizes))
    )
    return f"  %{name}: {dtype}[{domain}] = {combiner}[{over}] %{tensor}[{at}]"


def every_combiner(dtype: DataType, shape: Shape, combiners: Sequence[str]) -> ir.Function:
    """One tensor folded in several ways."""
    sizes = ", ".join(map(str, shape.sizes))
    stages = [
        reduction(c, c, shape, "s64" if c.startswith("arg") else dtype.short) for c in combiners
    ]
    results = ", ".join(f"%{c}" for c in combiners)
    body = "\n".join(stages)
    return ir.parse(f"func @fold(%X: {dtype.short}[{sizes}]) -> ({results}) {{\n{body}\n}}")


def batch_norm_training_grad(
    sizes: Sequence[int], kept: Sequence[int], dtype: str = "f32"
) -> ir.Function:
    """The gradient of batch normalization by its input, scale and bias; statistics have the sizes
    of the axes in `kept`, and 1 elsewhere."""
    rank = range(len(sizes))
    whole = ", ".join(map(str, sizes))
    part = ", ".join(str(sizes[a]) if a in kept else "1" for a in rank)
    domain = ", ".join(f"i{a} < {sizes[a]}" for a in rank)
    kept_domain = ", ".join(f"i{a} < {sizes[a] if a in kept else 1}" for a in rank)
    over = ", ".join(f"r{a} < {sizes[a]}" for a in rank if a not in kept)
    at = ", ".join(f"i{a}" for a in rank)
    k = ", ".join(f"i{a}" if a in kept else "0" for a in rank)
    r = ", ".join(f"i{a}" if a in kept else f"r{a}" for a in rank)
    count = float(math.prod(sizes[a] for a in rank if a not in kept))
    statistics = ", ".join(f"%{n}: {dtype}[{part}]" for n in ("mean", "variance", "scale"))
    return ir.parse(f"""\
func @batch_norm_training_grad(%x: {dtype}[{whole}], %dy: {dtype}[{whole}], {statistics}) \
-> (%dx, %dscale, %dbias) {{
  %dy_sum: f32[{kept_domain}] = sum[{over}] %dy[{r}]
  %dy_centered_sum: f32[{kept_domain}] = sum[{over}] mul(%dy[{r}], sub(%x[{r}], %mean[{k}]))
  %inv_std: f32[{kept_domain}] = div(1.0, sqrt(add(%variance[{k}], 0.001)))
  %dbias: {dtype}[{kept_domain}] = %dy_sum[{k}]
  %dscale: {dtype}[{kept_domain}] = mul(%dy_centered_sum[{k}], %inv_std[{k}])
  %dx: {dtype}[{domain}] = {{
    v0 = div(%dy_sum[{k}], {count})
    v1 = div(%dy_centered_sum[{k}], {count})
    v2 = div(mul(sub(%x[{at}], %mean[{k}]), v1), add(%variance[{k}], 0.001))
    mul(mul(%scale[{k}], %inv_std[{k}]), sub(sub(%dy[{at}], v0), v2))
  }}
}}""")


def folded_result(shape: Shape, dtype: str = "f32", cheap: bool = False) -> ir.Function:
    """A gradient that leaves, `e`, what is folded of it, and what derives from that. It is computed
    twice where it is `cheap`."""
    rank = range(len(shape.sizes))
    whole = ", ".join(map(str, shape.sizes))
    part = ", ".join(str(shape.sizes[a]) if a in shape.kept else "1" for a in rank)
    domain = ", ".join(f"i{a} < {shape.sizes[a]}" for a in rank)
    kept_domain = ", ".join(f"i{a} < {shape.sizes[a] if a in shape.kept else 1}" for a in rank)
    over = ", ".join(f"r{a} < {shape.sizes[a]}" for a in shape.folded)
    at = ", ".join(f"i{a}" for a in rank)
    k = ", ".join(f"i{a}" if a in shape.kept else "0" for a in rank)
    r = ", ".join(f"i{a}" if a in shape.kept else f"r{a}" for a in rank)
    z = f"add(%x[{at}], %bias[{k}])"
    e = f"select(gt({z}, 0.0), %dy[{at}], 0.0)"
    if not cheap:
        e = f"mul(%dy[{at}], add(erf({z}), mul(tanh({z}), exp(neg(abs({z}))))))"
    return ir.parse(f"""\
func @folded_result(%x: {dtype}[{whole}], %dy: {dtype}[{whole}], %bias: {dtype}[{part}]) \
-> (%e, %total, %most, %half) {{
  %e: {dtype}[{domain}] = {e}
  %total: f32[{kept_domain}] = sum[{over}] %e[{r}]
  %product: f32[{kept_domain}] = sum[{over}] mul(%e[{r}], %x[{r}])
  %most: {dtype}[{kept_domain}] = max[{over}] %e[{r}]
  %half: f32[{kept_domain}] = mul(%product[{k}], 0.5)
}}""")


def make_inputs(function: ir.Function, seed: int = 0) -> dict[str, Array]:
    """Moderate values, those of a variance positive; repeated where a stride is 0."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for parameter in function.parameters:
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        own = sizes
        if parameter.strides is not None:
            own = tuple(n if s else 1 for n, s in zip(sizes, parameter.strides, strict=True))
        values = random.standard_normal(own)
        dtype = parameter.dtype
        if parameter.name == "variance":
            values = np.abs(values) + 0.5
        if dtype is DataType.BOOL:
            made[parameter.name] = np.broadcast_to(values > 1.5, sizes)
            continue
        if dtype.is_integer:
            values = np.abs(values * 9) if np.iinfo(dtype.dtype).min == 0 else values * 9
        made[parameter.name] = np.broadcast_to(values.astype(dtype.dtype), sizes)
    return made


_EPSILON = {2: 2.0**-11, 4: 2.0**-24, 8: 2.0**-53}


def find_disagreements(
    got: Mapping[str, Array],
    wanted: Mapping[str, Array],
    points: int,
    size: float = 1.0,
    exact: Sequence[str] = (),
) -> list[str]:
    """What differs by more than sums of `points` values of about `size` may: floats by rounding
    at every level of a blocked sum, and once more where 16 bits store them."""
    wrong: list[str] = []
    for name, expected in wanted.items():
        found = got[name]
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if expected.dtype.kind in "biu":
            bad = found != expected
        else:
            a, b = found.astype(np.float64), expected.astype(np.float64)
            bound = 0.0
            if name not in exact:
                compute = max(expected.dtype.itemsize, 4)
                levels = 8 + 2 * math.log2(max(points, 1))
                scale = math.sqrt(points) * 4 + points / 8
                bound = _EPSILON[compute] * levels * size * scale
                bound = bound + _EPSILON[compute] * 16 * np.abs(b)
                if expected.dtype.itemsize == 2:
                    last = 2.0**-10 if expected.dtype == np.float16 else 2.0**-7
                    bound = bound + last * np.abs(b) * 1.01 + 2.0**-24
            with np.errstate(invalid="ignore"):
                close = np.abs(a - b) <= bound
            bad = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
        if np.any(bad):
            where = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(bad)))
            left, right = np.atleast_1d(found)[where], np.atleast_1d(expected)[where]
            wrong.append(f"{name}{list(where)}: {left} instead of {right}")
    return wrong
