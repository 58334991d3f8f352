"""Checks of a binding's tensors against the operator's tables and constraints.

Every check adds a diagnostic and goes on, so that one binding reports all its errors. The
diagnostic of a broken constraint quotes it, with its span and the values that broke it.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, BoundTensor, as_values, match_dimensions
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import Constant, show, span_text
from dmlc.ir import Extent
from dmlc.ir.places import overlaps
from dmlc.language import syntax
from dmlc.language.builtins import FACTS
from dmlc.language.check_kinds import show_ranks
from dmlc.language.definitions import Dimension, mistake
from dmlc.language.walk import subexpressions
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, Note, join_words

Diagnostics = list[Diagnostic]


def check_tensor(tensor: BoundTensor, diagnostics: Diagnostics) -> None:
    """Checks the data type, rank and strides of a tensor, as far as known, against its table
    row."""
    definition, name, sizes = tensor.definition, tensor.name, tensor.sizes
    if tensor.dtype is not None and tensor.dtype not in definition.dtypes:
        permitted = join_words(t.name for t in definition.dtypes)
        message = f"'{name}' cannot be {tensor.dtype.name}: it is {permitted}"
        diagnostics.append(mistake(definition, message, code="E0802"))
    if sizes is None:
        return
    if len(sizes) not in definition.ranks:
        message = (
            f"'{name}' takes {show_ranks(definition.ranks)} dimensions, and is given "
            f"{len(sizes)}: {show_sizes(sizes)}"
        )
        diagnostics.append(mistake(definition, message, code="E0803"))
    known = tuple(e for e in sizes if isinstance(e, int))
    if definition.output and tensor.strides and overlaps(known, tensor.strides):
        message = (
            f"elements of output '{name}' overlap: sizes {show_sizes(sizes)} with strides "
            f"{show_sizes(tensor.strides)}"
        )
        note = Note("each stride must pass over all that smaller strides reach")
        diagnostics.append(mistake(definition, message, note, code="E0806"))


# Whole bindings --------------------------------------------------------------------------------


def check_constraints(binding: Binding, diagnostics: Diagnostics) -> None:
    """Checks every constraint of the operator, on tensors of known types and sizes. In a symbolic
    binding all sizes are the same unknown."""
    check_types(binding, diagnostics)
    check_shapes(binding, diagnostics)
    for requirement in binding.operator.requirements:
        check_requirement(binding, requirement, diagnostics)


def check_shapes(binding: Binding, diagnostics: Diagnostics) -> None:
    """Checks the `Dimensions` column and the sentences, on tensors of known sizes."""
    unify_dimensions(binding, diagnostics)
    for sentence in binding.operator.sentences():
        _check_sentence(binding, sentence, diagnostics)


def check_types(binding: Binding, diagnostics: Diagnostics) -> None:
    """Checks the data types against the rows of the `types` table."""
    combinations = binding.operator.combinations
    if not combinations:
        return
    present = [t for t in binding.tensors.values() if t.dtype is not None]
    for combination in combinations:
        if all(t.dtype in combination.types.get(t.definition.row, (t.dtype,)) for t in present):
            return
    named = [t for t in present if any(t.definition.row in c.types for c in combinations)]
    shown = ", ".join(f"{t.name} {_type_name(t.dtype)}" for t in named)
    table = combinations[0].span.to(combinations[-1].span)
    diagnostics.append(
        Diagnostic(f"this combination of data types is not permitted: {shown}", table, code="E0802")
    )


def _type_name(dtype: DataType | None) -> str:
    return "?" if dtype is None else dtype.name


def _check_sentence(binding: Binding, sentence: syntax.Sentence, diagnostics: Diagnostics) -> None:
    present = [t for s in sentence.subjects for t in binding.members(s.text)]
    broken: list[str] = []
    if sentence.kind == "same":
        for fact in sentence.objects:
            facts = _facts(present, fact.text)
            given = {t.name: facts[t.name] for t in present if t.given and t.name in facts}
            if len(set(facts.values())) > 1:
                contradict = len(set(given.values())) > 1
                broken.append(_show_facts(fact.text, given if contradict else facts))
    elif sentence.kind == "scalar":
        broken += [
            f"{t.name} has sizes {show_sizes(t.sizes)}"
            for t in present
            if t.sizes is not None and any(size != 1 for size in t.sizes)
        ]
    else:
        target = binding.tensors.get(sentence.objects[0].text)
        if target is None or target.sizes is None:
            return
        broken += [
            f"{t.name} has sizes {show_sizes(t.sizes)} and {target.name} has "
            f"{show_sizes(target.sizes)}"
            for t in present
            if t.sizes is not None and not _broadcasts(t.sizes, target.sizes)
        ]
    if broken:
        diagnostics.append(_violation(sentence, broken))


def _facts(tensors: list[BoundTensor], fact: str) -> dict[str, Constant]:
    """Known values of a fact, by tensor."""
    found: dict[str, Constant] = {}
    for tensor in tensors:
        if fact == "DataType" and tensor.dtype is not None:
            found[tensor.name] = tensor.dtype
        elif fact != "DataType" and tensor.sizes is not None:
            sizes = as_values(tensor.sizes)
            found[tensor.name] = len(sizes) if fact == "DimensionCount" else sizes
    return found


def _show_facts(fact: str, facts: dict[str, Constant]) -> str:
    """Text of a fact's values; tensors with the same value are listed together."""
    groups: dict[Constant, list[str]] = {}
    for name, value in facts.items():
        groups.setdefault(value, []).append(name)
    return "; ".join(
        f"{join_words(names, 'and')} {'has' if len(names) == 1 else 'have'} {fact} {show(value)}"
        for value, names in groups.items()
    )


