"""Warnings about likely errors: values that nothing reads, a division that is a comment, an unknown
forward operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dmlc.language import syntax
from dmlc.language.definitions import (
    FORMULA_CURE,
    AttributeDefinition,
    OperatorDefinition,
    TensorDefinition,
)
from dmlc.language.walk import names_read
from dmlc.source import Diagnostic, Edit, Fix, Note, Source, Span, nearest, replace_word

_DIVISION = re.compile(r"//[ \t]*(?P<divisor>[\w.]+(?:[ \t]*[-+*/%][ \t]*[\w.]+)*)[ \t)\]}]*$")
"""Comment that continues an expression up to the end of its line."""
_OPERAND = re.compile(r"((?:[\w.]+(?:\([^()]*\)|\[[^\[\]]*\])*)|\([^()]*\))[ \t]*$")
"""Operand before it: a name, a number, a call, an element, or an expression in parentheses."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_SHOWN = 40


def find_slips(
    operator: OperatorDefinition, comments: Sequence[syntax.Comment]
) -> Iterator[Diagnostic]:
    """Warnings about one operator. `comments` are those of its file."""
    own = operator.syntax.span
    inside = [c for c in comments if own.start <= c.span.start < own.end]
    yield from _find_unread(operator, inside)
    yield from _find_divisions(operator, inside)
    if not operator.has_formula:
        message = f"operator '{operator.name}' has no formula: it cannot be compiled"
        yield _warn(message, operator.syntax.name.span, FORMULA_CURE, code="W0002")


def warn_of_forward(operator: OperatorDefinition, known: Iterable[str]) -> Diagnostic:
    """Warning about a `forward` that names no known operator."""
    declared = operator.syntax.forward
    name = operator.syntax.name if declared is None else declared.operator
    near = nearest(operator.forward or "", known) or nearest(name.text, known)
    cure = f"did you mean '{near}'?" if near else "import the file that has it"
    fixes = replace_word(name.span, name.text, near)
    message = f"there is no operator '{name.text}', so nothing compares this gradient with it"
    return _warn(message, name.span, cure, code="W0703", fixes=fixes)


def _warn(
    message: str, span: Span, *notes: str, code: str, fixes: tuple[Fix, ...] = ()
) -> Diagnostic:
    found = tuple(map(Note, notes))
    return Diagnostic(message, span, found, warning=True, code=code, fixes=fixes)


# What nothing reads ----------------------------------------------------------------------------


def _find_unread(
    operator: OperatorDefinition, comments: Iterable[syntax.Comment]
) -> Iterator[Diagnostic]:
    """Locals, functions, inputs and attributes that nothing reads, except rows that the doc string
    or a comment explains."""
    statements = operator.compute or ()
    read = {*operator.broken}
    for statement in statements:
        read.update(names_read(statement))
    tensors = {t.name for level in operator.levels for t in level.tensors}
    for statement in statements:
        name = statement.name
        if name.text not in read and name.text not in tensors:
            verb = "called" if isinstance(statement, syntax.ScalarFunction) else "read"
            message, cure = f"'{name.text}' is never {verb}", "leave it out, or use it below"
            fixes = ((Edit(_whole_lines(statement.span), ""),),)
            yield _warn(message, name.span, cure, code="W0001", fixes=fixes)
    if not statements or operator.broken:
        # The reads of an unreadable row are unknown.
        return
    read.update(_list_elsewhere(operator))
    for text in (operator.doc or "", *(comment.text for comment in comments)):
        read.update(_NAME.findall(text))
    # Rows that match nothing of the forward operator have a warning of their own.
    gives = () if operator.syntax.gradient_of is not None else operator.newest.inputs
    inputs = [row for row in gives if not _names_sizes(row)]
    lengths = names_read(*(a.length for a in operator.attributes if a.length is not None))
    attributes = [a for a in operator.attributes if a.name not in lengths and not _is_fixed(a)]
    defined = {statement.name.text for statement in statements}
    for row in operator.newest.outputs:
        if row.optional and row.name not in defined:
            message = f"optional output '{row.name}' is never defined: no call may ask for it"
            yield _warn(
                message, row.span, f"define it in 'compute': {row.name} = ...", code="W0001"
            )
    for what, rows in (("input", inputs), ("attribute", attributes)):
        for row in rows:
            if row.name not in read:
                message = f"{what} '{row.name}' is never read"
                cure = "read it in 'compute', leave its row out, or say why in a comment"
                yield _warn(message, row.span, cure, code="W0001")


