"""Writes what the documentation takes from the program itself.

    python docs/build.py            write
    python docs/build.py --check    exit with 1 where a page is not what would be written

A fenced block below `<!-- file: PATH -->` holds that file, and one below
`<!-- output: dmlc ... -->` what that command prints, run at the top of the repository. Rows between
`<!-- table: NAME -->` and an empty line are those of a table of the IR.
`docs/reference/operators/` has a page for every operator of the library, and
`docs/explanation/graphs/` one with pictures for every graph of the examples. Behind
`<!-- codes -->` stand all codes of errors and warnings, and behind `<!-- primitives -->` all
primitives of schedules.
JSON Schemas of the IR's forms lie beside what writes these, and
`dmlc/library/index.json` beside the operators that it is made from. `docs/listings.py` plays the
pages that have commands to run one after another, such as the tutorial.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import json
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dmlc
from dmlc import cli, compiler, diagnostics, ir, summaries
from dmlc.datasheet import References, write_datasheet
from dmlc.library.equivalents import FAMILIES, list_operations
from dmlc.loops.script import PRIMITIVES
from dmlc.picture import VIEWS, draw
from dmlc.picture.diagram import Diagram, Kernel, list_calls, make_diagram
from dmlc.picture.lettering import show_bytes
from dmlc.picture.summary import describe_work, summarize_view
from dmlc.pipeline import explain
from dmlc.source import counted, join_words
from docs.generated import describe_json, describe_qualification, list_commands
from docs.listings import is_played, play
from docs.textmate import write_textmate
from tests.directml.answers import count_answers

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "examples/embedding/README.md", "docs/index.md", *(
    f"docs/{name}.md" for name in (
        "tutorial/index", "how-to/import", "how-to/judge", "how-to/mlir", "how-to/onnx",
        "how-to/schedules", "how-to/sizes", "how-to/testing", "reference/errors",
        "reference/generated-code",
        "reference/ir", "reference/language", "reference/manifest", "reference/schedule-table",
        "reference/schedules",
        "explanation/architecture",
        "explanation/fusion", "explanation/gradients"))
)  # fmt: skip

GRAPH_SIZES: dict[str, dict[str, int]] = {
    "adam_clipped": {"A": 512, "B": 512, "C": 3, "D": 3},
    "conv_net_training_step": {"N": 64, "C": 3, "H": 16, "W": 16, "F": 32, "K": 10},
    "gelu_mlp_backward": {"N": 8192, "F": 3072},
    "gelu_mlp_training_step": {"N": 256, "D": 784, "F": 512, "K": 10},
    "relu_batch_norm_backward": {"N": 32, "C": 64, "H": 56, "W": 56},
    "residual_block_backward": {"N": 32, "C": 64, "H": 56, "W": 56},
    "sgd_momentum": {"M": 4096, "K": 1024},
    "softmax_cross_entropy_backward": {"N": 4096, "K": 1000},
    "unet_decoder_backward": {"N": 8, "C": 64, "S": 64, "H": 64, "W": 64},
}
"""The example graphs, and sizes as training has them."""

TALLEST = 2000
"""The most pixels of a picture on a page."""

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>file|output): (?P<what>[^\n]*) -->\n```\w*\n)"
    r"(?P<body>.*?)(?P<tail>^```$)",
    re.DOTALL | re.MULTILINE,
)


_PRIMITIVES = re.compile(r"(?<=<!-- primitives -->\n).*", re.DOTALL)


_CODES = re.compile(r"(?<=<!-- codes -->\n).*", re.DOTALL)


_TABLE = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n)(?P<body>(?:\|.*\n)*)")


def build() -> dict[Path, str]:
    """Every page that holds something of the program, as it should be."""
    pages = {ROOT / name: refresh((ROOT / name).read_text(encoding="utf-8")) for name in PAGES}
    pages[ROOT / "docs/reference/commands.md"] = list_commands()
    pages[ROOT / "docs/reference/ir-json.md"] = describe_json()
    pages[ROOT / "docs/reference/qualification.md"] = describe_qualification()
    pages |= _operator_pages() | _graph_pages() | _schemas() | _library_index()
    return pages | {ROOT / "grammar/dmlc.tmLanguage.json": write_textmate()}


def _library_index() -> dict[Path, str]:
    """What lists say of the operators, so that they need not parse them."""
    return {summaries.INDEX: summaries.write_index(o.definition for o in dmlc.operators().values())}


def _schemas() -> dict[Path, str]:
    """The JSON Schemas of the IR's JSON forms, which the package brings."""
    schemas = {
        "ir/function": ir.function_schema(),
        "transform/fusion": compiler.fusion_schema(),
        "kernel/kernel": compiler.kernel_schema(),
    }
    return {
        ROOT / "dmlc" / f"{name}.schema.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas.items()
    }


