"""Equality of kernels up to renaming: equal ones are built once.

A network's blocks repeat, and so do their kernels, under other names. The names that a source
declares are replaced by their order of appearance; names of the language stay. Two sources with the
same text then are one program.
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
    """For each kernel, the index of the first one equal to it up to renaming: its source computes
    the same on the same bindings, with groups of the same size."""
    first: dict[object, int] = {}
    return [first.setdefault(find_identity(k), number) for number, k in enumerate(kernels)]


def find_identity(kernel: KernelSource) -> tuple[object, ...]:
    """Key that is equal for kernels that are equal up to renaming. It has the device's view of
    their bindings, and the size of their groups."""
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
    """Source without comments and spacing, with its own names replaced by their order of
    appearance: `names`, of which the first is the function's, and those of variables of a plain
    type. Names of functions and members stay, and so do those in directives."""
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
    # Names contain no blanks, so that a renamed one is unique.
    return "\n".join(
        places.setdefault(token, f"name {len(places)}") if token in own else token
        for token in tokens
    )
