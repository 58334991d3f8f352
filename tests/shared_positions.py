"""Reductions that depend on positions, of any sizes, as IR text: few outputs of many points."""

from __future__ import annotations

from dmlc import ir

FUNCTIONS = {
    "label": """
        func @label(%X: {t}[{a}, {b}], %L: s32[{a}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {a}, r1 < {b}]
            mul(select(eq(%L[r0], cast(r1, s32)), {one}, {zero}), %X[r0, r1])
        }}""",
    "pick": """
        func @pick(%X: {t}[{a}, {b}], %L: s32[{a}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {a}] %X[r0, min(max(cast(%L[r0], index), 0), {last_b})]
        }}""",
    "groups": """
        func @groups(%X: {t}[{a}, {c}, {b}], %M: {t}[{a}, {c}]) -> (%Y) {{
          %Y: {t}[i0 < {c}] = sum[r0 < {a}, r1 < {b}] mul(%X[r0, i0, r1], %M[r0, div(i0, 2)])
        }}""",
    "columns": """
        func @columns(%X: {t}[{a}, {b}, {c}], %M: {t}[{a}, {c}]) -> (%Y) {{
          %Y: {t}[i0 < {c}] = sum[r0 < {a}, r1 < {b}] mul(%X[r0, r1, i0], %M[r0, div(i0, 2)])
        }}""",
    "rows_elsewhere": """
        func @rows_elsewhere(%X: {t}[{a}, {b}], %I: s32[{c}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {c}, r1 < {b}]
            %X[min(max(cast(%I[r0], index), 0), {last_a}), r1]
        }}""",
    "backwards": """
        func @backwards(%X: {t}[{a}, {b}], %W: {t}[{b}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {a}, r1 < {b}] mul(%X[r0, r1], %W[sub({last_b}, r1)])
        }}""",
    "triangle": """
        func @triangle(%X: {t}[{a}, {b}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {a}, r1 < {b} where le(mul(r1, 2), r0)] %X[r0, r1]
        }}""",
    "window": """
        func @window(%X: {t}[{a}, {b}], %D: {t}[{a}, {b}]) -> (%Y) {{
          %Y: {t}[i0 < 3] = sum[r0 < {a}, r1 < {b} where and(
              ge(sub(add(r1, i0), 1), 0), lt(sub(add(r1, i0), 1), {b}))]
            mul(%D[r0, r1], %X[r0, sub(add(r1, i0), 1)])
        }}""",
    "window_of_rows": """
        func @window_of_rows(%X: {t}[{a}, {b}]) -> (%Y) {{
          %Y: {t}[i0 < 3] = sum[r0 < {a}, r1 < {b} where and(and(
              ge(sub(add(r0, i0), 1), 0), lt(sub(add(r0, i0), 1), {a})), ge(r1, i0))]
            %X[sub(add(r0, i0), 1), r1]
        }}""",
    "first_of_most": """
        func @first_of_most(%X: {t}[{a}, {b}]) -> (%Y, %Z) {{
          %Y: s64[] = argmax[r0 < {a}, r1 < {b}] %X[r0, sub({last_b}, r1)]
          %Z: u32[] = argmin[r0 < {a}, r1 < {b} where ge(r1, r0)] %X[r0, r1]
        }}""",
    "extremes": """
        func @extremes(%X: {t}[{a}, {b}]) -> (%Y, %Z) {{
          %Y: {t}[] = max[r0 < {a}, r1 < {b} where lt(r1, mul(r0, 3))] %X[r0, sub({last_b}, r1)]
          %Z: {t}[] = min[r0 < {a}, r1 < {b}]
            select(ge(r1, add(r0, 3)), %X[r0, r1], {one})
        }}""",
    "any_and_all": """
        func @any_and_all(%X: {t}[{a}, {b}]) -> (%Y, %Z) {{
          %Y: bool[] = any[r0 < {a}, r1 < {b}] and(gt(%X[r0, r1], {zero}), ge(r1, {last_b}))
          %Z: bool[] = all[r0 < {a}, r1 < {b} where eq(mod(r1, 7), 6)]
            le(%X[r0, r1], %X[r0, sub({last_b}, r1)])
        }}""",
    "product": """
        func @product(%X: {t}[{a}, {b}]) -> (%Y) {{
          %Y: {t}[] = product[r0 < {a}, r1 < {b}]
            select(and(eq(r1, 1), lt(r0, 4)), %X[r0, r1], {one})
        }}""",
    "stored_on_the_way": """
        func @stored_on_the_way(%X: {t}[{a}, {b}]) -> (%E, %Y) {{
          %E: {t}[i0 < {a}, i1 < {b}] = mul(%X[i0, i1], %X[i0, i1])
          %Y: {t}[i0 < {b}] = sum[r0 < {a} where ge(r0, div(i0, 3))] %E[r0, i0]
        }}""",
    "applied": """
        func @applied(%X: {t}[{c}, {b}], %L: s32[{c}]) -> (%Y) {{
          %most: {t}[i0 < {c}] = max[r0 < {b}] %X[i0, r0]
          %total: {t}[i0 < {c}] = sum[r0 < {b}] sub(%X[i0, r0], %most[i0])
          %Y: {t}[i0 < {c}, i1 < {b}] = sub(mul(%total[i0], %X[i0, i1]),
            select(eq(%L[i0], cast(i1, s32)), %most[i0], {zero}))
        }}""",
    "weighted": """
        func @weighted(%X: {t}[{a}, {b}]) -> (%Y) {{
          %Y: {t}[i0 < {a}] = sum[r0 < {b}] mul(%X[i0, r0], cast(mod(r0, 5), {t}))
        }}""",
    "far_positions": """
        func @far_positions(%X: {t}[{a}, {b}], %U: u32[{b}]) -> (%Y) {{
          %Y: {t}[] = sum[r0 < {a}, r1 < {b}]
            select(lt(cast(%U[r1], index), add(r0, 4294967290)), %X[r0, r1], {zero})
        }}""",
    "derived": """
        func @derived(%X: {t}[{a}, {b}, {c}], %M: {t}[{a}]) -> (%Y) {{
          %total: {t}[i0 < {c}] = sum[r0 < {a}, r1 < {b}]
            mul(%X[r0, r1, i0], %M[sub({last_a}, r0)])
          %Y: {t}[i0 < {c}] = add(%total[i0], cast(mul(i0, 2), {t}))
        }}""",
}


def read(name: str, a: int, b: int, c: int, dtype: str = "f32") -> ir.Function:
    one, zero = ("1.0", "0.0")
    if dtype in ("f64", "s64", "s32"):
        one, zero = (f"cast({number}, {dtype})" for number in (1, 0))
    text = FUNCTIONS[name].format(
        a=a, b=b, c=c, t=dtype, one=one, zero=zero, last_a=a - 1, last_b=b - 1
    )
    return ir.parse(text, name)
