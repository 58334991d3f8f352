"""Attention as tensor IR, the three lines that a person writes, for tests of what computes it."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlc import ir
from dmlc.pipeline import Steps
from dmlc.scalars import Array
from dmlc.transform.cost import Budget
from dmlc.transform.differentiate import differentiate
from dmlc.transform.fuse import Fusion, fuse

MASKS: dict[str, tuple[str, str]] = {
    "": ("", "%t[i0, i1, i2, i3]"),
    "causal": ("", "select(le(i3, i2), %t[i0, i1, i2, i3], -inf)"),
    "bias": ("%B: f32[{S}, {T}]", "add(%t[i0, i1, i2, i3], %B[i2, i3])"),
    "lengths": ("%B: s32[{N}]", "select(lt(cast(i3, s32), %B[i0]), %t[i0, i1, i2, i3], -inf)"),
    "flags": ("%B: s32[{N}, {T}]", "select(ne(%B[i0, i3], 0:s32), %t[i0, i1, i2, i3], -10000.0)"),
    "rows": ("%B: f32[{S}]", "mul(%t[i0, i1, i2, i3], %B[i2])"),
}
"""How scores are masked: what is read for it, and what stands in place of a score `t`."""


@dataclasses.dataclass(frozen=True)
class Attention:
    """Of each query the mean of the values, weighted by the softmax of its scores."""

    queries: int
    keys: int
    size: int = 32
    value_size: int = 32
    batch: int = 1
    heads: int = 2
    mask: str = ""
    dtype: str = "f32"
    last: bool = False
    """Whether heads lie inside the sequence, as in what a projection gives."""
    also: str = ""
    """What leaves besides: `sum` and `largest` are those of a row."""

    def make(self) -> ir.Function:
        n, h, s, t, d, e = (
            self.batch, self.heads, self.queries, self.keys, self.size, self.value_size,
        )  # fmt: skip

        def lay(length: int, size: int) -> str:
            sizes = (n, length, h, size) if self.last else (n, h, length, size)
            return f"{self.dtype}[{', '.join(map(str, sizes))}]"

        def at(place: str, element: str) -> str:
            order = ("i0", place, "i1", element) if self.last else ("i0", "i1", place, element)
            return ", ".join(order)

        read, masked = MASKS[self.mask]
        read = f", {read.format(N=n, S=s, T=t)}" if read else ""
        rows, scores = f"i0 < {n}, i1 < {h}, i2 < {s}", f"i0 < {n}, i1 < {h}, i2 < {s}, i3 < {t}"
        also = "".join(f", %{name}" for name in self.also.split())
        given = f"%Q: {lay(s, d)}, %K: {lay(t, d)}, %V: {lay(t, e)}{read}"
        return ir.parse(f"""
            func @attention({given}) -> (%O{also}) {{
              %s: f32[{scores}] = sum[r0 < {d}] mul(%Q[{at("i2", "r0")}], %K[{at("i3", "r0")}])
              %t: f32[{scores}] = mul(%s[i0, i1, i2, i3], 0.25)
              %u: f32[{scores}] = {masked}
              %largest: f32[{rows}] = max[r0 < {t}] %u[i0, i1, i2, r0]
              %e: f32[{scores}] = exp(sub(%u[i0, i1, i2, i3], %largest[i0, i1, i2]))
              %sum: f32[{rows}] = sum[r0 < {t}] %e[i0, i1, i2, r0]
              %p: f32[{scores}] = div(%e[i0, i1, i2, i3], %sum[i0, i1, i2])
              %O: {self.dtype}[{rows}, i3 < {e}] = sum[r0 < {t}] mul(
                %p[i0, i1, i2, r0], %V[{at("r0", "i3")}])
            }}""")

    def differentiate(self) -> ir.Function:
        """Its gradient by queries, keys and values."""
        names = {"Q": "dQ", "K": "dK", "V": "dV"}
        return differentiate(self.make(), tuple(names), {"O": "dO"}, names).function

    def fill(self, function: ir.Function | None = None) -> dict[str, Array]:
        """Inputs of the function, or of its gradient; masks leave some keys out, and some rows have
        none."""
        random = np.random.default_rng(1)
        made: dict[str, Array] = {}
        for p in (function or self.make()).parameters:
            sizes = [int(e) for e in p.extents if isinstance(e, int)]
            if p.dtype.is_float:
                made[p.name] = (2 * random.standard_normal(sizes)).astype(p.dtype.dtype)
            else:
                made[p.name] = random.integers(0, 2, sizes).astype(p.dtype.dtype)
        if self.mask == "lengths":
            made["B"] = (np.arange(self.batch) * (self.keys - 3)).astype(np.int32)
        return made


def fuse_online(function: ir.Function, longest_row: int, budget: Budget) -> Fusion:
    """As `fuse` does, however few rows and scores there are."""
    least = dataclasses.replace(budget, least_rows=1, least_run=1, cached_bytes=0, most_again=128)
    return fuse(function, longest_row, least)


ONLINE = Steps(fuse=fuse_online)
"""How it is compiled for tests."""