def _violation(constraint: syntax.Constraint, broken: Iterable[str]) -> Diagnostic:
    text = " ".join(constraint.span.text.split())
    return Diagnostic(
        f'broken constraint: "{text}"',
        constraint.span,
        tuple(Note(b) for b in broken),
        code="E0801",
    )


def _broadcasts(sizes: tuple[Extent, ...], target: tuple[Extent, ...]) -> bool:
    return len(sizes) == len(target) and all(
        size in (1, other) for size, other in zip(sizes, target, strict=True)
    )


def check_requirement(
    binding: Binding, requirement: syntax.Require, diagnostics: Diagnostics
) -> None:
    """Checks one `require`; an array of booleans must be true in every entry."""
    evaluator = Evaluator(binding)
    evaluator.requires = True
    try:
        value = evaluator.constant(requirement.condition)
    except DmlcError as error:
        diagnostics += error.diagnostics
        return
    if holds(value):
        return
    if not _is_boolean(value):
        place = requirement.condition.span
        message = f"'require' needs a boolean, but {span_text(place)} is {show(value)}"
        diagnostics.append(Diagnostic(message, place, code="E0301"))
        return
    broken = _values_read(evaluator, requirement.condition)
    diagnostic = _violation(requirement, broken)
    if requirement.message is not None:
        quoted = Note(f'it reads: "{" ".join(requirement.span.text.split())}"')
        diagnostic = Diagnostic(
            f"broken constraint: {requirement.message}",
            diagnostic.span,
            (quoted, *diagnostic.notes),
            code="E0801",
        )
    diagnostics.append(diagnostic)


def holds(value: Constant) -> bool:
    """Whether a condition is true; of an array, whether every entry is."""
    return all(holds(v) for v in value) if isinstance(value, tuple) else value is True


def _is_boolean(value: Constant) -> bool:
    if isinstance(value, tuple):
        return all(_is_boolean(v) for v in value)
    return isinstance(value, bool)


