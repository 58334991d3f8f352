"""Text of a diagram for a terminal: both views as tables, a row per kernel, and below them the work
of the kernels after fusion and the reasons for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dmlc.picture.diagram import VIEWS, Diagram, Kernel, Transfer, View, find_view
from dmlc.picture.lettering import show_bytes, show_sizes, wrap
from dmlc.picture.summary import compare, describe_figures, describe_work

_WIDTH = 100
_INDENT = 9


def write_text(diagram: Diagram, views: Sequence[str] = VIEWS) -> str:
    """Diagram in lines of at most 100 characters."""
    lines = [diagram.name]
    for kind, names in (("inputs", diagram.inputs), ("outputs", diagram.outputs)):
        texts = [_describe(diagram, name) for name in names]
        lines += _fill(f"  {kind:<8} ", texts, ", ")
    for name in views:
        view = find_view(diagram, name)
        lines += ["", *_fill(f"{name} fusion: ", compare(diagram, name).split(" · "), " ·")]
        lines += _write_before(view) if name == "before" else _write_after(view)
    return "\n".join([*lines, ""])


def _describe(diagram: Diagram, name: str) -> str:
    tensor = diagram.tensors[name]
    return f"{name} {tensor.dtype} {show_sizes(tensor.sizes)}"


def _write_before(view: View) -> Iterator[str]:
    for kernel in view.kernels:
        step = kernel.steps[0]
        yield from _fill(f"{_head(kernel)}  ", f"{step.name} = {step.formula}".split(), "")


def _write_after(view: View) -> Iterator[str]:
    sizes = Counter(kernel.group for kernel in view.kernels)
    for kernel in view.kernels:
        stored = [t.tensor for t in kernel.writes]
        inside = [s.name for s in kernel.steps if s.name not in stored]
        yield from _fill(f"{_head(kernel)}  ", stored, ",")
        rows = [
            ("computes", inside, ","),
            ("reads", [_spell(t) for t in kernel.reads], ","),
            ("writes", [_spell(t) for t in kernel.writes], ","),
            ("work", [*describe_work(kernel), *describe_figures(kernel)], ";"),
            ("because", kernel.reason.replace("%", "").split(), ""),
        ]
        if kernel.group is not None:
            rows.append(("group", [f"one of {sizes[kernel.group]} kernels"], ""))
        for name, items, between in rows:
            if items:
                yield from _fill(f"{'':{_INDENT}}{name:<9} ", items, between)


def _head(kernel: Kernel) -> str:
    """Number and bytes of a kernel, in columns."""
    counts = (kernel.read_bytes, kernel.written_bytes)
    read, written = ("?" if c is None else show_bytes(c) for c in counts)
    return f"  {kernel.label:>4}   in {read:>8}   out {written:>8}"


def _spell(transfer: Transfer) -> str:
    return f"{transfer.tensor} {transfer.text}"


def _fill(head: str, items: Sequence[str], between: str) -> list[str]:
    """Items in lines that are indented to the end of `head`."""
    lines = [head]
    for number, item in enumerate(items):
        text = item + (between.rstrip(" ") if number + 1 < len(items) else "")
        for piece in wrap(text, _WIDTH - len(head)):
            room = _WIDTH - len(lines[-1])
            if lines[-1].strip() and lines[-1] != head and len(piece) + 1 > room:
                lines.append(" " * len(head) + piece)
            else:
                lines[-1] += piece if lines[-1] == head else f" {piece}"
    return [line.rstrip() for line in lines]
