"""Says in words why stages share a kernel, or why one has memory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import Stage

_SHOWN = 4
"""Tensors named in a reason, at most."""


def explain(
    stages: Sequence[Stage],
    homes: Mapping[str, object],
    inlined: Sequence[str],
    near: Sequence[str],
    reasons: Mapping[str, str],
    results: set[str],
    on_way: Sequence[str] = (),
) -> tuple[str, ...]:
    """Why these stages are a group, clause by clause. `homes` has every stage that belongs to a
    group, `inlined` names what they compute where they read it, and `near` those of them that take
    no memory; `on_way` are those computed in passes that fold. `reasons` says why some stages are
    stored."""
    folds = [s for s in stages if s.reduction is not None]
    first = folds[0] if folds else stages[0]
    clauses: list[str] = []
    if first.reduction is not None:
        clauses.append(f"%{first.name} is a reduction ({first.reduction.combiner})")
        if first.name in reasons:
            clauses.append(reasons[first.name])
    elif first.name in results:
        clauses.append(f"%{first.name} leaves the function")
    elif first.name in reasons:
        clauses.append(reasons[first.name])
    elif first.name in near:
        clauses.append(f"%{first.name} is read by several stages over its own points")
    else:
        clauses.append(f"%{first.name} is read by several kernels, as one would be too large")
    # What is at hand is not stored, whatever it was to be, and results are stored anyway.
    plain = {first.name, *near, *results.intersection(on_way)}
    clauses += [reasons[s.name] for s in stages if s.name in reasons and s.name not in plain]
    own = {s.name for s in stages}
    given = own.difference(on_way)
    after = [
        s
        for s in stages
        if s.name in given and any(load.tensor in given for load in s.body.loads())
    ]
    others = [s for s in stages if s is not first and s.name in given and s not in after]
    for done, names in (
        ("computed", [n for n in on_way if n in near]),
        ("stored", [n for n in on_way if n not in near]),
    ):
        if names:
            clauses.append(f"{_list(names)} {_is(names)} {done} on the way")
    if others:
        clauses.append(f"{_list(s.name for s in others)} {_is(others)} computed beside it")
    if after:
        clauses.append(f"{_list(s.name for s in after)} {_is(after)} computed from it at once")
    waits = dict.fromkeys(
        load.tensor
        for s in stages
        for load in s.body.loads()
        if load.tensor in homes and load.tensor not in own and load.tensor not in near
    )
    if waits:
        clauses.append(f"the kernel runs after {_list(waits)} {_is(list(waits))} stored")
    if inlined:
        clauses.append(f"{_list(inlined)} {_is(inlined)} computed where read")
    return tuple(dict.fromkeys(clauses))


def _list(names: Iterable[str]) -> str:
    """Names as in a sentence: `%a, %b and 7 more`."""
    shown = [f"%{name}" for name in names]
    more = len(shown) - _SHOWN
    if more > 0:
        return f"{', '.join(shown[:_SHOWN])} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _is(names: Sequence[object]) -> str:
    return "is" if len(names) == 1 else "are"