def refresh(text: str) -> str:
    text = _TABLE.sub(
        lambda m: m["head"] + "".join(f"{row}\n" for row in TABLES[m["name"]]()), text
    )
    text = _CODES.sub(lambda m: _list_codes(), text)
    text = _PRIMITIVES.sub(lambda m: _list_primitives(), text)
    text = _BLOCK.sub(lambda m: f"{m['head']}{_content(m['kind'], m['what'])}{m['tail']}", text)
    if not is_played(text):
        return text
    with tempfile.TemporaryDirectory() as folder:
        return play(text, Path(folder))


def _list_codes() -> str:
    """What every code of an error or a warning means, by what it is about."""
    lines: list[str] = []
    explained = map(diagnostics.explain, diagnostics.list_codes())
    for group, codes in itertools.groupby(
        explained, key=lambda e: "Warnings" if e.is_warning else e.group
    ):
        lines += ["", f"### {group}"]
        for explanation in codes:
            lines += ["", f"###{explanation.text.rstrip()}"]
    return "\n".join([*lines, ""])


def _list_primitives() -> str:
    """What every primitive of schedules does, in its own words."""
    lines: list[str] = []
    for _, found in sorted(PRIMITIVES.items()):
        lines += ["", f"## `{found.usage}`", "", *inspect.cleandoc(found.words).splitlines()]
    return "\n".join([*lines, ""])


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]


def _list_types() -> list[str]:
    rows = [
        "| type | in text | bytes | holds | values in a body |",
        "| --- | --- | --- | --- | --- |",
    ]
    for t in ir.DataType:
        holds = "positions and sizes; no tensor does" if t is ir.DataType.INDEX else t.kind.value
        rows.append(f"| {t.name} | `{t.short}` | {t.bytes} | {holds} | {t.compute.name} |")
    return rows


