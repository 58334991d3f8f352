"""Element-wise work whose operands and results lie along different axes, for tests of tiles."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from dmlc import ir

SIZES = (1, 7, 8, 9, 16, 31, 32, 33, 40, 64, 70, 130)
"""Odd ones, and those around the sides of tiles."""


@dataclasses.dataclass(frozen=True)
class Transposed:
    """`y[b, r, c] = f(X[b, c, r], ...)`, with so many operands across and along."""

    rows: int
    columns: int
    batch: int = 1
    across: int = 1
    along: int = 0
    dtype: str = "f32"
    stored: str = "f32"
    shifted: bool = False
    """Whether what lies across is read at computed positions."""
    turned: bool = False
    """Whether a second result lies across, too."""

    def make(self) -> ir.Function:
        b, r, c = self.batch, self.rows, self.columns
        last = f"min(add(i1, 1), {r - 1})" if self.shifted else "i1"
        reads = [f"%X{n}[i0, i2, {last}]" for n in range(self.across)]
        reads += [f"%Z{n}[i0, i1, i2]" for n in range(self.along)]
        value = "1.0"
        for number, read in enumerate(reads):
            made = f"max({read}, 0.25)" if number % 2 else f"mul({read}, 0.5)"
            value = f"sub({made}, {value})"
        parameters = [f"%X{n}: {self.dtype}[{b}, {c}, {r}]" for n in range(self.across)]
        parameters += [f"%Z{n}: {self.dtype}[{b}, {r}, {c}]" for n in range(self.along)]
        domain = f"i0 < {b}, i1 < {r}, i2 < {c}"
        results, more = "%y", ""
        if self.turned:
            results += f", %w{{{r * c}, 1, {r}}}"
            more = f"%w: {self.stored}[{domain}] = add({reads[-1]}, 1.0)"
        return ir.parse(f"""
            func @f({", ".join(parameters)}) -> ({results}) {{
              %y: {self.stored}[{domain}] = {value}
              {more}
            }}""")


@st.composite
def draw_transposed(draw: st.DrawFn) -> Transposed:
    """Work of few points."""
    return Transposed(
        draw(st.sampled_from(SIZES)),
        draw(st.sampled_from(SIZES)),
        draw(st.sampled_from([1, 1, 2, 3])),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 2)),
        draw(st.sampled_from(["f32", "f32", "f16", "bf16"])),
        draw(st.sampled_from(["f32", "f32", "f16", "bf16"])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def reduce_both_ways(outputs: int, points: int, dtype: str = "f32") -> ir.Function:
    """Each output reduces a row of one operand and a column of another, and is applied to both."""
    return ir.parse(f"""
        func @f(%X: {dtype}[{points}, {outputs}], %Z: {dtype}[{outputs}, {points}]) -> (%y) {{
          %s: f32[i0 < {outputs}] = sum[r0 < {points}] max(%X[r0, i0], %Z[i0, r0])
          %y: {dtype}[i0 < {outputs}, i1 < {points}] = sub(%X[i1, i0], mul(%s[i0], %Z[i0, i1]))
        }}""")
