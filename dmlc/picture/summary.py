"""Says in words and numbers what fusion did to a graph: the lines above a picture, and the picture
for those who do not see it."""

from __future__ import annotations

from dmlc.picture.diagram import Diagram, View, find_view
from dmlc.picture.lettering import show_bytes


def summarize_view(view: View) -> str:
    """A view in one line: its kernels, the bytes it moves, its scratch memory."""
    return (
        f"{_kernels(view)} · {show_bytes(view.bytes)} moved · "
        f"{_scratch(view.scratch)} scratch memory"
    )


def compare(diagram: Diagram, name: str) -> str:
    """The same of one of the views; `after` is held against what was before."""
    view, before = find_view(diagram, name), diagram.before
    if name == "before" or view.launches == before.launches:
        return summarize_view(view)
    parts = [f"{_kernels(view)} instead of {before.launches}"]
    moved = f"{show_bytes(view.bytes)} moved"
    if view.bytes and before.bytes and before.bytes != view.bytes:
        moved += f" instead of {show_bytes(before.bytes)}"
    parts.append(moved)
    scratch = f"{_scratch(view.scratch)} scratch memory"
    if before.scratch != view.scratch:
        scratch += f" instead of {_scratch(before.scratch)}"
    parts.append(scratch)
    return " · ".join(parts)


def _kernels(view: View) -> str:
    return f"{view.launches} kernel{'s' if view.launches != 1 else ''}"


def _scratch(count: int | None) -> str:
    return "no" if count == 0 else show_bytes(count)


def describe(diagram: Diagram) -> str:
    """The picture in words, for those who do not see it."""
    parts = [
        f"Inputs: {', '.join(diagram.inputs) or 'none'}. Outputs: {', '.join(diagram.outputs)}."
    ]
    for name, view in (("Unfused", diagram.before), ("Fused", diagram.after)):
        parts.append(f"{name}: {summarize_view(view).replace(' · ', ', ')}.")
    parts += [
        f"Kernel {kernel.label} computes {', '.join(s.name for s in kernel.steps)}."
        for kernel in diagram.after.kernels
    ]
    return " ".join(parts)