def _list_operations() -> list[str]:
    rows = [
        "| operation | operands | gives | means | edge cases |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, operation in ir.OPERATIONS.items():
        only = operation.operands is ir.Operands.FLOAT32
        kind = "FLOAT32" if only else operation.operands.value.removesuffix("s")
        takes = counted(operation.arity, kind)
        gives = "BOOL" if operation.gives_bool else "their type"
        edges = "; ".join(
            f"{kind}: " + ", ".join(f"`{fact}`" for fact in facts.split("; "))
            for kind, facts in operation.edges.items()
        )
        mark = " ≈" if operation.transcendental else ""
        rows.append(f"| `{name}`{mark} | {takes} | {gives} | {operation.meaning} | {edges} |")
    return rows


def _list_conversions() -> list[str]:
    rows = _head("value", "from", "to", "gives")
    for source, value, to, gives in ir.CONVERSIONS:
        rows.append(f"| `{value}` | {source} | {to} | `{gives}` |")
    return rows


def _list_combiners() -> list[str]:
    rows = _head("combiner", "operation", "over no point: FLOAT32", "INT32", "UINT8", "BOOL")
    types = [ir.DataType(name) for name in ("f32", "s32", "u8", "bool")]
    for name, combiner in ir.COMBINERS.items():
        given = (f"`{ir.combiner_identity(name, t)}`" if combiner.accepts(t) else "" for t in types)
        first, combines = "the position of the first one", f"`{combiner.operation.name}`"
        does = first if combiner.positional else combines
        rows.append(f"| `{name}` | {does} | {' | '.join(given)} |")
    return rows


TABLES = {
    "types": _list_types,
    "operations": _list_operations,
    "conversions": _list_conversions,
    "combiners": _list_combiners,
}
"""Tables of pages, by the name that the page has for each."""


def _content(kind: str, what: str) -> str:
    if kind == "file":
        return (ROOT / what).read_text(encoding="utf-8")
    program, *arguments = shlex.split(what)
    if program != "dmlc":
        raise ValueError(f"'{what}' is no dmlc command")
    return print_command(arguments)


def print_command(arguments: Sequence[str]) -> str:
    """What a command prints at the top of the repository, on both streams, 80 columns wide."""
    streams = tuple(io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with (
            contextlib.chdir(ROOT),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("default")
            cli.run(arguments)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "".join(stream.buffer.getvalue().decode("utf-8") for stream in streams)


def _operator_pages() -> dict[Path, str]:
    folder = ROOT / "docs" / "reference" / "operators"
    listed = {row["name"]: row for row in json.loads(_content("output", "dmlc ops --json"))}
    pages = {
        folder / f"{name}.md": write_operator_page(name, whole=False) for name in dmlc.operators()
    }
    pages[folder / "index.md"] = "\n".join(
        ["# Operators", "", "Written by `make docs` from `dmlc/library/`.", "",
         "- [By task](#by-task): the work that each does, and the names of the same elsewhere.",
         "- By family: " + ", ".join(f"[{f}](#{f})" for f in FAMILIES) + ".", "",
         "## By task", "", *_list_tasks(), *_list_families(listed)]
    )  # fmt: skip
    return pages


def write_operator_page(name: str, *, whole: bool) -> str:
    """The page of an operator. A whole one also has the sections that need its kernels."""
    count = count_answers().get(name, 0)
    recorded = f"DirectML's results for {counted(count, 'call')} are recorded" if count else ""
    references = References(
        lambda other: f"[{other}]({other}.md)",
        "[the GPU model](../gpu.md)",
        f"{recorded}, and [compared](../../explanation/directml.md) with those of dmlc."
        if recorded
        else "",
    )
    return write_datasheet(dmlc.operator(name), references, whole=whole)


def _list_tasks() -> list[str]:
    """A table for each task: what is done, and by which operator of which family."""
    lines: list[str] = []
    for task, operations in itertools.groupby(list_operations(), key=lambda o: o.task):
        lines += [f"### {task}", "", "| | DirectML | oneDNN | training | ONNX | PyTorch |",
                  "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
        for o in operations:
            cells = [
                ", ".join(f"[{n.partition('.')[2]}]({n}.md)" for n in o.operators
                          if n.startswith(f"{family}."))
                for family in FAMILIES
            ]  # fmt: skip
            cells += [", ".join(f"`{n}`" for n in names) for names in (o.onnx, o.pytorch)]
            lines.append(f"| {o.what} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _list_families(listed: dict[str, dict[str, Any]]) -> list[str]:
    """A table for each family: types, ranks, what the gradient is, and what the operator does."""
    lines: list[str] = []
    for family in FAMILIES:
        lines += [f"## {family}", "", "| operator | types | ranks | gradient | |",
                  "| --- | --- | --- | --- | --- |"]  # fmt: skip
        for name, row in listed.items():
            if row["family"] != family:
                continue
            doc = (dmlc.operator(name).doc or "").partition(". ")[0].rstrip(".")
            partners = [f"of [{row['forward']}]({row['forward']}.md)"] if row["forward"] else [
                f"[{n}]({n}.md)" for n in row["gradients"]
            ]  # fmt: skip
            gradient = ", ".join(partners) or ("derived" if row["differentiable"] else "none")
            ranks = sorted({row["ranks"][0], row["ranks"][-1]})
            lines.append(
                f"| [{name.partition('.')[2]}]({name}.md) | {', '.join(row['types'])} "
                f"| {' to '.join(map(str, ranks))} | {gradient} | {doc} |"
            )
        lines.append("")
    return lines


def _graph_pages() -> dict[Path, str]:
    """A page for each example graph, its two pictures, and a table of all."""
    folder = ROOT / "docs" / "explanation" / "graphs"
    pages: dict[Path, str] = {}
    rows = ["| graph | kernels, unfused and fused | memory traffic | scratch memory |",
            "| --- | --- | --- | --- |"]  # fmt: skip
    for path in sorted((ROOT / "examples" / "graphs").glob("*.dml")):
        graph = dmlc.load(path).graphs[path.stem]
        dims = GRAPH_SIZES[path.stem]
        report = explain(graph.bind(dims=dims), "hlsl")
        diagram = make_diagram(report, list_calls(graph))
        drawn = {view: draw(report, "svg", (view,), graph) for view in VIEWS}
        shown = [view for view, text in drawn.items() if _find_height(text) <= TALLEST]
        pages |= {folder / f"{path.stem}.{view}.svg": drawn[view] for view in shown}
        pages[folder / f"{path.stem}.md"] = _describe_graph(path, dims, diagram, shown)
        before, after = diagram.before, diagram.after
        rows.append(
            f"| [{path.stem}]({path.stem}.md) | {before.launches} → {after.launches} "
            f"| {show_bytes(before.bytes)} → {show_bytes(after.bytes)} "
            f"| {show_bytes(before.scratch)} → {show_bytes(after.scratch)} |"
        )
    pages[folder / "index.md"] = "\n".join(
        ["# Graphs", "",
         "This page lists example graphs from [`examples/graphs`](../../../examples/graphs): "
         "training steps, and parts of them. It also says how to draw your own graphs, and how to "
         "read the pictures. Each example is tested against PyTorch's automatic differentiation.",
         "",
         "The table compares each graph before and after [fusion](../fusion.md). Before fusion, "
         "each stage is a kernel of its own: each formula of an operator or of the graph. Kernels "
         "and bytes are those of the HLSL. Each graph's page has its pictures, unless they are too "
         "tall for a page.", "",
         *rows, "",
         "## Draw your own graph", "",
         "`dmlc graph` draws a graph, or an operator of the library, for any target:", "",
         "```", "dmlc graph FILE.dml --dim N=32 -o picture.svg     # or picture.dot, for Graphviz",
         "dmlc graph FILE.dml --dim N=32 --view after       # as text, on the terminal", "```", "",
         "In Python: `dmlc.picture.draw(dmlc.pipeline.explain(graph.bind(dims=...), \"hlsl\"))`.",
         "",
         "## How to read a picture", "",
         "- A **box** is a stage: its name, its formula, and the type and sizes of its result. A "
         "violet box is a reduction. A coloured stripe shows which call of the graph the stage "
         "belongs to.",
         "- A **name** in a formula, such as `x`, is the element at the stage's own position. A "
         "formula that reads other positions has all indices: `x[i0, i1 + r1]`. `i0`, `i1` count "
         "along the axes of the result, and `r1` along those of the reduction.",
         "- A **frame** is a kernel with the stages that it computes. At its left are the work "
         "(threads, steps of the busiest thread, float operations), the bytes, and why these "
         "stages share a kernel. `again` marks a stage that an earlier kernel computes too, "
         "because reading it back would cost more.",
         "- A **dashed frame** is a group: stages that are fused, but take several kernels. A "
         "kernel may leave partial results of a reduction, which the next one combines.",
         "- **Blue tags** at the top are the tensors that the kernel reads from memory. **Orange "
         "tags** at the bottom are those that it writes. Each has its bytes. Pale tags are small "
         "beside the others.",
         "- **Lines** in a frame are values in registers, or in the kernel's own memory. A dashed "
         "name replaces a line that would be long. A page is about 950 pixels wide. If lines "
         "between kernels do not fit, tags name where a tensor comes from and where it goes.", "",
         "## From pass to pass", "",
         "`dmlc graph --html` writes a page with the graph as it was bound, after each pass that "
         "changes it, in groups, and as kernels:", "",
         "```", "dmlc graph FILE.dml --dim N=32 --target hlsl --html -o graph.html", "```", "",
         "The page is a single file without dependencies. A slider selects the pass. Point at a "
         "stage or a kernel, or move to it with the Tab key. The page then shows its formula, its "
         "source lines, and the generated kernel in the language of `--target`. A click or Enter "
         "keeps them, and Escape releases them.", "",
         "`dmlc ir --after PASS` prints the same passes as text. In Python: "
         "`dmlc.picture.draw_page(dmlc.pipeline.trace(graph.bind(dims=...)))`.", "",
         "Written by `make docs`.", ""]
    )  # fmt: skip
    return pages


def _find_height(svg: str) -> float:
    found = re.search(r'viewBox="\S+ \S+ \S+ (\S+)"', svg)
    return float(found[1]) if found else 0.0


def _show_picture(name: str, view: str, what: str, shown: Sequence[str]) -> str:
    if view in shown:
        return f"![{name}, {what}]({name}.{view}.svg)"
    return "The picture is too tall for this page. The command at its end draws it."


def _describe_graph(
    path: Path, dims: dict[str, int], diagram: Diagram, shown: Sequence[str]
) -> str:
    listing = path.read_text(encoding="utf-8")
    intro = re.match(r"(?://[^\n]*\n)*", listing)
    remark = "" if intro is None else re.sub(r"^// ?", "", intro[0], flags=re.MULTILINE)
    sizes = ", ".join(f"{name} = {size}" for name, size in dims.items())
    options = " ".join(f"--dim {name}={size}" for name, size in dims.items())
    command = f"dmlc graph examples/graphs/{path.name}:{path.stem} {options}"
    command += f" --target hlsl -o {path.stem}.svg"
    return "\n".join(
        [f"# {path.stem}", "", remark.strip(), "", "```dml", listing.strip(), "```", "",
         f"## Before fusion: {summarize_view(diagram.before)}", "",
         f"With {sizes}:", "",
         _show_picture(path.stem, "before", "every stage as a kernel", shown), "",
         f"## After fusion: {summarize_view(diagram.after)}", "",
         _show_picture(path.stem, "after", "the kernels after fusion", shown), "",
         "The table has the kernels in the order in which they run, with the stages that each "
         "computes, its work, and the bytes it moves:", "",
         "| kernel | computes | work | reads | writes |", "| --- | --- | --- | --- | --- |",
         *(_describe_kernel(kernel) for kernel in diagram.after.kernels), "",
         "Fusion put the stages together for these reasons:", "",
         *(_give_reason(kernels) for kernels in diagram.after.groups), "",
         "This command writes the pictures:", "", "```", command, "```", ""]
    )  # fmt: skip


def _describe_kernel(kernel: Kernel) -> str:
    cells = [
        ", ".join(f"`{step.name}`" for step in kernel.steps),
        "; ".join(describe_work(kernel)),
        *(
            "<br>".join(f"`{t.tensor}` {t.text}" for t in transfers)
            for transfers in (kernel.reads, kernel.writes)
        ),
    ]
    return f"| {kernel.label} | {' | '.join(cells)} |"


def _give_reason(kernels: list[Kernel]) -> str:
    """Why the kernels of a group are these; the first has the reason for all."""
    reason = re.sub(r"%(\w+)", r"`\1`", kernels[0].reason)
    labels = join_words([kernel.label for kernel in kernels], "and")
    return f"- Kernel{'s' if len(kernels) > 1 else ''} {labels}: {reason}."


def main(arguments: list[str]) -> int:
    pages = build()
    stale = [
        path for path, text in pages.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]  # fmt: skip
    for path in stale:
        print(path.relative_to(ROOT))
        if arguments != ["--check"]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages[path], encoding="utf-8")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
