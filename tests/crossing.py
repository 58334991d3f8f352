"""Functions that reduce tensors along their rows, and down their columns too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from dmlc import ir

_TEXTS = {
    "layer_norm": """\
func @layer_norm(%x: {t}[{whole}], %dy: {t}[{whole}], %scale: f32[{wide}]) -> (%dx, %db, %ds) {{
  %sum: f32[{columns}] = sum[{through}] %dy[{in_column}]
  %product: f32[{columns}] = sum[{through}] mul(%dy[{in_column}], %x[{in_column}])
  %flow: f32[{rows}] = sum[{over}] mul(%dy[{in_row}], %scale[{in_scale}])
  %turn: f32[{rows}] = sum[{over}] mul(mul(%dy[{in_row}], %scale[{in_scale}]), %x[{in_row}])
  %dx: {t}[{points}] = {{
    v0 = add(div(%flow[{row}], {count}), mul(%x[{point}], div(%turn[{row}], {count})))
    sub(mul(%dy[{point}], %scale[{its_scale}]), v0)
  }}
  %db: f32[{columns}] = mul(%sum[{column}], 2.0)
  %ds: f32[{columns}] = %product[{column}]
}}""",
    "softmax": """\
func @softmax(%x: {t}[{whole}], %dy: {t}[{whole}]) -> (%dx, %db, %most) {{
  %sum: f32[{rows}] = sum[{over}] mul(%dy[{in_row}], %x[{in_row}])
  %dx: {t}[{points}] = mul(sub(%dy[{point}], %sum[{row}]), %x[{point}])
  %db: f32[{columns}] = sum[{through}] %dx[{in_column}]
  %most: {t}[{columns}] = max[{through}] %dx[{in_column}]
}}""",
    "weights": """\
func @weights(%x: {t}[{whole}]) -> (%weights, %total) {{
  %most: f32[{rows}] = max[{over}] %x[{in_row}]
  %total: f32[{rows}] = sum[{over}] exp(sub(%x[{in_row}], %most[{row}]))
  %weights: f32[{columns}] = sum[{through}] {{
    v0 = exp(sub(%x[{in_column}], %most[{row_there}]))
    div(v0, %total[{row_there}])
  }}
}}""",
}
KINDS = tuple(_TEXTS)


@dataclasses.dataclass(frozen=True)
class Rows:
    """A tensor's sizes, of which the last `inner` axes are a row, and the axes that columns go
    through."""

    sizes: tuple[int, ...]
    inner: int = 1
    down: tuple[int, ...] = (0,)
    dtype: str = "f32"

    def make(self, kind: str) -> ir.Function:
        """`layer_norm`: gradients by input, scale and bias. `softmax`: the gradient, and of that
        what a bias gets, and the largest of each column. `weights`: what the columns of a softmax
        come to, which itself is not stored."""
        return ir.parse(_TEXTS[kind].format(**self._spell()))

    def _spell(self) -> dict[str, object]:
        """The parts of the texts: sizes, axes with their extents, and positions."""
        n, lead = len(self.sizes), len(self.sizes) - self.inner
        kept = [axis for axis in range(n) if axis not in self.down]
        at = [f"i{axis}" if axis in kept else f"r{axis}" for axis in range(n)]
        for place, axis in enumerate(kept):
            at[axis] = f"i{place}"

        def list_extents(axes: Iterable[int], letter: str) -> str:
            return ", ".join(f"{letter}{axis} < {self.sizes[axis]}" for axis in axes)

        def list_places(axes: Iterable[int], letter: str = "i") -> str:
            return ", ".join(f"{letter}{axis}" for axis in axes)

        return {
            "t": self.dtype,
            "count": float(math.prod(self.sizes[lead:])),
            "whole": ", ".join(map(str, self.sizes)),
            "wide": ", ".join(map(str, self.sizes[lead:])),
            "rows": list_extents(range(lead), "i"),
            "over": list_extents(range(lead, n), "r"),
            "points": list_extents(range(n), "i"),
            "columns": ", ".join(f"i{k} < {self.sizes[a]}" for k, a in enumerate(kept)),
            "through": list_extents(self.down, "r"),
            "row": list_places(range(lead)),
            "point": list_places(range(n)),
            "its_scale": list_places(range(lead, n)),
            "in_row": f"{list_places(range(lead))}, {list_places(range(lead, n), 'r')}",
            "in_scale": list_places(range(lead, n), "r"),
            "column": list_places(range(len(kept))),
            "in_column": ", ".join(at),
            "row_there": ", ".join(at[:lead]),
        }


ROWS = {
    "vectors": Rows((512, 256)),
    "a square": Rows((256, 256)),
    "several steps": Rows((4096, 128)),
    "halves": Rows((300, 256), dtype="f16"),
    "pieces of several lengths": Rows((301, 200)),
    "elements": Rows((515, 129)),
    "steps beyond the end": Rows((300, 1000)),
    "a row at a time": Rows((260, 4104)),
    "two axes that are one": Rows((6, 64, 256), down=(0, 1)),
    "batches": Rows((3, 300, 256), down=(1,)),
    "heads": Rows((300, 3, 256)),
    "rows of two axes": Rows((260, 2, 3, 128), inner=2),
    "two axes around another": Rows((5, 3, 61, 128), down=(0, 2)),
}
"""One of each shape that kernels differ for."""
