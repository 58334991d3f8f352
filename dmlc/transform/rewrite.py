"""Pipeline of the passes over the tensor IR before fusion, with the verifier after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dmlc.ir import Function, verify
from dmlc.parameters import expect
from dmlc.scalars import Array
from dmlc.transform.cost import Budget
from dmlc.transform.factor import factor_separable, take_out_factors
from dmlc.transform.inverse_index import index_inverses
from dmlc.transform.one_place import read_one_place
from dmlc.transform.open_sizes import settle_sizes
from dmlc.transform.order import sort_by_ranks
from dmlc.transform.orders import find_orders
from dmlc.transform.rising import bisect_counts
from dmlc.transform.saturate import saturate_positions
from dmlc.transform.scans import scan_in_blocks
from dmlc.transform.scatter import split_walks
from dmlc.transform.simplify import simplify
from dmlc.transform.tabulate import Settled, settle
from dmlc.transform.tighten import tighten_bounds

PASSES = (
    "simplify", "settle_sizes", "bisect_counts", "scan_in_blocks", "sort_by_ranks", "settle",
    "separate", "narrow", "split_walks", "index_inverses", "take_out_factors", "read_one_place",
    "saturate_positions",
)  # fmt: skip
"""Names of the passes, in order."""

_SIMPLIFIED = ("narrow", "split_walks", "index_inverses", "take_out_factors", "read_one_place")
"""Passes that are followed by simplification."""


def rewrite(function: Function, longest_row: int = 0, *, walks: bool = False) -> Function:
    """Result of the passes before fusion for a verified function: simplification; separable sums
    over rows of at most `longest_row` elements; blocked scans and sorted rows; tightened
    reductions; reductions by inverse index, or by a work item that `walks` their points;
    loop-invariant factors moved out of sums; reductions of one point replaced by loads; and 32-bit
    indices."""
    expect("function", function, Function, "an ir.Function")
    for _, made in run_passes(function, longest_row, walks=walks):
        function = made
    return function


def run_passes(
    function: Function, longest_row: int = 0, *, walks: bool = False
) -> Iterator[tuple[str, Function]]:
    """The same pass by pass: the name of each of `PASSES`, and its verified result."""
    function.refuse_loops("'rewrite' takes functions without loops")
    known: Mapping[str, Array] = {}

    def find_known(function: Function) -> Function:
        nonlocal known
        settled = settle(function)
        known = settled.known
        return settled.function

    def index(function: Function) -> Function:
        orders = find_orders(function, Budget(walks=walks))
        return index_inverses(function, {name for order in orders for name in order.names})

    passes: tuple[Callable[[Function], Function], ...] = (
        simplify,
        settle_sizes,
        bisect_counts,
        lambda function: scan_in_blocks(function, whole=not walks),
        lambda function: sort_by_ranks(function, walks=walks),
        find_known,
        lambda function: factor_separable(function, longest_row, known),
        lambda function: tighten_bounds(function, Settled(function, known)),
        lambda function: split_walks(function) if walks else function,
        index,
        take_out_factors,
        read_one_place,
        saturate_positions,
    )
    simplified: Function | None = None
    for name, run in zip(PASSES, passes, strict=True):
        made = run(function)
        verify(made, name, function)
        if name in _SIMPLIFIED and made is not simplified:
            function, made = made, simplify(made, simplified)
            verify(made, "simplify", function)
        if name in ("simplify", *_SIMPLIFIED):
            simplified = made
        function = made
        yield name, made
