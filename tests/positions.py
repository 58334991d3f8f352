"""Functions that compute with positions, as IR text, and whole-number inputs for them.

Whole numbers that stay small make every sum exact, so that devices must agree with the reference to
the bit, whatever the order.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from dmlc import ir
from dmlc.scalars import Array, DataType

FUNCTIONS = {
    "slice": """
        func @slice(%Input: f32[3, 9]) -> (%Output) {
          %Output: f32[i0 < 2, i1 < 4] = %Input[add(i0, 1), add(mul(i1, 2), 1)]
        }""",
    "flip": """
        func @flip(%Input: f32[5, 7]) -> (%Output) {
          %Output: f32[i0 < 5, i1 < 7] = %Input[i0, sub(6, i1)]
        }""",
    "pad": """
        func @pad(%Input: f32[4, 5]) -> (%Output) {
          %Output: f32[i0 < 7, i1 < 8] = select(
            and(and(ge(sub(i0, 1), 0), lt(sub(i0, 1), 4)),
                and(ge(sub(i1, 2), 0), lt(sub(i1, 2), 5))),
            %Input[min(max(sub(i0, 1), 0), 3), min(max(sub(i1, 2), 0), 4)], -1.0)
        }""",
    "space_to_depth": """
        func @space_to_depth(%Input: f32[2, 3, 4, 6]) -> (%Output) {
          %Output: f32[i0 < 2, i1 < 12, i2 < 2, i3 < 3] =
            %Input[i0, mod(i1, 3), add(mul(i2, 2), div(div(i1, 3), 2)),
                   add(mul(i3, 2), mod(div(i1, 3), 2))]
        }""",
    "gather": """
        func @gather(%Input: f32[6, 5], %Indices: s32[4, 3]) -> (%Output) {
          %index: s32[i0 < 4, i1 < 3] = select(lt(%Indices[i0, i1], cast(0, s32)),
            add(%Indices[i0, i1], cast(6, s32)), %Indices[i0, i1])
          %Output: f32[i0 < 4, i1 < 3, i2 < 5] =
            %Input[min(max(cast(%index[i0, i1], index), 0), 5), i2]
        }""",
    "gather_unsigned": """
        func @gather_unsigned(%Input: s32[6, 5], %Indices: u32[4]) -> (%Output) {
          %Output: s32[i0 < 4, i1 < 5] =
            %Input[min(max(cast(%Indices[i0], index), 0), 5), i1]
        }""",
    "gather_wrapped": """
        func @gather_wrapped(%Input: s32[6, 5], %Indices: u32[4]) -> (%Output) {
          %Output: s32[i0 < 4, i1 < 5] = %Input[mod(cast(%Indices[i0], index), 6), i1]
        }""",
    "gather_fraction": """
        func @gather_fraction(%Input: f32[9], %Places: f32[12]) -> (%Output) {
          %Output: f32[i0 < 12] = %Input[min(max(cast(floor(%Places[i0]), index), 0), 8)]
        }""",
    "ramp": """
        func @ramp() -> (%Output) {
          %Output: f32[i0 < 5, i1 < 4] = div(cast(sub(mul(i0, 4), mul(i1, 3)), f32), 2.0)
        }""",
    "diagonal": """
        func @diagonal() -> (%Output) {
          %Output: s32[i0 < 5, i1 < 4] =
            select(eq(add(i0, 1), i1), cast(7, s32), cast(0, s32))
        }""",
    "average_pool": """
        func @average_pool(%Input: f32[2, 3, 9, 8]) -> (%Output) {
          %Output: f32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] =
            sum[r0 < 3, r1 < 2 where and(
                and(ge(sub(add(mul(i2, 2), r0), 1), 0), lt(sub(add(mul(i2, 2), r0), 1), 9)),
                and(ge(add(mul(i3, 2), r1), 0), lt(add(mul(i3, 2), r1), 8)))]
              %Input[i0, i1, sub(add(mul(i2, 2), r0), 1), add(mul(i3, 2), r1)]
        }""",
    "max_pool_place": """
        func @max_pool_place(%Input: f32[2, 3, 9, 8]) -> (%Output, %Place) {
          %Output: f32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] =
            max[r0 < 3, r1 < 3 where and(
                and(ge(sub(add(mul(i2, 2), r0), 1), 0), lt(sub(add(mul(i2, 2), r0), 1), 9)),
                and(ge(sub(add(mul(i3, 2), r1), 1), 0), lt(sub(add(mul(i3, 2), r1), 1), 8)))]
              %Input[i0, i1, sub(add(mul(i2, 2), r0), 1), sub(add(mul(i3, 2), r1), 1)]
          %Place: u32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] =
            argmax[r0 < 3, r1 < 3 where and(
                and(ge(sub(add(mul(i2, 2), r0), 1), 0), lt(sub(add(mul(i2, 2), r0), 1), 9)),
                and(ge(sub(add(mul(i3, 2), r1), 1), 0), lt(sub(add(mul(i3, 2), r1), 1), 8)))]
              %Input[i0, i1, sub(add(mul(i2, 2), r0), 1), sub(add(mul(i3, 2), r1), 1)]
        }""",
    "arg_window": """
        func @arg_window(%Input: f32[2, 21, 40]) -> (%Place, %Value) {
          %Place: s32[i0 < 2, i1 < 11, i2 < 20] = argmax[r0 < 21, r1 < 40] {
            v0 = sub(add(r0, 1), mul(i1, 2))
            v1 = sub(add(r1, 1), mul(i2, 2))
            where and(and(ge(v0, 0), lt(v0, 3)), and(ge(v1, 0), lt(v1, 3)))
            %Input[i0, r0, r1]
          }
          %Value: f32[i0 < 2, i1 < 11, i2 < 20] = {
            v0 = cast(%Place[i0, i1, i2], index)
            %Input[i0, div(v0, 40), mod(v0, 40)]
          }
        }""",
    "arg_window_empty": """
        func @arg_window_empty(%Input: s32[9, 30]) -> (%Place) {
          %Place: s64[i0 < 7, i1 < 23] = argmin[r0 < 9, r1 < 30] {
            v0 = sub(add(r0, 4), mul(i0, 3))
            v1 = sub(add(r1, 5), mul(i1, 2))
            where and(and(and(ge(v0, 0), lt(v0, 3)), eq(mod(v0, 2), 0)), and(ge(v1, 0), lt(v1, 4)))
            %Input[r0, r1]
          }
        }""",
    "arg_window_masked": """
        func @arg_window_masked(%Input: f32[9, 30], %Mask: f32[9, 30]) -> (%Place) {
          %Place: u32[i0 < 5, i1 < 28] = argmax[r0 < 9, r1 < 30 where and(and(
              and(ge(r0, mul(i0, 2)), lt(r0, add(mul(i0, 2), 2))),
              and(ge(r1, i1), lt(r1, add(i1, 3)))), gt(%Mask[r0, r1], 4.0))] %Input[r0, r1]
        }""",
    "chosen_window": """
        func @chosen_window(%Input: f32[50]) -> (%Output) {
          %Output: f32[i0 < 24] = min[r0 < 50] {
            v0 = sub(r0, mul(i0, 2))
            select(and(ge(v0, 0), lt(v0, 3)), %Input[r0], inf)
          }
        }""",
    "summed_weights": """
        func @summed_weights(%Input: f32[3, 20]) -> (%Output) {
          %weight: f32[i0 < 40, i1 < 20] = sum[r0 < 4] {
            v0 = sub(cast(div(i0, 2), index), 1)
            where eq(min(max(add(v0, r0), 0), 19), i1)
            add(cast(mod(add(i0, r0), 3), f32), 1.0)
          }
          %Output: f32[i0 < 3, i1 < 40] = sum[r1 < 20 where ne(%weight[i1, r1], 0.0)]
            mul(%Input[i0, r1], %weight[i1, r1])
        }""",
    "pool_without_edges": """
        func @pool_without_edges(%Input: f32[2, 3, 9, 8]) -> (%Output) {
          %total: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 4] =
            sum[r0 < 3, r1 < 2] %Input[i0, i1, add(mul(i2, 2), r0), add(mul(i3, 2), r1)]
          %Output: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 4] = mul(%total[i0, i1, i2, i3], 0.5)
        }""",
    "nearest_grad": """
        func @nearest_grad(%dY: f32[2, 3, 8, 12]) -> (%dX) {
          %dX: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 5] =
            sum[r0 < 8, r1 < 12 where and(eq(div(r0, 2), i2), eq(div(mul(r1, 5), 12), i3))]
              %dY[i0, i1, r0, r1]
        }""",
    "linear_grad": """
        func @linear_grad(%dY: f32[2, 3, 8, 6]) -> (%dX) {
          %dX: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 3] = sum[r0 < 8, r1 < 6 where and(
              ne(max(sub(1.0, abs(sub(div(sub(cast(r0, f32), 0.5), 2.0),
                cast(i2, f32)))), 0.0), 0.0),
              ne(max(sub(1.0, abs(sub(div(sub(cast(r1, f32), 0.5), 2.0),
                cast(i3, f32)))), 0.0), 0.0))]
            mul(mul(
              max(sub(1.0, abs(sub(div(sub(cast(r0, f32), 0.5), 2.0), cast(i2, f32)))), 0.0),
              max(sub(1.0, abs(sub(div(sub(cast(r1, f32), 0.5), 2.0), cast(i3, f32)))), 0.0)),
              %dY[i0, i1, r0, r1])
        }""",
    "linear": """
        func @linear(%X: f32[2, 3, 4, 3]) -> (%Y) {
          %Y: f32[i0 < 2, i1 < 3, i2 < 8, i3 < 6] = {
            y = sub(div(add(cast(i2, f32), 0.5), 2.0), 0.5)
            x = sub(div(add(cast(i3, f32), 0.5), 2.0), 0.5)
            dy = sub(y, floor(y))
            dx = sub(x, floor(x))
            y0 = min(max(cast(floor(y), index), 0), 3)
            y1 = min(max(add(cast(floor(y), index), 1), 0), 3)
            x0 = min(max(cast(floor(x), index), 0), 2)
            x1 = min(max(add(cast(floor(x), index), 1), 0), 2)
            top = add(mul(%X[i0, i1, y0, x0], sub(1.0, dx)), mul(%X[i0, i1, y0, x1], dx))
            bottom = add(mul(%X[i0, i1, y1, x0], sub(1.0, dx)), mul(%X[i0, i1, y1, x1], dx))
            add(mul(top, sub(1.0, dy)), mul(bottom, dy))
          }
        }""",
    "irregular": """
        func @irregular(%X: f32[3, 40]) -> (%Y) {
          %Y: f32[i0 < 3, i1 < 6] =
            sum[r0 < 40 where eq(mod(mul(r0, r0), 17), add(i1, 1))] %X[i0, r0]
        }""",
    "interlaced": """
        func @interlaced(%dY: f32[3, 20]) -> (%dX) {
          %dX: f32[i0 < 3, i1 < 60] = sum[r0 < 20, r1 < 4 where
            eq(add(mul(r0, 3), r1), i1)] %dY[i0, r0]
        }""",
    "strided_window": """
        func @strided_window(%dY: f32[3, 20]) -> (%dX) {
          %dX: f32[i0 < 3, i1 < 10] = sum[r0 < 20 where and(eq(mod(r0, 2), 1),
            and(le(sub(mul(i1, 2), 3), r0), lt(r0, add(mul(i1, 2), 6))))] %dY[i0, r0]
        }""",
    "one_place": """
        func @one_place(%X: f32[3, 20]) -> (%Y) {
          %Y: f32[i0 < 3, i1 < 10] = sum[r0 < 20 where eq(r0, add(mul(i1, 2), 1))] %X[i0, r0]
        }""",
    "mean_of_valid": """
        func @mean_of_valid(%X: f32[3, 8]) -> (%Y) {
          %count: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where and(ge(sub(add(i1, r0), 1), 0),
            lt(sub(add(i1, r0), 1), 8))] 1.0
          %sum: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where and(ge(sub(add(i1, r0), 1), 0),
            lt(sub(add(i1, r0), 1), 8))] %X[i0, sub(add(i1, r0), 1)]
          %Y: f32[i0 < 3, i1 < 8] = mul(%sum[i0, i1], %count[i0, i1])
        }""",
    "count": """
        func @count() -> (%Output) {
          %Output: s32[i0 < 5] =
            sum[r0 < 3 where and(ge(sub(add(i0, r0), 1), 0), lt(sub(add(i0, r0), 1), 5))]
              cast(1, s32)
        }""",
    "first_above": """
        func @first_above(%Input: f32[4, 9], %Bounds: f32[4]) -> (%Output) {
          %Output: f32[i0 < 4, i1 < 9] =
            min[r0 < 9 where and(and(ge(add(i1, r0), 2), lt(add(i1, r0), 11)),
                gt(%Input[i0, sub(add(i1, r0), 2)], %Bounds[i0]))]
              %Input[i0, sub(add(i1, r0), 2)]
        }""",
    "prologue": """
        func @prologue(%Input: f32[3, 8], %Scale: f32[3, 8]) -> (%Output, %Sum) {
          %scaled: f32[i0 < 3, i1 < 8] = mul(%Input[i0, i1], %Scale[i0, i1])
          %sum: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where lt(add(i1, r0), 8)]
            %scaled[i0, add(i1, r0)]
          %Sum: f32[i0 < 3, i1 < 8] = add(%sum[i0, i1], %Input[i0, i1])
          %Output: f32[i0 < 3, i1 < 8] = max(%Sum[i0, i1], 0.0)
        }""",
    "two_guards": """
        func @two_guards(%Input: f32[3, 8]) -> (%Next, %Last) {
          %Next: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where lt(add(i1, r0), 8)] %Input[i0, add(i1, r0)]
          %Last: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where ge(sub(i1, r0), 0)] %Input[i0, sub(i1, r0)]
        }""",
    "guarded_by_output": """
        func @guarded_by_output(%Input: f32[5]) -> (%Output) {
          %Output: f32[i0 < 9] = sum[r0 < 2 where lt(i0, 5)] %Input[i0]
        }""",
    "two_steps": """
        func @two_steps(%Input: f32[3, 8]) -> (%Output) {
          %sum: f32[i0 < 3, i1 < 8] = sum[r0 < 3 where lt(add(i1, r0), 8)] %Input[i0, add(i1, r0)]
          %Output: f32[i0 < 3, i1 < 4] = max[r0 < 2] %sum[i0, add(mul(i1, 2), r0)]
        }""",
    "empty": """
        func @empty(%Input: f32[3, 0]) -> (%Output, %Product) {
          %Output: f32[i0 < 3] = sum[r0 < 0] %Input[i0, r0]
          %Product: f32[i0 < 3] = product[r0 < 0] %Input[i0, r0]
        }""",
    "nothing": """
        func @nothing(%Input: f32[0, 3]) -> (%Output) {
          %Output: f32[i0 < 0] = sum[r0 < 2] %Input[i0, add(r0, 1)]
        }""",
    "strided": """
        func @strided(%Input: f32[3, 4]{1, 3}) -> (%Output{1, 4}) {
          %Output: f32[i0 < 4, i1 < 3] = %Input[i1, sub(3, i0)]
        }""",
    "all_and_any": """
        func @all_and_any(%Input: f32[3, 8]) -> (%Output) {
          %all: bool[i0 < 3, i1 < 8] = all[r0 < 3 where lt(add(i1, r0), 8)]
            gt(%Input[i0, add(i1, r0)], 0.0)
          %any: bool[i0 < 3, i1 < 8] = any[r0 < 3 where lt(add(i1, r0), 8)]
            gt(%Input[i0, add(i1, r0)], 0.0)
          %Output: f32[i0 < 3, i1 < 8] =
            add(cast(%all[i0, i1], f32), mul(cast(%any[i0, i1], f32), 2.0))
        }""",
    "short_rows": """
        func @short_rows(%X: f32[7, 33, 3]) -> (%Y) {
          %sum: f32[i0 < 33, i1 < 3] = sum[r0 < 7] %X[r0, i0, i1]
          %all: f32[i0 < 7, i1 < 33] = sum[r0 < 3] add(%X[i0, i1, r0], %sum[i1, r0])
          %most: f32[i0 < 33] = max[r0 < 3] %sum[i0, r0]
          %Y: f32[i0 < 7, i1 < 33] = add(%all[i0, i1], %most[i1])
        }""",
    "short_windows": """
        func @short_windows(%X: f32[32, 50], %Z: f32[7, 32, 48]) -> (%Y) {
          %most: f32[i0 < 32, i1 < 48] = max[r0 < 3] %X[i0, add(i1, r0)]
          %Y: f32[i0 < 7, i1 < 32, i2 < 48] = add(%Z[i0, i1, i2], %most[i1, i2])
        }""",
    "even_after_a_sum": """
        func @even_after_a_sum(%X: f32[16]) -> (%Y) {
          %sum: f32[i0 < 9] = sum[r0 < 4, r1 < 2 where and(gt(r0, i0), gt(r1, r0))] %X[r1]
          %Y: f32[i0 < 9] = mul(%sum[i0], %X[sub(i0, mod(i0, 2))])
        }""",
    "every_second_of_a_sum": """
        func @every_second_of_a_sum(%X: f32[9, 16]) -> (%Y) {
          %sum: f32[i0 < 9] = sum[r0 < 4] %X[i0, r0]
          %Y: f32[i0 < 9, i1 < 16] = mul(%sum[i0], %X[sub(i0, mod(i0, 2)), sub(i1, mod(i1, 4))])
        }""",
    "even_at_unknown": """
        func @even_at_unknown(%X: f32[8], %J: s32[4]) -> (%Y) {
          %even: f32[i0 < 8] = mul(%X[sub(i0, mod(i0, 2))], 2.0)
          %Y: f32[i0 < 4] = %even[min(max(cast(%J[i0], index), 0), 7)]
        }""",
    "else_at_unknown": """
        func @else_at_unknown(%X: f32[8], %J: s32[4]) -> (%Y) {
          %square: f32[i0 < 9, i1 < 9] =
            select(lt(mul(i0, i1), 8), %X[min(mul(i0, i1), 7)], -2.0)
          %even: f32[i0 < 9] = %square[i0, sub(i0, mod(i0, 2))]
          %Y: f32[i0 < 4] = sum[r0 < 3] %even[min(max(add(cast(%J[i0], index), r0), 0), 8)]
        }""",
    "fraction_at_unknown": """
        func @fraction_at_unknown(%X: f32[9], %J: s32[4]) -> (%Y) {
          %part: f32[i0 < 8, i1 < 3] = {
            v0 = mul(ceil(div(add(cast(i0, f32), 0.5), 2.5)), cast(i1, f32))
            select(lt(v0, 8.5), %X[cast(v0, index)], -2.0)
          }
          %Y: f32[i0 < 4] = %part[min(max(cast(%J[i0], index), 0), 7), mod(i0, 3)]
        }""",
    "guarded_rows": """
        func @guarded_rows(%X: f32[9, 7]) -> (%Y) {
          %most: f32[i0 < 1] = max[r0 < 10, r1 < 2 where lt(add(r0, r1), 9)] %X[r0, 6]
          %least: f32[i0 < 1] = min[r0 < 1] sub(1.0, %most[0])
          %Y: f32[i0 < 4] = %least[0]
        }""",
    "guarded_factor": """
        func @guarded_factor(%X: f32[5], %Z: f32[2]) -> (%Y) {
          %Y: f32[i0 < 9] = sum[r0 < 2 where lt(i0, 5)] mul(%X[i0], %Z[r0])
        }""",
    "factor_at_unknown": """
        func @factor_at_unknown(%X: f32[8], %Z: f32[2], %J: s32[4]) -> (%Y) {
          %even: f32[i0 < 8, i1 < 2] = mul(%X[sub(i0, mod(i0, 2))], %Z[i1])
          %Y: f32[i0 < 4] = sum[r0 < 2]
            mul(%even[min(max(cast(%J[i0], index), 0), 7), r0], %Z[r0])
        }""",
    "segments": """
        func @segments(%Starts: s32[6], %X: f32[12, 20]) -> (%Y) {
          %Y: f32[i0 < 5, i1 < 20] = sum[r0 < 12 where and(
              ge(r0, cast(%Starts[i0], index)), lt(r0, cast(%Starts[add(i0, 1)], index)))]
            %X[r0, i1]
        }""",
    "segments_by_length": """
        func @segments_by_length(%First: s32[7], %Length: s32[7], %X: f32[3, 12]) -> (%Y) {
          %Y: f32[i0 < 7] = max[r0 < 3, r1 < 12 where and(and(
              le(cast(%First[i0], index), r1),
              lt(r1, add(cast(%First[i0], index), cast(%Length[i0], index)))), ne(r0, 1))]
            %X[r0, r1]
        }""",
    "segments_unsigned": """
        func @segments_unsigned(%Before: u32[4], %Last: u32[4], %X: s32[9, 30]) -> (%Y, %Z) {
          %Y: s32[i0 < 4, i1 < 30] = sum[r0 < 9 where and(
              gt(r0, cast(%Before[i0], index)), ge(cast(%Last[sub(3, i0)], index), r0))]
            %X[r0, i1]
          %Z: s32[i0 < 30] = argmin[r0 < 9 where le(r0, cast(%Last[1], index))] %X[r0, i0]
        }""",
    "chosen_points": """
        func @chosen_points(%I: s32[9], %dY: f32[9, 5]) -> (%dX) {
          %dX: f32[i0 < 4, i1 < 5] = sum[r0 < 9]
            select(eq(%I[r0], cast(i0, s32)), %dY[r0, i1], 0.0)
        }""",
    "operations": """
        func @operations(%Input: f32[40]) -> (%Output) {
          %Output: s32[i0 < 9, i1 < 7] = add(
            mul(cast(div(sub(i0, 4), sub(i1, 3)), s32), cast(100, s32)),
            add(cast(mod(sub(i0, 4), sub(i1, 3)), s32),
                cast(add(abs(sub(i0, 4)), sign(sub(i1, 3))), s32)))
        }""",
}


def read(name: str) -> ir.Function:
    return ir.parse(FUNCTIONS[name], name)


def make_inputs(function: ir.Function) -> dict[str, Array]:
    """Small whole numbers; for tensors of integers, which serve as positions, some that lie
    outside; for `Places` fractions, and what is no number."""
    return {p.name: _make(p) for p in function.parameters}


def _make(parameter: ir.Parameter) -> Array:
    shape = tuple(e for e in parameter.extents if isinstance(e, int))
    random = np.random.default_rng(zlib.crc32(parameter.name.encode()))
    if parameter.name == "Places":
        special = [np.inf, -np.inf, 1e30, -1e30]
        return np.resize([*special, *(random.random(8) * 12 - 2)], shape).astype(np.float32)
    if parameter.dtype is DataType.UINT32:
        return np.resize([1, 5, 2**32 - 1, 0], shape).astype(np.uint32)
    made = random.integers(-9, 10, shape).astype(parameter.dtype.dtype)
    if parameter.strides is None:
        return made
    return np.asfortranarray(made)


def find_differences(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> list[str]:
    """The results that are not equal to the bit, but for the sign of a zero."""
    return [
        f"{name}: {got[name]} is not {array}"
        for name, array in wanted.items()
        if got[name].dtype != array.dtype or not np.array_equal(got[name], array, equal_nan=True)
    ]
