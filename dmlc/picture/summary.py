"""Effect of fusion on a graph in words and numbers: the lines above a picture, and its text
alternative."""

from __future__ import annotations

from dmlc.picture.diagram import Diagram, Kernel, View, find_view
from dmlc.picture.lettering import show_bytes
from dmlc.report import KernelWork


def summarize_view(view: View) -> str:
    """View in one line: its kernels, the bytes it moves, its scratch memory."""
    return " · ".join([_kernels(view), _moved(view), _scratch(view)])


def compare(diagram: Diagram, name: str) -> str:
    """Line of one of the views; `after` is compared with before."""
    view, before = find_view(diagram, name), diagram.before
    parts = [_kernels(view), _moved(view), _scratch(view)]
    if view.launches != before.launches:
        parts[0] += f" instead of {before.launches:,}"
    if _moved(view) != _moved(before):
        parts[1] += f" instead of {show_bytes(before.bytes)}"
    if _scratch(view) != _scratch(before):
        parts[2] += f" instead of {show_bytes(before.scratch) if before.scratch else 'none'}"
    return " · ".join(parts)


def describe_traffic(kernel: Kernel) -> list[str]:
    """Total bytes that a kernel reads and writes; empty if known only at run time."""
    if kernel.read_bytes is None or kernel.written_bytes is None:
        return []
    return [f"reads {show_bytes(kernel.read_bytes)}", f"writes {show_bytes(kernel.written_bytes)}"]


def describe_work(kernel: Kernel) -> list[str]:
    """Work of a kernel and its distribution: threads, steps of the busiest, operations; empty
    before fusion."""
    launch = kernel.launch
    if launch is None:
        return []
    parts = [_show_items(launch)]
    if launch.groups is not None:
        parts.append(_show_steps(launch.steps))
    if launch.operations is not None:
        parts.append(f"{show_count(launch.operations)} float operations")
    if launch.walk:
        parts.append(launch.walk)
    return parts


def _show_items(launch: KernelWork) -> str:
    item = "thread" if launch.group_size > 1 else "work item"
    if launch.groups is None:
        count = f"ceil({launch.count} / {launch.per_group:,})"
        if launch.group_size == 1:
            return f"{count} work items"
        return f"{count} groups of {launch.group_size:,} threads"
    if launch.group_size == 1:
        return f"{launch.groups:,} {item}{'s' * (launch.groups != 1)}"
    groups = f"{launch.groups:,} group{'s' * (launch.groups != 1)} of {launch.group_size:,}"
    return f"{launch.groups * launch.group_size:,} threads in {groups}"


def show_count(count: float) -> str:
    """Count for people, in powers of 1000: `12.3 M`."""
    if count < 10_000:
        return f"{count:,.0f}"
    return show_bytes(round(count)).removesuffix("B").replace("K", "k")


def describe_figures(kernel: Kernel) -> list[str]:
    """Further figures of a kernel for a GPU; empty if unknown."""
    if kernel.figures is None:
        return []
    return [f"{_show_ratio(kernel.figures.reads_per_output)} reads an output"]


def _show_ratio(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _show_steps(steps: float | None) -> str:
    if steps is None:
        return "unknown steps each"
    return f"at most {steps:,.0f} step{'s' if steps != 1 else ''} each"


def _kernels(view: View) -> str:
    return f"{view.launches:,} kernel{'s' if view.launches != 1 else ''}"


def _moved(view: View) -> str:
    return f"{show_bytes(view.bytes)} moved"


def _scratch(view: View) -> str:
    if view.scratch == 0:
        return "no scratch memory"
    return f"{show_bytes(view.scratch)} of scratch memory"


def describe(diagram: Diagram) -> str:
    """Picture in words, for readers who cannot see it."""
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
