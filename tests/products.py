"""Matrix products and convolutions as tensor IR, for tests of contractions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.scalars import Array

SIZES = (1, 3, 16, 17, 33, 63, 65, 130)
"""Rows, columns and points: odd ones, and those around the sizes of tiles."""


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: `act(2.5 * (A B) + 0.5 * C)`."""

    rows: int
    columns: int
    depth: int
    batch: int = 1
    shared: str = ""
    """The factor that all of a batch share, if any: `a` or `b`."""
    a_transposed: bool = False
    b_transposed: bool = False
    y_transposed: bool = False
    dtype: str = "f32"
    before: bool = False
    """Whether a factor is computed from what is read."""
    after: bool = True
    """Whether more is computed from the product."""
    apart: int = 0
    """Elements of memory between the rows of each tensor."""

    def make(self) -> ir.Function:
        m, n, d, z = self.rows, self.columns, self.depth, self.batch
        a, a_sizes = self._lay("i1", "r0", m, d, self.a_transposed, self.shared == "a")
        b, b_sizes = self._lay("r0", "i2", d, n, self.b_transposed, self.shared == "b")
        left = f"max(%A[{a}], -1.0)" if self.before else f"%A[{a}]"
        own, y_sizes = "%s[i0, i1, i2]", f"i1 < {m}, i2 < {n}"
        c, c_sizes = "i2", f"{n}"
        if self.y_transposed:
            own, y_sizes, c = "%s[i0, i2, i1]", f"i1 < {n}, i2 < {m}", "i1"
        result = f"add(mul(2.5, {own}), mul(0.5, %C[{c}]))" if self.after else own
        t, own_sizes = self.dtype, (z, n, m) if self.y_transposed else (z, m, n)
        return ir.parse(f"""
            func @f(%A: {t}{a_sizes}, %B: {t}{b_sizes}, %C: {t}[{c_sizes}])
                -> (%y{self._spread(own_sizes)}) {{
              %s: f32[i0 < {z}, i1 < {m}, i2 < {n}] = sum[r0 < {d}] mul({left}, %B[{b}])
              %y: {t}[i0 < {z}, {y_sizes}] = {result}
            }}""")

    def _lay(
        self, first: str, second: str, rows: int, columns: int, turned: bool, is_shared: bool
    ) -> tuple[str, str]:
        """The positions and sizes of a factor."""
        order = [(first, rows), (second, columns)]
        order = order[::-1] if turned else order
        if not is_shared:
            order.insert(0, ("i0", self.batch))
        sizes = [size for _, size in order]
        laid = f"[{', '.join(map(str, sizes))}]{self._spread(sizes)}"
        return ", ".join(p for p, _ in order), laid

    def _spread(self, sizes: Sequence[int]) -> str:
        """The strides of a tensor whose rows lie apart; nothing where they do not."""
        *_, rows, columns = sizes
        pitch = columns + self.apart
        steps = (rows * pitch, pitch, 1)[-len(sizes) :]
        return f"{{{', '.join(map(str, steps))}}}" if self.apart else ""


@st.composite
def draw_product(draw: st.DrawFn, most: int = 1 << 17) -> Product:
    """A product of so many points at most."""
    batch = draw(st.sampled_from([1, 1, 2, 3]))
    rows, columns = (draw(st.sampled_from(SIZES)) for _ in range(2))
    fits = [size for size in SIZES if batch * rows * columns * size <= most]
    return Product(
        rows,
        columns,
        draw(st.sampled_from(fits or [1])),
        batch,
        draw(st.sampled_from(["", "a", "b"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(["f32", "f32", "f16", "bf16"])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


KINDS = ("forward", "data", "weights", "transposed", "transposed data", "transposed weights")
"""Convolutions and their gradients."""


@dataclasses.dataclass(frozen=True)
class Windows:
    """A convolution, or one of its gradients."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    dtype: str = "FLOAT32"

    @property
    def results(self) -> tuple[int, int]:
        reach = (self.window - 1) * self.dilation + 1
        rows, columns = (
            (n + 2 * self.padding - reach) // self.stride + 1 for n in (self.height, self.width)
        )
        return rows, columns

    @property
    def spread(self) -> tuple[int, int]:
        """The rows and columns of what a transposed convolution makes."""
        reach = (self.window - 1) * self.dilation + 1
        rows, columns = (
            (n - 1) * self.stride - 2 * self.padding + reach for n in (self.height, self.width)
        )
        return rows, columns

    def make(self, kind: str) -> ir.Function:
        """The function of one of `KINDS`. Of the transposed ones the source is what they spread."""
        is_transposed = kind.startswith("transposed")
        source = (self.batch, self.channels, self.height, self.width)
        result = (self.batch, self.filters, *(self.spread if is_transposed else self.results))
        window = (self.filters, self.channels // self.groups, self.window, self.window)
        if is_transposed:
            window = (self.channels // self.groups, self.filters, self.window, self.window)
        pads = [self.padding] * 2
        given: dict[str, object] = {
            "strides": [self.stride] * 2, "pads_begin": pads, "pads_end": pads,
            "dilations": [self.dilation] * 2, "groups": self.groups, "data_format": "NCX",
            "weights_format": "IOX" if is_transposed else "OIX",
        }  # fmt: skip
        name = "onednn.ConvTranspose" if is_transposed else "onednn.Convolution"
        match kind.split()[-1]:
            case "data":
                sizes = {} if is_transposed else {"diff_src": source}
                sizes |= {"diff_dst": result, "weights": window}
                return self._bind(f"{name}BackwardData", given, **sizes)
            case "weights":
                sizes = {"src": source, "diff_dst": result, "diff_weights": window}
                return self._bind(f"{name}BackwardWeights", given, **sizes)
            case _:
                return self._bind(name, given, src=source, weights=window)

    def _bind(self, name: str, given: dict[str, object], **sizes: tuple[int, ...]) -> ir.Function:
        tensors = {tensor: dmlc.TensorDesc(self.dtype, each) for tensor, each in sizes.items()}
        return dmlc.operator(name).bind(tensors, given)


@st.composite
def draw_windows(draw: st.DrawFn) -> Windows:
    groups = draw(st.sampled_from([1, 1, 2]))
    window, dilation = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (3, 2)]))
    height, width = (draw(st.integers(5, 12)) for _ in range(2))
    return Windows(
        draw(st.integers(1, 2)),
        groups * draw(st.sampled_from([2, 9, 16])),
        height,
        width,
        groups * draw(st.sampled_from([6, 16, 17])),
        window,
        draw(st.integers(1, 2)),
        draw(st.integers(0, 2)),
        dilation,
        groups,
    )


def fill_beside_infinities(function: ir.Function) -> dict[str, Array]:
    """Whole numbers for a convolution of 16 channels and filters, or for a gradient of one, among
    whose weights are infinities and a NaN."""
    random = np.random.default_rng(3)
    inputs = {
        p.name: random.integers(-2, 3, [int(e) for e in p.extents]).astype(p.dtype.dtype)
        for p in function.parameters
    }
    weights = inputs["weights"]
    weights[0, 0, 0, 0], weights[5, 3, 2, 1], weights[7, 9, 0, 2] = np.inf, np.nan, -np.inf
    return inputs


def expect_some_finite(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Some results are numbers, others are not, and all are those of the reference."""
    for name, values in wanted.items():
        assert np.isfinite(values).any()
        assert not np.isfinite(values).all()
        np.testing.assert_array_equal(found[name].reshape(values.shape), values)
