"""DOT text of a diagram, for Graphviz and other readers: a cluster per kernel. Graphviz does the
layout; nothing here depends on `compose`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlc.picture.diagram import VIEWS, Diagram, Kernel, Transfer, View, find_view
from dmlc.picture.lettering import show_sizes, wrap
from dmlc.picture.summary import compare, describe_traffic, describe_work

_FORMULA_WIDTH = 40


def write_dot(diagram: Diagram, views: Sequence[str] = VIEWS) -> str:
    """DOT text of a diagram, its views side by side: values inside a kernel are dashed edges,
    values through memory full edges with their bytes."""
    lines = [
        f"digraph {_quote(diagram.name)} {{",
        '  graph [fontname="Helvetica", labelloc=t, compound=true];',
        '  node [fontname="Helvetica", fontsize=11, shape=box, style="rounded,filled", '
        'fillcolor="#ffffff"];',
        '  edge [fontname="Helvetica", fontsize=10, color="#57606a"];',
    ]
    for name in views:
        view = find_view(diagram, name)
        lines += [
            f"  subgraph {_quote(f'cluster_{name}')} {{",
            f"    label={_label([f'{diagram.name}: {name} fusion', compare(diagram, name)])};",
            "    style=invis;" if len(views) == 1 else '    color="#d0d7de";',
            *(f"    {line}" for line in _write_view(diagram, view, name)),
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def _write_view(diagram: Diagram, view: View, name: str) -> Iterator[str]:
    made = {t.tensor: at for at, k in enumerate(view.kernels) for t in k.writes}
    steps = {t.tensor: t.step for k in view.kernels for t in k.writes}
    read = {t.tensor for k in view.kernels for t in k.reads}
    for tensor in diagram.tensors.values():
        about = [tensor.name, f"{tensor.dtype} {show_sizes(tensor.sizes)}"]
        if tensor.name in read and tensor.name not in made:
            kind = "input" if tensor.name in diagram.inputs else "constant"
            fill = "#cfe6ff" if kind == "input" else "#e8ebef"
            node = _name(name, kind, tensor.name)
            yield f'{node} [shape=ellipse, fillcolor="{fill}", label={_label(about)}];'
        if tensor.name in diagram.outputs and tensor.name in made:
            node = _name(name, "output", tensor.name)
            yield f'{node} [shape=ellipse, fillcolor="#ffdfc4", label={_label(about)}];'
    yield from _write_groups(view, name)
    for at, kernel in enumerate(view.kernels):
        for transfer in kernel.reads:
            if transfer.tensor in made:
                source = _name(name, str(made[transfer.tensor]), steps[transfer.tensor])
            else:
                kind = "input" if transfer.tensor in diagram.inputs else "constant"
                source = _name(name, kind, transfer.tensor)
            readers = [w.target for w in kernel.wires if _feeds(transfer, w.source, w.from_memory)]
            for number, reader in enumerate(readers):
                # The bytes go on one edge: the kernel reads them for all its stages.
                label = "" if number else f" [label={_quote(_spell(transfer))}]"
                yield f"{source} -> {_name(name, str(at), reader)}{label};"
        for transfer in kernel.writes:
            if transfer.tensor in diagram.outputs:
                source = _name(name, str(at), transfer.step)
                target = _name(name, "output", transfer.tensor)
                yield f"{source} -> {target} [label={_quote(_spell(transfer))}];"


def _write_groups(view: View, name: str) -> Iterator[str]:
    """Kernels, with those of one group in a cluster of their own."""
    at = 0
    for kernels in view.groups:
        lines = [t for n, kernel in enumerate(kernels, at) for t in _write_kernel(kernel, name, n)]
        at += len(kernels)
        if len(kernels) == 1:
            yield from lines
            continue
        yield f"subgraph {_quote(f'cluster_{name}_group_{kernels[0].group}')} {{"
        yield '  label="one group"; style="dashed"; color="#66707b"; fontsize=11;'
        yield from (f"  {line}" for line in lines)
        yield "}"


def _feeds(transfer: Transfer, source: str, from_memory: bool) -> bool:
    return from_memory and source == transfer.tensor


def _write_kernel(kernel: Kernel, view: str, at: int) -> Iterator[str]:
    yield f"subgraph {_quote(f'cluster_{view}_{at}')} {{"
    yield f"  label={_label([kernel.title, *describe_work(kernel), *describe_traffic(kernel)])};"
    yield '  style="rounded,filled"; fillcolor="#f3f5f8"; color="#66707b"; fontsize=11;'
    yield f"  tooltip={_quote(kernel.reason)};"
    for step in kernel.steps:
        about = f"{step.dtype} {show_sizes(step.sizes)}"
        label = _label([step.name, *wrap(f"= {step.formula}", _FORMULA_WIDTH), about])
        fill = ', fillcolor="#f4efff"' if step.folds else ""
        yield f"  {_name(view, str(at), step.name)} [label={label}{fill}];"
    for wire in kernel.wires:
        if not wire.from_memory:
            source, target = (_name(view, str(at), n) for n in (wire.source, wire.target))
            yield f"  {source} -> {target} [style=dashed];"
    yield "}"


def _spell(transfer: Transfer) -> str:
    return f"{transfer.tensor}\n{transfer.text}"


def _name(view: str, place: str, name: str) -> str:
    return _quote(f"{view}.{place}.{name}")


def _label(lines: Sequence[str]) -> str:
    return _quote("\n".join(lines))


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
