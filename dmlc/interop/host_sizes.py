"""Open sizes of a program in host code: their names, and the conditions on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dmlc.codegen.names import make_comment
from dmlc.interop.host_names import Names
from dmlc.program import Program


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """Open size, with its smallest and largest value."""

    name: str
    meaning: str
    least: int
    most: int


def describe_sizes(program: Program, names: Names) -> dict[str, Any]:
    """Facts about the open sizes, by the template's names for them."""
    symbols = [
        Symbol(names.symbols[name], make_comment(said["meaning"]), said.get("min", 0), said["max"])
        for name, said in program.manifest()["symbols"].items()
    ]
    conditions = _list_conditions(program, names, symbols)
    return {
        "symbols": symbols,
        "counter": names.symbols[program.counted] if program.counted else None,
        "conditions": conditions,
        "has_products": any(_find_head(names) in condition for condition in conditions),
    }


def _find_head(names: Names) -> str:
    """Name of the function that tests products."""
    return names.spelling.product_fits.partition("(")[0]


def _list_conditions(program: Program, names: Names, symbols: Sequence[Symbol]) -> list[str]:
    """Conditions that the runtime checks for sizes, in the language of the host."""
    most = program.max_count
    made: list[str] = []
    for symbol in symbols:
        member, number = names.spelling.member.format(symbol.name), names.spelling.number.format
        made += [f"{member} >= {number(symbol.least)}"] if symbol.least else []
        made.append(f"{member} <= {number(symbol.most)}")
    made += [names.spell_size(check) for check in program.checks]
    if program.counted:
        return made
    for tensor in program.tensors:
        factors = [e for e in tensor.extents if e != 1]
        # One symbol alone is held to its own end.
        if tensor.bytes is None and (len(factors) > 1 or not str(factors[0]).isidentifier()):
            made.append(names.spell_product_test(factors, most))
    for value in (each for each in program.formulas if not each.isidentifier()):
        made.append(f"{names.spell_size(value)} <= {names.spelling.number.format(most)}")
    return list(dict.fromkeys(made))
