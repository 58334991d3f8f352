"""Element-wise kernels that read every second element, or each twice, run on random sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import DataType

PLACES = {
    "every": lambda n, d: (f"add(mul(i1, {n}), {d})", lambda size: (size - 1) * n + d + 1),
    "again": lambda n, d: (f"div(add(i1, {d}), {n})", lambda size: (size - 1 + d) // n + 1),
    "between": lambda n, d: (
        f"div(add(mul(i1, 3), {d}), {n})", lambda size: ((size - 1) * 3 + d) // n + 1
    ),
    "held": lambda n, d: (
        f"min(max(sub(div(i1, {n}), {d}), 0), 9)", lambda size: 10
    ),
}  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(
    size=st.integers(16, 70),
    kinds=st.lists(
        st.tuples(st.sampled_from(sorted(PLACES)), st.integers(1, 4), st.integers(0, 2)),
        min_size=1, max_size=3,
    ),
    dtype=st.sampled_from(["f32", "f16", "bf16", "s32", "u8", "s16"]),
    stored=st.sampled_from(["f32", "f16", "s32"]),
)  # fmt: skip
@example(size=40, kinds=[("again", 2, 0)], dtype="f16", stored="f16")
@example(size=40, kinds=[("every", 2, 0), ("every", 2, 1)], dtype="f32", stored="f32")
@example(size=64, kinds=[("between", 2, 1), ("again", 4, 0)], dtype="bf16", stored="f32")
def test_vectors_take_what_places_say(
    size: int, kinds: list[tuple[str, int, int]], dtype: str, stored: str
) -> None:
    places = [PLACES[kind](n, d) for kind, n, d in kinds]
    columns = max(reach(size) for _, reach in places)
    compute = "f32" if stored == "f16" else stored
    terms = [f"cast(%x[i0, {place}], {compute})" for place, _ in places]
    total = terms[0]
    for term in terms[1:]:
        total = f"add(mul({total}, {'3:s32' if compute == 's32' else 3.0}), {term})"
    function = ir.parse(f"""
        func @f(%x: {dtype}[3, {columns}]) -> (%y) {{
          %y: {stored}[i0 < 3, i1 < {size}] = {total}
        }}""")
    (parameter,) = function.parameters
    assert isinstance(parameter.dtype, DataType)
    values = np.random.default_rng(size).integers(0, 7, (3, columns))
    inputs = {"x": values.astype(parameter.dtype.dtype)}
    found = opencl.load(compile(function, "opencl", "cpu"))(inputs)
    np.testing.assert_array_equal(found["y"], evaluate(function, inputs)["y"])