def _values_read(evaluator: Evaluator, condition: syntax.Expression) -> list[str]:
    """Text such as `Epsilon is -1.0` for each attribute and fact that a condition reads."""
    found: dict[str, None] = {}
    for part in subexpressions(condition):
        attribute = isinstance(part, syntax.Reference) and part.name in evaluator.binding.attributes
        fact = isinstance(part, syntax.Member) and part.member.text in FACTS
        named = isinstance(part, syntax.Reference) and (
            evaluator.binding.names_dimension(part.name)
        )
        if fact and isinstance(part, syntax.Member) and evaluator.names_tensors(part.base):
            # `[X.Sizes == Y.Sizes...]` reads that of each tensor of an array.
            for member in evaluator.binding.members(part.base.span.text):
                read = FACTS[part.member.text].evaluate(evaluator.binding, member.name, part.span)
                found[f"{member.name}.{part.member.text} is {show(read)}"] = None
        elif attribute or fact or named:
            name = " ".join(part.span.text.split())
            try:
                value = evaluator.constant(part)
            except DmlcError:
                continue  # It stands in a branch that is not taken, and has no value here.
            found[f"{name} is {show(value)}"] = None
    return list(found)


# Dimensions ------------------------------------------------------------------------------------


def unify_dimensions(binding: Binding, diagnostics: Diagnostics) -> None:
    """Checks sizes against the `Dimensions` column. Equal names must have equal sizes, or shapes;
    an optional dimension that a tensor omits counts as 1."""
    shapes: dict[str, BoundTensor] = {}
    sizes: dict[str, tuple[BoundTensor, Extent]] = {}
    left_out: list[tuple[BoundTensor, str]] = []
    for tensor in binding.tensors.values():
        if tensor.sizes is None:
            continue
        found: list[str] = []
        shape_name, pattern = tensor.definition.shape_name, tensor.definition.dimensions
        shown = show_sizes(tensor.sizes)
        if shape_name is not None:
            first = shapes.setdefault(shape_name, tensor)
            if first.sizes != tensor.sizes:
                found.append(
                    f"'{first.name}' and '{tensor.name}' share the dimensions '{shape_name}', but "
                    f"their sizes are {show_sizes(first.sizes or ())} and {shown}"
                )
        matched = None if pattern is None else match_dimensions(pattern, len(tensor.sizes))
        if pattern is not None and matched is None:
            found.append(
                f"'{tensor.name}' takes dimensions {show_dimensions(pattern)}, and is given "
                f"{len(tensor.sizes)}: {shown}"
            )
        for dimension, size in zip(matched or (), tensor.sizes, strict=matched is not None):
            if dimension.size is not None and size != dimension.size:
                found.append(
                    f"'{tensor.name}' has dimensions {show_dimensions(pattern or ())}, so a size "
                    f"must be {dimension.size}, but its sizes are {shown}"
                    f"{f', where {size} is left open' if isinstance(size, str) else ''}"
                )
            if dimension.name is None:
                continue
            other, known = sizes.setdefault(dimension.name, (tensor, size))
            if size != known:
                found.append(
                    f"dimension '{dimension.name}' is {known} in '{other.name}' but {size} in "
                    f"'{tensor.name}'"
                )
        if matched is not None:
            names = {d.name for d in matched}
            absent = [d.name for d in pattern or () if d.name is not None and d.name not in names]
            left_out += [(tensor, name) for name in absent]
        diagnostics += [mistake(tensor.definition, message, code="E0803") for message in found]
    for tensor, name in left_out:
        other, size = sizes.get(name, (tensor, 1))
        if size != 1:
            message = (
                f"dimension '{name}' is {size} in '{other.name}', and '{tensor.name}' leaves it "
                "out: only 1 may be left out"
            )
            diagnostics.append(mistake(tensor.definition, message, code="E0803"))


def show_dimensions(pattern: tuple[Dimension, ...]) -> str:
    """`{ N, C, 1, 1 }`"""
    parts = [d.name if d.name is not None else str(d.size) for d in pattern]
    marked = [f"[{p}]" if d.optional else p for d, p in zip(pattern, parts, strict=True)]
    return "{ " + ", ".join(marked) + " }"
