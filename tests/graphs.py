"""Graphs of operators as tensor IR: random ones, and the backward pass of a residual block."""

from __future__ import annotations

from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir import Function

ROWS, COLUMNS = 6, 40

_WHOLE = f"[i0 < {ROWS}, i1 < {COLUMNS}]"
_UNARY = (
    "mul({0}, 0.5)", "neg({0})", "max({0}, 0.0)", "sigmoid({0})", "tanh({0})", "abs({0})",
    "select(gt({0}, 0.0), {0}, mul({0}, 0.25))",
)  # fmt: skip
_BINARY = (
    "add(mul({0}, 0.5), mul({1}, 0.5))", "sub({0}, mul({1}, 0.5))", "mul(tanh({0}), {1})",
    "min({0}, {1})", "select(gt({0}, 0.0), {1}, 0.0)",
)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn, most: int = 30, half: bool = True) -> Function:
    """Up to `most` stages over a matrix: element by element, broadcast, folded, and read at other
    places as resampling and pooling do. Values stay small, and no step is far from continuous."""
    matrices, rows, columns = ["X", "Y"], ["R"], ["C"]
    lines: list[str] = []
    kinds = ["unary", "binary", "binary", "spread", "row", "column", "shift", "window"]
    for number in range(draw(st.integers(1, most))):
        name = f"t{number}"
        recent = st.sampled_from(matrices[-6:])
        a, b = (f"%{draw(recent)}[i0, i1]" for _ in range(2))
        dtype = draw(st.sampled_from(("f32", "f32", "f16", "bf16"))) if half else "f32"
        match draw(st.sampled_from(kinds)):
            case "unary":
                body = draw(st.sampled_from(_UNARY)).format(a)
            case "binary":
                body = draw(st.sampled_from(_BINARY)).format(a, b)
            case "spread" if draw(st.booleans()):
                body = f"add(mul({a}, 0.5), tanh(%{draw(st.sampled_from(rows))}[i0]))"
            case "spread":
                body = f"mul({a}, sigmoid(%{draw(st.sampled_from(columns))}[0, i1]))"
            case "row":
                source = f"%{draw(recent)}[i0, r1]"
                fold = draw(st.sampled_from(("max", "sum")))
                scale = source if fold == "max" else f"mul({source}, 0.02)"
                lines.append(f"%{name}: f32[i0 < {ROWS}] = {fold}[r1 < {COLUMNS}] {scale}")
                rows.append(name)
                continue
            case "column":
                source = f"mul(%{draw(recent)}[r0, i1], 0.1)"
                lines.append(f"%{name}: f32[i0 < 1, i1 < {COLUMNS}] = sum[r0 < {ROWS}] {source}")
                columns.append(name)
                continue
            case "shift":
                place = draw(st.sampled_from((f"sub({COLUMNS - 1}, i1)", "div(i1, 2)")))
                body = f"%{draw(recent)}[i0, {place}]"
            case _:
                source = f"%{draw(recent)}[i0, min(add(i1, r0), {COLUMNS - 1})]"
                lines.append(f"%{name}: {dtype}{_WHOLE} = sum[r0 < 3] mul({source}, 0.3)")
                matrices.append(name)
                continue
        lines.append(f"%{name}: {dtype}{_WHOLE} = {body}")
        matrices.append(name)
    own = [n for n in (*matrices, *rows, *columns) if n.startswith("t")]
    results = list(dict.fromkeys([own[-1], *draw(st.lists(st.sampled_from(own), max_size=3))]))
    text = "\n".join(f"  {line}" for line in lines)
    parameters = (
        f"%X: f32[{ROWS}, {COLUMNS}], %Y: f16[{ROWS}, {COLUMNS}], %R: f32[{ROWS}], "
        f"%C: f32[1, {COLUMNS}]"
    )
    function = ir.parse(
        f"func @graph({parameters}) -> ({', '.join(f'%{r}' for r in results)}) {{\n{text}\n}}"
    )
    ir.verify(function)
    return function


def residual_block(dtype: str, n: int, c: int, h: int, w: int) -> Function:
    """The gradients of ReLU, batch normalization in training, and the sum of a residual block."""
    whole, some = f"{dtype}[{n}, {c}, {h}, {w}]", f"{dtype}[1, {c}, 1, 1]"
    points = f"[i0 < {n}, i1 < {c}, i2 < {h}, i3 < {w}]"
    one = f"[i0 < 1, i1 < {c}, i2 < 1, i3 < 1]"
    at, of, every = "[i0, i1, i2, i3]", "[0, i1, 0, 0]", "[r0, i1, r2, r3]"
    fold = f"sum[r0 < {n}, r2 < {h}, r3 < {w}]"
    count = n * h * w
    return ir.parse(f"""func @residual_block_backward(
  %x: {whole}, %y: {whole}, %dy_main: {whole}, %dy_skip: {whole},
  %mean: {some}, %variance: {some}, %scale: {some}) -> (%dx, %dscale, %dbias) {{
  %dy: {dtype}{points} = add(%dy_main{at}, %dy_skip{at})
  %masked: {dtype}{points} = select(gt(%y{at}, 0.0), %dy{at}, 0.0)
  %bn_centered: f32{points} = sub(%x{at}, %mean{of})
  %bn_inverse: f32{one} = rsqrt(add(%variance{of}, 1e-5))
  %bn_total: f32{one} = {fold} %masked{every}
  %bn_product: f32{one} = {fold} mul(%masked{every}, %bn_centered{every})
  %dscale: {dtype}{one} = {fold} mul(mul(%masked{every}, %bn_centered{every}), %bn_inverse{of})
  %dbias: {dtype}{one} = {fold} %masked{every}
  %bn_slope: f32{points} = mul(mul(%bn_centered{at}, mul(%bn_inverse{of}, %bn_inverse{of})),
    div(%bn_product{of}, {count}.0))
  %dx: {dtype}{points} = mul(mul(%scale{of}, %bn_inverse{of}),
    sub(sub(%masked{at}, div(%bn_total{of}, {count}.0)), %bn_slope{at}))
}}""")
