"""Says in words why stages share a kernel, or why one has memory of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    first = next((s for s in stages if s.reduction is not None), stages[0])
    clauses: list[str] = []
    if first.reduction is not None:
        clauses.append(f"%{first.name} is a reduction ({first.reduction.combiner})")
        clauses += [reasons[first.name]] if first.name in reasons else []
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
    own = [s.name for s in stages]
    given = set(own).difference(on_way)
    read = {s.name: dict.fromkeys(load.tensor for load in s.body.loads()) for s in stages}
    after = [n for n in own if n in given and not given.isdisjoint(read[n])]
    beside = [n for n in own if n in given and n not in after and n != first.name]
    waits = dict.fromkeys(n for names in read.values() for n in names)
    clauses += _say([n for n in on_way if n in near], "computed on the way")
    clauses += _say([n for n in on_way if n not in near], "stored on the way")
    clauses += _say(beside, "computed beside it")
    clauses += _say(after, "computed from it at once")
    waits = [n for n in waits if n in homes and n not in own and n not in near]
    clauses += [f"the kernel runs after {clause}" for clause in _say(waits, "stored")]
    clauses += _say(inlined, "computed where read")
    return tuple(dict.fromkeys(clauses))


def _say(names: Sequence[str], done: str) -> list[str]:
    """That something is done with what the names stand for, as in `%a, %b and 7 more are done`;
    nothing where there are none."""
    shown = [f"%{name}" for name in names]
    if len(shown) > _SHOWN:
        shown = [", ".join(shown[:_SHOWN]), f"{len(shown) - _SHOWN} more"]
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
    return [f"{listed} {'is' if len(names) == 1 else 'are'} {done}"] if names else []
