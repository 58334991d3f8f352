"""Folding of chains of element-wise stages into one step each, for views with too many stages. In a
chain only the next stage reads each one, and nothing else computed there is read. The bytes of a
view are counted before it is folded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.picture.diagram import Kernel, Step, Transfer, View, add
from dmlc.picture.joint import Wire
from dmlc.picture.lettering import show_bytes

_SHORTEST = 3
"""Smallest number of stages that are folded."""


def count_steps(view: View) -> int:
    """Number of stages in all kernels of a view."""
    return sum(len(kernel.steps) for kernel in view.kernels)


def fold_chains(view: View, outputs: Sequence[str]) -> View:
    """View with its chains folded, within kernels and over kernels of one stage."""
    kernels = [_fold_steps(kernel) for kernel in view.kernels]
    return dataclasses.replace(view, kernels=tuple(_fold_kernels(kernels, outputs)))


def _fold_steps(kernel: Kernel) -> Kernel:
    """Kernel with its chains folded: a chain is a step with the name of its last stage."""
    stored = [t.step for t in kernel.writes]
    pairs = [(w.source, w.target) for w in kernel.wires if not w.from_memory]
    plain = [s.name for s in kernel.steps if not s.folds]
    chains = find_chains(plain, pairs, stored)
    last = {name: chain[-1] for chain in chains for name in chain}
    steps = {s.name: s for s in kernel.steps}
    ends = {chain[-1]: chain for chain in chains}
    wires = dict.fromkeys(
        Wire(w.source, last.get(w.target, w.target), w.from_memory)
        for w in kernel.wires
        if w.from_memory or w.source not in last or w.source in ends
    )
    kept = [n for n in steps if n not in last or n in ends]
    return dataclasses.replace(
        kernel,
        steps=tuple(_make_step(steps[n], ends.get(n, ())) for n in kept),
        wires=tuple(wires),
    )


def _make_step(step: Step, members: Sequence[str]) -> Step:
    if not members:
        return step
    formula = f"a chain of {len(members):,} stages, from {members[0]} to {members[-1]}"
    return dataclasses.replace(step, formula=formula, members=tuple(members))


def _fold_kernels(kernels: Sequence[Kernel], outputs: Sequence[str]) -> list[Kernel]:
    """Kernels of one stage, with chains of them as one kernel."""
    singles = {k.steps[0].name: k for k in kernels if _is_single(k)}
    made = {t.tensor for k in kernels for t in k.writes}
    pairs: list[tuple[str, str]] = []
    for kernel in kernels:
        pairs += [(t.tensor, kernel.steps[-1].name) for t in kernel.reads if t.tensor in made]
    chains = find_chains(list(singles), pairs, outputs)
    home = {name: chain for chain in chains for name in chain}
    found: list[Kernel] = []
    for kernel in kernels:
        chain = home.get(kernel.steps[0].name) if _is_single(kernel) else None
        if chain is None:
            found.append(kernel)
        elif kernel.steps[0].name == chain[-1]:
            found.append(_join([singles[name] for name in chain]))
    return found


def _is_single(kernel: Kernel) -> bool:
    alone = len(kernel.steps) == 1 and kernel.group is None
    return alone and not kernel.steps[0].folds and len(kernel.writes) == 1


def _join(kernels: Sequence[Kernel]) -> Kernel:
    """Kernel that stands for a chain."""
    inside = {k.steps[0].name for k in kernels[:-1]}
    reads: dict[str, list[Transfer]] = {}
    for kernel in kernels:
        for transfer in kernel.reads:
            if transfer.tensor not in inside:
                reads.setdefault(transfer.tensor, []).append(transfer)
    names = [k.steps[0].name for k in kernels]
    step = _make_step(kernels[-1].steps[0], names)
    return Kernel(
        f"{kernels[0].label} to {kernels[-1].label}",
        sum(k.launches for k in kernels),
        (dataclasses.replace(step, formula=f"{step.formula}, a kernel each"),),
        tuple(Wire(name, step.name, True) for name in reads),
        tuple(_add(same) for same in reads.values()),
        kernels[-1].writes,
    )


def _add(transfers: Sequence[Transfer]) -> Transfer:
    """Transfer that sums all reads of one tensor."""
    if len(transfers) == 1:
        return transfers[0]
    size = add(t.bytes for t in transfers)
    text = transfers[0].text if size is None else f"{show_bytes(size)} in all"
    return Transfer(transfers[0].tensor, size, text, sum(t.times for t in transfers))


def find_chains(
    names: Iterable[str], pairs: Iterable[tuple[str, str]], stored: Iterable[str]
) -> list[tuple[str, ...]]:
    """Maximal chains among `names`; `pairs` are producers and consumers. A tensor `stored` for
    others ends a chain."""
    readers: dict[str, list[str]] = {}
    sources: dict[str, list[str]] = {}
    for source, target in pairs:
        readers.setdefault(source, []).append(target)
        sources.setdefault(target, []).append(source)
    known, kept = dict.fromkeys(names), set(stored)
    following: dict[str, str] = {}
    for name in known:
        after = readers.get(name, [])
        alone = len(after) == 1 and after[0] in known and len(sources[after[0]]) == 1
        if alone and name not in kept:
            following[name] = after[0]
    return list(_follow(known, following))


def _follow(names: Iterable[str], following: Mapping[str, str]) -> Iterable[tuple[str, ...]]:
    inner = set(following.values())
    for name in names:
        if name in inner or name not in following:
            continue
        chain = [name]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        if len(chain) >= _SHORTEST:
            yield tuple(chain)
