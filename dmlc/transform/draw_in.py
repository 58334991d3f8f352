"""Computes stages where they are read, as far as the bodies that result stay small enough.

Which stages had better be stored is `weigh`'s to say; here more of them are, where a body would
have too many instructions, read too many tensors, or compute one stage at too many places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from dmlc.ir import Function, Stage
from dmlc.transform.budget import Budget, count_loaded
from dmlc.transform.clamp import clamp_reads
from dmlc.transform.inline import MOST_PLACES, Inlined, TooManyPlacesError, inline_within
from dmlc.transform.simplify import list_live


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """The stages that are left, and what became of the others."""

    stages: tuple[Stage, ...]
    """Those that results depend on, in the function's order."""
    computed: Mapping[str, tuple[str, ...]]
    """What each of them computes itself."""
    reasons: Mapping[str, str]
    """Why some of them are not computed where they are read."""


def draw_in(
    function: Function,
    inlinable: Mapping[str, Stage],
    stored: Mapping[str, str],
    shared: Iterable[str],
    budget: Budget,
) -> Drawn:
    """The function's stages with what they read drawn into them: every inlinable stage but those
    `stored`, each for its reason, those `shared`, and those that would make a body too large."""
    results = {r.name for r in function.results}
    reasons = dict(stored)
    held = {*stored, *shared}
    inlined = {name: s for name, s in inlinable.items() if name not in held}
    stages = {s.name: s for s in function.stages}
    bodies: dict[str, Inlined] = {}
    users: dict[str, list[str]] = {}
    pending = [r.name for r in reversed(function.results)]
    while pending:
        name = pending.pop()
        if name in bodies:
            continue
        made, crowded = _draw(stages[name], inlined, budget)
        bodies[name] = made
        for computed in made.computed:
            users.setdefault(computed, []).append(name)
        for gone in (*crowded, *made.left):
            reasons[gone] = _explain(gone, gone in crowded, budget)
            inlined.pop(gone, None)
            # Whoever has computed it so far reads it instead.
            pending += [u for u in users.pop(gone, []) if bodies.pop(u, None) is not None]
        pending += [load.tensor for load in made.body.loads() if load.tensor in stages]
    made_of = [
        dataclasses.replace(s, body=bodies[s.name].body)
        for s in function.stages
        if s.name in bodies
    ]
    computed_in = {name: made.computed for name, made in bodies.items()}
    live = list_live(made_of, results)
    return Drawn(clamp_reads(function, live), computed_in, reasons)


def _explain(stage: str, is_crowded: bool, budget: Budget) -> str:
    if is_crowded:
        return f"%{stage} is read at more than {MOST_PLACES} places of one stage"
    return (
        f"%{stage} is stored, for a kernel holds about {budget.most_instructions:,} instructions "
        f"and {budget.most_buffers:,} tensors"
    )


def _draw(
    stage: Stage, inlined: Mapping[str, Stage], budget: Budget
) -> tuple[Inlined, tuple[str, ...]]:
    """One stage with what it reads drawn in, and what it wants at too many places for that."""
    crowded: dict[str, None] = {}
    tensors = max(2, budget.most_buffers - 1)
    while True:
        own = {n: s for n, s in inlined.items() if n not in crowded} if crowded else inlined
        try:
            made = inline_within(stage, own, budget.most_instructions, tensors)
        except TooManyPlacesError as found:
            crowded[found.stage] = None
            continue
        if tensors == 1 or count_loaded(made.body) < budget.most_buffers:
            return made, tuple(crowded)
        tensors -= max(1, tensors // 4)
