"""Which values of a built graph are statements, under which names, and which stand where they are
read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dmlc.building.values import NOWHERE, Derivation, Role, Value
from dmlc.language import syntax

_DEEPEST = 6
"""The operations that nest in one statement; what is deeper is parted, to be read."""


def list_statements(
    record: Sequence[Value],
    names: Mapping[int, str],
    outputs: Sequence[tuple[str, Value]],
    taken: Iterable[str],
) -> list[syntax.GraphStatement]:
    """The statements of a graph, in the order its values were made, then outputs that only rename.

    `names` has the names that were given to values, by `id`; `taken` are all names in use.
    """
    uses: dict[int, int] = {}
    for value in record:
        for operand in value.operands:
            uses[id(operand)] = uses.get(id(operand), 0) + 1
    results: dict[int, str] = {}
    for name, value in outputs:
        results.setdefault(id(value), name)
    writer = _Writer(taken)
    statements: list[syntax.GraphStatement] = []
    written: set[str] = set()
    for value in record:
        if isinstance(value, Derivation):
            found = [results.get(id(part)) for part in value.parts]
            whole = all(found) and not any(id(part) in names for part in value.parts)
            writer.name_parts(value)
            chosen = [
                (name if whole else names.get(id(part))) or writer.fresh(part)
                for name, part in zip(found, value.parts, strict=True)
            ]
            statements.append(writer.derive(value, chosen, whole))
            written.update(chosen if whole else ())
            continue
        result = results.get(id(value))
        plain = value.role in (Role.LEAF, Role.OUTPUT, Role.PART)
        given = names.get(id(value))
        single = value.role is Role.EXPRESSION and uses.get(id(value)) == 1
        if given is None and (plain or (single and result is None and writer.nests(value))):
            continue
        name = given or ("" if plain else result) or writer.fresh(value)
        own = name == result
        statements.append(writer.state(value, name, own))
        if own:
            written.add(name)
    for name, value in outputs:
        if name not in written:
            statements.append(_statement(name, writer.express(value), True))
    return statements


def _statement(name: str, value: syntax.Expression, output: bool) -> syntax.GraphStatement:
    return syntax.GraphStatement((syntax.Name(name, span=NOWHERE),), value, output, span=NOWHERE)


class _Writer:
    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = dict.fromkeys(taken)
        self.references: dict[int, syntax.Expression] = {}
        """The values that statements have defined by now."""
        self.depths: dict[int, int] = {}
        self.counts: dict[str, int] = {}

    def nests(self, value: Value) -> bool:
        """Whether an expression is shallow enough to stand inside another."""
        inner = [self.depths.get(id(o), 0) for o in value.operands]
        depth = 1 + max(inner, default=0)
        self.depths[id(value)] = depth
        return depth < _DEEPEST

    def fresh(self, value: Value) -> str:
        """A name for a value that has none."""
        stem = value.stem or "value"
        count = self.counts.get(stem, 0)
        name = stem
        while name in self.taken or (count == 0 and stem == "value"):
            count += 1
            name = f"{stem}{count}" if stem == "value" else f"{stem}_{count + 1}"
        self.counts[stem] = count
        self.taken[name] = None
        return name

    def state(self, value: Value, name: str, output: bool) -> syntax.GraphStatement:
        """The statement that defines a value, which is a name from here on."""
        expression = value.make([self.express(o) for o in value.operands])
        self.references[id(value)] = syntax.Reference(name, span=NOWHERE)
        self.depths[id(value)] = 0
        return _statement(name, expression, output)

    def name_parts(self, value: Derivation) -> None:
        """Has gradients that have no names called after what they are with respect to."""
        for part, target in zip(value.parts, value.wrt, strict=True):
            named = self.express(target)
            part.stem = f"d_{named.name}" if isinstance(named, syntax.Reference) else "gradient"

    def derive(
        self, value: Derivation, names: Sequence[str], output: bool
    ) -> syntax.GraphStatement:
        """The statement that defines gradients."""
        of, wrt, given = (
            tuple(self.express(v) for v in values) for values in (value.of, value.wrt, value.given)
        )
        for part, name in zip(value.parts, names, strict=True):
            self.references[id(part)] = syntax.Reference(name, span=NOWHERE)
        made = syntax.Gradient(of, wrt, given, span=NOWHERE)
        targets = tuple(syntax.Name(name, span=NOWHERE) for name in names)
        return syntax.GraphStatement(targets, made, output, span=NOWHERE)

    def express(self, value: Value) -> syntax.Expression:
        """A value where it is read."""
        found = self.references.get(id(value))
        if found is not None:
            return found
        return value.make([self.express(o) for o in value.operands])
