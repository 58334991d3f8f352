"""Weighted sums over windows of images, dense on paper, for tests of what makes them short."""

from __future__ import annotations

from dmlc import ir

TEXT = """
func @window_sums(%x: {type}[3, {height}, {width}]{more}) -> (%y{results}) {{
  %{total}: {kept}[i0 < 3, i1 < {rows}, i2 < {columns}] = sum[r1 < {height}, r2 < {width}] {{
    v0 = sub(add(r1, {pad}), div(mul(i1, {up}), {down}))
    v1 = sub(add(r2, {pad}), div(mul(i2, {up}), {down}))
    where and(and(ge(v0, 0), lt(v0, {window})), and(ge(v1, 0), lt(v1, {window})))
    mul(%x[i0, r1, r2], mul(cast(add(v0, 1), {compute}), cast(sub({window}, v1), {compute})))
  }}{epilogue}
}}
"""

EPILOGUE = """
  %y: {type}[i0 < 3, i1 < {rows}, i2 < {columns}] = {{
    select(gt(%m[i0, i1, i2], 0.0), %y_sum[i0, i1, i2], 0.0)
  }}"""


def make_windows(
    rows: int,
    columns: int,
    window: int,
    step: tuple[int, int],
    pad: int = 0,
    dtype: str = "f32",
    *,
    masked: bool = False,
) -> ir.Function:
    """The sums of `window` by `window` elements with weights of both axes, for every `step[0]` in
    `step[1]` elements, the first of them starting `pad` elements before the image. With `masked`,
    only where another tensor is positive."""
    up, down = step
    height, width = (max(1, (n - 1) * up // down + window - 2 * pad) for n in (rows, columns))
    compute = "f32" if dtype in ("f16", "bf16") else dtype
    sizes = f"3, {rows}, {columns}"
    text = TEXT.format(
        type=dtype, height=height, width=width, rows=rows, columns=columns, window=window,
        pad=pad, up=up, down=down, compute=compute, results="",
        more=f", %m: {dtype}[{sizes}]" if masked else "",
        total="y_sum" if masked else "y", kept=compute if masked else dtype,
        epilogue=EPILOGUE.format(type=dtype, rows=rows, columns=columns) if masked else "",
    )  # fmt: skip
    return ir.parse(text)