def _list_elsewhere(operator: OperatorDefinition) -> set[str]:
    """Names that conditions, functions and other rows read."""
    cells = [e for a in operator.attributes for e in (a.default, a.length) if e is not None]
    return set(names_read(*cells, *operator.functions.values(), *operator.constraints))


def _names_sizes(row: TensorDefinition) -> bool:
    """Whether a row names sizes, which is use enough."""
    return row.shape_name is not None or bool(row.dimensions)


def _is_fixed(attribute: AttributeDefinition) -> bool:
    """Whether an attribute has at most one value."""
    return attribute.enum is not None and len(attribute.enum.members) == 1


# Divisions -------------------------------------------------------------------------------------


def _find_divisions(
    operator: OperatorDefinition, comments: Iterable[syntax.Comment]
) -> Iterator[Diagnostic]:
    """Comments such as `// 2` in `Y = X // 2`, on an expression's line, that continue it as an
    expression."""
    statements = operator.compute or ()
    if not statements:
        return
    start, end = statements[0].span.start, _line_end(statements[-1].span)
    known = _list_known(operator, statements)
    for comment in comments:
        place = comment.span
        found = _DIVISION.fullmatch(comment.text)
        if found is None or not start <= place.start <= end:
            continue
        if not set(_NAME.findall(found["divisor"])) <= known:
            continue
        line = place.source.text[_line_start(place.source, place.start) : place.start]
        # After a ',', a brace, an operator or nothing, it is a remark.
        if not re.search(r"[\w)\]][ \t]*$", line):
            continue
        divided = _OPERAND.search(line)
        shown = "x" if divided is None or len(divided[1]) > _SHOWN else divided[1]
        fixes: tuple[Fix, ...] = ()
        if divided is not None:
            left = place.start - len(line) + divided.start(1)
            span = Span(place.source, left, place.start + found.end("divisor"))
            fixes = ((Edit(span, f"floor({divided[1]} / {found['divisor']})"),),)
        yield _warn(
            f"'//' starts a comment, and what stands behind it is left out: '{place.text}'",
            place,
            f"whole numbers are divided by floor({shown} / {found['divisor']}); a comment that is "
            "meant stands on a line of its own",
            code="W0003",
            fixes=fixes,
        )


def _list_known(operator: OperatorDefinition, statements: Sequence[syntax.Statement]) -> set[str]:
    """Names of numbers in `compute`."""
    tensors = [t for level in operator.levels for t in level.tensors]
    named = {d.name for t in tensors for d in t.dimensions or () if d.name is not None}
    indices = {i.text for s in statements if isinstance(s, syntax.Assignment)
               for i in (b.variable for b in s.indices or ())}  # fmt: skip
    rows = {row.name for row in (*tensors, *operator.attributes)}
    return rows | named | indices | {s.name.text for s in statements}


def _whole_lines(span: Span) -> Span:
    """Span of whole lines if no other statement shares them, else of the statement."""
    source, start, end = span.source, _line_start(span.source, span.start), _line_end(span)
    apart = source.text[start : span.start].strip() or source.text[span.end : end].strip()
    return span if apart else Span(source, start, min(end + 1, len(source.text)))


def _line_start(source: Source, place: int) -> int:
    return source.text.rfind("\n", 0, place) + 1


def _line_end(span: Span) -> int:
    found = span.source.text.find("\n", span.end)
    return len(span.source.text) if found < 0 else found
