"""The passes before fusion, in their order: tensor IR in, tensor IR out, the verifier after each.

What shares a kernel is `fuse`'s question, and what the passes do is theirs to say.
"""

from __future__ import annotations

from dmlc.ir import Function, verify
from dmlc.transform.factor import factor_separable, take_out_factors
from dmlc.transform.inverse_index import index_inverses
from dmlc.transform.open_sizes import settle_sizes
from dmlc.transform.saturate import saturate_positions
from dmlc.transform.simplify import simplify
from dmlc.transform.tabulate import Settled, settle
from dmlc.transform.tighten import tighten_bounds


def rewrite(function: Function, longest_row: int = 0) -> Function:
    """The passes before fusion, of a verified function: simplified, with sums over rows of at most
    `longest_row` elements taken by themselves, with short reductions, those whose points elements
    choose by an inverse index, with factors taken out of sums, and with positions of 32 bits."""
    simplified = simplify(function)
    verify(simplified, "simplify", function)
    sized = settle_sizes(simplified)
    verify(sized, "settle_sizes", simplified)
    settled = settle(sized)
    verify(settled.function, "settle", sized)
    separated = factor_separable(settled.function, longest_row, settled.known)
    verify(separated, "separate", settled.function)
    narrowed = tighten_bounds(separated, Settled(separated, settled.known))
    verify(narrowed, "narrow", separated)
    simplified = simplify(narrowed, simplified)
    verify(simplified, "simplify", narrowed)
    indexed = simplify(index_inverses(simplified), simplified)
    verify(indexed, "index_inverses", simplified)
    factored = simplify(take_out_factors(indexed), indexed)
    verify(factored, "take_out_factors", indexed)
    saturated = saturate_positions(factored)
    verify(saturated, "saturate_positions", factored)
    return saturated
