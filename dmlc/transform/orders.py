"""Orders of reductions that need not visit every point of each element: scans of rows, ranks that
put rows in order, and points that name their element by a key. All other reductions are plain.

Fusion finds the order of each reduction once, and `lowering.group` has the kernels of each.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from dmlc.ir import Function
from dmlc.transform.cost import Budget
from dmlc.transform.ranked import Sorted, find_sorted
from dmlc.transform.scans import Scan, find_rows
from dmlc.transform.scatter import Keyed, find_keyed

Order: TypeAlias = Scan | Sorted | Keyed
"""Order of a reduction that is not plain."""
_USUAL = Budget()


def find_orders(
    function: Function, budget: Budget = _USUAL, among: Collection[str] = ()
) -> list[Order]:
    """Orders of the reductions that are not plain, of all or `among` some. Stages that read ranks
    belong to the order of these."""
    found: list[Order] = []
    taken: set[str] = set()
    for stage in function.stages:
        left_out = among and stage.name not in among
        if stage.reduction is None or left_out or stage.name in taken:
            continue
        orders = (find(function, stage, budget) for find in (find_rows, find_sorted, find_keyed))
        order = next((each for each in orders if each is not None), None)
        if order is not None:
            found.append(order)
            taken.update(order.names)
    return found
