"""Generated kernels of the operator or graph at an offset, in the language of a target."""

from __future__ import annotations

import dataclasses
import itertools

from dmlc import ir, pipeline
from dmlc.binding import Graph, Operator
from dmlc.editor.documents import Document
from dmlc.editor.resolve import resolve_word
from dmlc.editor.scopes import What
from dmlc.language import syntax
from dmlc.library import BUILT_IN
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Kernels of an operator or a graph."""

    name: str
    """Qualified name."""
    text: str


def list_kernels(document: Document, offset: int, target: str) -> Listing:
    """Kernels, for a target, of the operator or graph that the word at the offset names, or that
    contains the offset.

    Their sizes are open if that compiles, and else those of the first example that does. Raises
    `DmlcError` if there is no such operator, if the text has errors, and if nothing compiles.
    """
    subject = _find_subject(document, offset)
    if isinstance(subject, Graph):
        function, said = subject.bind({}, {}), ""
    else:
        function, said = _bind(subject)
    program = pipeline.compile(function, target)
    return Listing(subject.name, said + "\n".join(k.source for k in program.kernels))


def _find_subject(document: Document, offset: int) -> Operator | Graph:
    findings = document.analysis.findings
    errors = [d for d in document.analysis.diagnostics if not d.warning]
    if findings is None or errors:
        raise DmlcError(errors)
    found, file = resolve_word(document, offset), document.analysis.file
    around = (
        node.name.text for node in (() if file is None else file.declarations)
        if isinstance(node, syntax.Operator | syntax.Graph)
        if node.span.start <= offset <= node.span.end
    )  # fmt: skip
    if found is not None and found.symbol.what in (What.OPERATOR, What.GRAPH):
        name = found.symbol.owner or found.symbol.name
    else:
        name = next(around, "")
    if not name:
        raise DmlcError("no operator or graph stands here", notes=["put the cursor into one"])
    for known, definition in findings.graphs.items():
        if name in (known, known.rpartition(".")[2]):
            return Graph(definition)
    for known, definition in findings.operators.items():
        if name in (known, known.rpartition(".")[2]):
            return Operator(definition)
    library = BUILT_IN.find(name)
    if library is None:
        raise DmlcError(f"there is no operator '{name}'", code="E0202")
    return Operator(library)


def _bind(operator: Operator) -> tuple[ir.Function, str]:
    """Operator bound to a call, and a comment that describes the call."""
    try:
        return operator.bind({}, {}), ""
    except DmlcError as error:
        for example in operator.definition.examples:
            try:
                (case,) = itertools.islice(read_cases(operator, example), 1)
                return case.call.function, f"// For a call as in the example: {case.call}\n"
            except DmlcError:
                continue  # The next one may do, and the first error says why nothing does.
        notes = ["an example gives sizes: write one into the operator", *error.diagnostics[0].notes]
        first = error.diagnostics[0]
        raise DmlcError(first.message, first.span, notes, first.code) from error
