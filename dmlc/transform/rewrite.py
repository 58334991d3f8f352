"""The passes before fusion, in their order: tensor IR in, tensor IR out, the verifier after each.

What shares a kernel is `fuse`'s question, and what the passes do is theirs to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dmlc.ir import Function, verify
from dmlc.parameters import expect
from dmlc.scalars import Array
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
"""The names of the passes, in their order."""

_SIMPLIFIED = ("narrow", "split_walks", "index_inverses", "take_out_factors", "read_one_place")
"""Those that simplification follows."""


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
    known: Mapping[str, Array] = {}

    def find_known(function: Function) -> Function:
        nonlocal known
        settled = settle(function)
        known = settled.known
        return settled.function

    def index(function: Function) -> Function:
        walked = list_walked(function) if walks else list_ordered(function, walks=False)
        return index_inverses(function, walked, walks=walks)

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
