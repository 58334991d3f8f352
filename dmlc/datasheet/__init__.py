"""Datasheet of an operator: its page in the documentation, generated from the operator itself.

The parts: `sections` (each section, as Markdown), `usage` (a call as code) and `enlarge` (a call
with larger tensors).
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.binding import Operator
from dmlc.datasheet.sections import References, list_differences, list_elsewhere, list_sections
from dmlc.language.format import format_declaration

_PLAIN = References()


def write_datasheet(
    operator: Operator, references: References = _PLAIN, *, whole: bool = True
) -> str:
    """Page of an operator, as Markdown. Without `whole`, it omits the sections that need kernels:
    these change with the compiler, and not with the operator."""
    definition = operator.definition
    lines = [f"# {operator.name}", "", operator.doc or "", ""]
    if definition.compute:
        lines += ["```", *(s.span.text for s in definition.compute), "```", ""]
    if not whole:
        command = f"`dmlc show {operator.name} --datasheet`"
        lines += [f"{command} adds a call as code, its shader, its gradient and its cost.", ""]
    else:
        for section in list_sections(operator, references):
            lines += _head(section.title, section.lines)
    differences = list_differences(operator, references.differences)
    lines += _head("Where DirectML differs", differences)
    lines += _head("The same elsewhere", list_elsewhere(operator.name, references.operator))
    text = format_declaration(definition.syntax)
    return "\n".join([*lines, "## As the library has it", "", f"```dml\n{text}```", ""])


def _head(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines] if lines else []
