"""The JSON form of a fusion: a function, the stages of each kernel with the reason, and the bytes
that each kernel moves."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from dmlc.ir import Function, find_fault
from dmlc.ir.json import NOUNS, SHAPES, TUPLES
from dmlc.ir.records import Format, Records, Shape, find_fields
from dmlc.ir.schema import describe
from dmlc.parameters import expect, expect_text
from dmlc.source import DmlcError, check_known
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, Group
from dmlc.transform.orders import find_orders
from dmlc.transform.traffic import Move


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """Stages of one kernel in order of computation, the reason why they are one, and the bytes that
    it moves by tensor (null if a size is known at run time only)."""

    group: Group
    moves: tuple[Move, ...]


def fusion_to_json(fusion: Fusion) -> str:
    """Fusion as JSON text, indented by two."""
    return _RECORDS.write(expect("fusion", fusion, Fusion, "a dmlc.compiler.Fusion"))


def fusion_from_json(text: str) -> Fusion:
    """Fusion from the text that `fusion_to_json` wrote. Raises `DmlcError` for any other text."""
    fusion = _RECORDS.read(expect_text("text", text), Fusion)
    for name, function in (("function", fusion.function), ("unfused", fusion.unfused)):
        fault = find_fault(function)
        if fault is not None:
            raise DmlcError(f"'{name}' breaks a rule of the IR at {fault.node}: {fault.why}")
    stages = [stage.name for stage in fusion.function.stages]
    budgets = (Budget(walks=walks) for walks in (False, True))
    found = (order for budget in budgets for order in find_orders(fusion.function, budget))
    known, groups = {str(order): order for order in found}, list[Group]()
    for number, group in enumerate(fusion.groups):
        texts = cast("tuple[str, ...]", group.orders)
        check_known(f"stage of kernel {number}", stages, *group.stages)
        check_known(f"order of kernel {number}", known, *texts)
        groups.append(dataclasses.replace(group, orders=tuple(known[text] for text in texts)))
    return dataclasses.replace(fusion, groups=tuple(groups))


def fusion_schema() -> dict[str, Any]:
    """JSON Schema of the documents that `fusion_to_json` writes."""
    return describe(_RECORDS, Fusion, "A function of dmlc's tensor IR, grouped into kernels")


def _take(fusion: Fusion) -> dict[str, Any]:
    kernels = tuple(Kernel(group, fusion.list_moves(group)) for group in fusion.groups)
    return {"function": fusion.function, "kernels": kernels, "unfused": fusion.unfused}


def _make(fields: dict[str, Any], _: str) -> Fusion:
    kernels = cast("tuple[Kernel, ...]", fields["kernels"])
    return Fusion(fields["function"], tuple(k.group for k in kernels), fields["unfused"])


def _take_kernel(kernel: Kernel) -> dict[str, Any]:
    own = {name: getattr(kernel.group, name) for name in find_fields(Group)}
    return {**own, "orders": tuple(map(str, kernel.group.orders)), "moves": kernel.moves}


def _make_kernel(fields: dict[str, Any], _: str) -> Kernel:
    moves = cast("tuple[Move, ...]", fields.pop("moves"))
    return Kernel(Group(**fields), moves)


_FUSION = {"function": Function, "kernels": tuple[Kernel, ...], "unfused": Function}
_KERNEL = {**find_fields(Group), "orders": tuple[str, ...], "moves": tuple[Move, ...]}
_RECORDS = Records(
    {
        **SHAPES,
        Fusion: Shape(_FUSION, _make, _take),
        Kernel: Shape(_KERNEL, _make_kernel, _take_kernel),
    },
    {},
    NOUNS,
    {**TUPLES, "axes": "pairs of an axis, and its extent or the dimension that it is"},
    Format("a fusion's JSON form", (3, 0)),
)
