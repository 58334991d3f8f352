"""Kernels that are equal but for their names: such are built once.

A network's blocks repeat, and so do their kernels, under names of their own. The names that a
source declares are told by their order; names of the language stay what they are. Two sources that
are then the same text are one program.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from dmlc.program import KernelSource

_TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/|(?:^|(?<=\n))[ \t]*\#(?:\\\n|[^\n])*|[A-Za-z_]\w*"
    r"|\.?\d(?:[eEpP][+-]|[\w.])*|\+\+|--|<<=?|>>=?|&&|\|\||[-+*/%&|^<>=!]=|\s+|.",
    re.DOTALL,
)
_TYPE = re.compile(r"u?(?:char|short|int|long)\d*|(?:float|half|double|bool)\d*(?:_t)?|size_t")
_NAME = re.compile(r"[A-Za-z_]\w*")


def find_equal(kernels: Sequence[KernelSource]) -> list[int]:
    """For each kernel, the number of the first that is equal to it but for names: its source
    computes the same on the same bindings, and is launched in groups of the same size."""
    first: dict[object, int] = {}
    return [first.setdefault(find_identity(k), number) for number, k in enumerate(kernels)]


def find_identity(kernel: KernelSource) -> tuple[object, ...]:
    """What is equal for kernels that are equal but for names. Of bindings it has what a device sees
    of them, and of a launch the size of its groups."""
    named = [b.name for b in kernel.buffers] + [s.name for s in kernel.scalars]
    return (
        rename(kernel.source, [kernel.entry_point, *named]),
        tuple((b.dtype, b.read, b.written, b.slot, b.structure_bytes) for b in kernel.buffers),
        tuple((s.bits, s.slot, s.offset) for s in kernel.scalars),
        kernel.dispatch.items,
        kernel.spirv,
        kernel.shader_model,
        kernel.float_controls,
        kernel.matrix,
    )


def rename(source: str, names: Sequence[str]) -> str:
    """A source without comments and spacing, and its own names by the order in which they come:
    `names`, of which the first is the function's, and those of variables with a plain type. Names
    that are called, or are parts of something, stay what they are, and so do those of
    directives."""
    found: list[str] = _TOKENS.findall(source)
    tokens = [t for t in found if not t.isspace() and not t.startswith(("//", "/*"))]
    directives = [t for t in tokens if t.lstrip().startswith("#")]
    pairs = list(itertools.pairwise(tokens))
    kept = {word for each in directives for word in _NAME.findall(each)}
    kept |= {name for name, after in pairs if after == "("} - {names[0]}
    kept |= {name for before, name in pairs if before == "."}
    declared = {name for before, name in pairs if _TYPE.fullmatch(before)}
    triples = zip(pairs, tokens[2:], strict=False)
    declared |= {n for (before, star), n in triples if star == "*" and _TYPE.fullmatch(before)}
    own = {n for n in {*declared, *names} if _NAME.fullmatch(n)} - kept
    places: dict[str, str] = {}
    # No name has a blank: what is renamed is like nothing else.
    return "\n".join(
        places.setdefault(token, f"name {len(places)}") if token in own else token
        for token in tokens
    )
