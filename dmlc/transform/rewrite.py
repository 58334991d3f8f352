"""The passes before fusion, in their order: tensor IR in, tensor IR out, the verifier after each.

What shares a kernel is `fuse`'s question, and what the passes do is theirs to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlc.ir import Function, verify
from dmlc.parameters import expect
from dmlc.transform.factor import factor_separable, take_out_factors
from dmlc.transform.inverse_index import index_inverses
from dmlc.transform.one_place import read_one_place
from dmlc.transform.open_sizes import settle_sizes
from dmlc.transform.order import sort_by_ranks
from dmlc.transform.ranked import list_ordered
from dmlc.transform.rising import bisect_counts
from dmlc.transform.saturate import saturate_positions
from dmlc.transform.scans import scan_in_blocks
from dmlc.transform.scatter import list_walked, split_walks
from dmlc.transform.simplify import simplify
from dmlc.transform.tabulate import Settled, settle
from dmlc.transform.tighten import tighten_bounds

PASSES = (
    "simplify", "settle_sizes", "bisect_counts", "scan_in_blocks", "sort_by_ranks", "settle",
    "separate", "narrow", "split_walks", "index_inverses", "take_out_factors", "read_one_place",
    "saturate_positions",
)  # fmt: skip
"""The names of the passes, in their order. Simplification follows most of them."""


def rewrite(function: Function, longest_row: int = 0, *, walks: bool = False) -> Function:
    """The passes before fusion, of a verified function: simplified, with sums over rows of at most
    `longest_row` elements taken by themselves, with prefix sums in blocks and rows in order, with
    short reductions, those whose points elements choose by an inverse index, or in the pieces that
    a work item `walks`, with factors taken out of sums, those that have one place along an axis
    read there, and with positions of 32 bits."""
    expect("function", function, Function, "an ir.Function")
    for _, made in run_passes(function, longest_row, walks=walks):
        function = made
    return function


def run_passes(
    function: Function, longest_row: int = 0, *, walks: bool = False
) -> Iterator[tuple[str, Function]]:
    """The same pass by pass: the name of each of `PASSES` and the function as it leaves it,
    verified."""
    function.refuse_loops("passes take what it has around loops and inside one by one")
    simplified = simplify(function)
    verify(simplified, "simplify", function)
    yield "simplify", simplified
    sized = settle_sizes(simplified)
    verify(sized, "settle_sizes", simplified)
    yield "settle_sizes", sized
    counted = bisect_counts(sized)
    verify(counted, "bisect_counts", sized)
    yield "bisect_counts", counted
    scanned = scan_in_blocks(counted, whole=not walks)
    verify(scanned, "scan_in_blocks", counted)
    yield "scan_in_blocks", scanned
    ordered = sort_by_ranks(scanned, walks=walks)
    verify(ordered, "sort_by_ranks", scanned)
    yield "sort_by_ranks", ordered
    settled = settle(ordered)
    verify(settled.function, "settle", ordered)
    yield "settle", settled.function
    separated = factor_separable(settled.function, longest_row, settled.known)
    verify(separated, "separate", settled.function)
    yield "separate", separated
    narrowed = tighten_bounds(separated, Settled(separated, settled.known))
    verify(narrowed, "narrow", separated)
    simplified = simplify(narrowed, simplified)
    verify(simplified, "simplify", narrowed)
    yield "narrow", simplified
    yield from _run_last(simplified, walks=walks)


def _run_last(simplified: Function, *, walks: bool) -> Iterator[tuple[str, Function]]:
    """The passes after `narrow`, which need nothing but the function."""
    split = simplify(split_walks(simplified), simplified) if walks else simplified
    verify(split, "split_walks", simplified)
    yield "split_walks", split
    walked = list_walked(split) if walks else list_ordered(split, walks=False)
    indexed = simplify(index_inverses(split, walked, walks=walks), split)
    verify(indexed, "index_inverses", split)
    yield "index_inverses", indexed
    factored = simplify(take_out_factors(indexed), indexed)
    verify(factored, "take_out_factors", indexed)
    yield "take_out_factors", factored
    placed = simplify(read_one_place(factored), factored)
    verify(placed, "read_one_place", factored)
    yield "read_one_place", placed
    saturated = saturate_positions(placed)
    verify(saturated, "saturate_positions", placed)
    yield "saturate_positions", saturated
