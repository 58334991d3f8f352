"""Statements of a built graph: the values that get one, and their names. Other values are
inlined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dmlc.building.values import NOWHERE, Derivation, Role, Value
from dmlc.language import syntax

_DEEPEST = 6
"""Largest depth of operations in one statement; deeper ones are split, for readability."""


def list_statements(
    record: Sequence[Value],
    names: Mapping[int, str],
    outputs: Sequence[tuple[str, Value]],
    taken: Iterable[str],
) -> list[syntax.GraphStatement]:
    """Statements of a graph, in the order its values were made, then outputs that only rename.
    `names` has the names given to values, by `id`; `taken` are all names in use."""
    uses: dict[int, int] = {}
    for value in record:
        for operand in value.operands:
            uses[id(operand)] = uses.get(id(operand), 0) + 1
    results: dict[int, str] = {}
    for name, value in outputs:
        results.setdefault(id(value), name)
    writer = _StatementWriter(taken)
    statements: list[syntax.GraphStatement] = []
    written: set[str] = set()
    for value in record:
        if value.role is Role.PART:
            continue
        if isinstance(value, Derivation):
            statement = writer.derive(value, names, results)
            statements.append(statement)
            written.update(name.text for name in statement.names if statement.output)
            continue
        result = results.get(id(value))
        plain = value.role in (Role.LEAF, Role.OUTPUT)
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


class _StatementWriter:
    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = dict.fromkeys(taken)
        self.references: dict[int, syntax.Expression] = {}
        """References to the values that statements have defined so far."""
        self.depths: dict[int, int] = {}
        self.counts: dict[str, int] = {}

    def nests(self, value: Value) -> bool:
        """Whether an expression is shallow enough to be inlined in another."""
        inner = [self.depths.get(id(o), 0) for o in value.operands]
        depth = 1 + max(inner, default=0)
        self.depths[id(value)] = depth
        return depth < _DEEPEST

    def fresh(self, value: Value) -> str:
        """Name for a value without one."""
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
        """Statement that defines a value; later reads use its name."""
        expression = value.make([self.express(o) for o in value.operands])
        self.references[id(value)] = syntax.Reference(name, span=NOWHERE)
        self.depths[id(value)] = 0
        return _statement(name, expression, output)

    def derive(
        self, value: Derivation, names: Mapping[int, str], results: Mapping[int, str]
    ) -> syntax.GraphStatement:
        """Statement that defines gradients. Those without a name are named after the tensors they
        are with respect to."""
        of, wrt, given = (
            tuple(self.express(v) for v in values) for values in (value.of, value.wrt, value.given)
        )
        own = [results.get(id(part)) for part in value.parts]
        output = all(own) and not any(id(part) in names for part in value.parts)
        targets: list[syntax.Name] = []
        for part, result, target in zip(value.parts, own, wrt, strict=True):
            part.stem = f"d_{target.name}" if isinstance(target, syntax.Reference) else "gradient"
            name = (result if output else names.get(id(part))) or self.fresh(part)
            self.references[id(part)] = syntax.Reference(name, span=NOWHERE)
            targets.append(syntax.Name(name, span=NOWHERE))
        made = syntax.Gradient(of, wrt, given, span=NOWHERE)
        return syntax.GraphStatement(tuple(targets), made, output, span=NOWHERE)

    def express(self, value: Value) -> syntax.Expression:
        """Expression of a value where it is read."""
        found = self.references.get(id(value))
        if found is not None:
            return found
        return value.make([self.express(o) for o in value.operands])
