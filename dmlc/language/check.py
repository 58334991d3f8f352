"""Semantic analysis: resolves imports and names, and checks every declaration of a file.

Up to 20 errors accumulate; an erroneous expression has the kind `UNKNOWN`, which fits everywhere.
Nothing is bound here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dmlc.language import syntax
from dmlc.language.builtins import BUILT_IN
from dmlc.language.check_expressions import ExpressionChecker
from dmlc.language.check_functions import check_function_gradients, order_functions
from dmlc.language.check_gradient import check_forward, check_gradients
from dmlc.language.check_graph import Operators, check_graph
from dmlc.language.check_operator import check_operator
from dmlc.language.check_slips import find_slips, warn_of_forward
from dmlc.language.definitions import (
    EnumDefinition,
    GraphDefinition,
    Library,
    ModuleDefinition,
    OperatorDefinition,
    qualify,
)
from dmlc.language.imports import Loaded, load_file, load_text
from dmlc.language.kinds import SymbolTable
from dmlc.language.parse import MAX_ERRORS
from dmlc.source import Diagnostic, DmlcError, Span


def check_file(
    path: Path, library: Library | None = None, folders: Sequence[Path] = ()
) -> ModuleDefinition:
    """Definitions of a `.dml` file and its imports. Raises `DmlcError` with up to 20 errors. Graphs
    may call the operators of `library` besides those of the file and its imports. Imports must lie
    below the file's folder, or below `folders`."""
    return _check(load_file(path, folders), library)


def check_text(
    text: str, filename: str, library: Library | None = None, folders: Sequence[Path] = ()
) -> ModuleDefinition:
    """Definitions of a text, as in `check_file`; imports are relative to the folder of
    `filename`."""
    return _check(load_text(text, filename, folders), library)


class _Mistakes(list[Diagnostic]):
    """List of diagnostics that ends the check when it is full."""

    def append(self, item: Diagnostic) -> None:
        super().append(item)
        if len(self) >= MAX_ERRORS:
            raise DmlcError(self)

    def extend(self, items: Iterable[Diagnostic]) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Iterable[Diagnostic]) -> _Mistakes:
        self.extend(items)
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """Definitions of a file with its imports, as far as correct, and every error in it."""

    operators: Mapping[str, OperatorDefinition]
    graphs: Mapping[str, GraphDefinition]
    names: Mapping[str, SymbolTable]
    """Symbol table of each operator and graph."""
    errors: tuple[Diagnostic, ...]
    """Up to 20."""
    warnings: tuple[Diagnostic, ...]


def examine(loaded: Loaded, library: Library | None) -> Findings:
    """Checks a parsed file with its imports. Does not raise for errors in the file."""
    checker = _FileChecker(library)
    try:
        for file in (*loaded.imports, loaded.file):
            checker.check(file)
        errors = tuple(checker.diagnostics)
    except DmlcError as error:
        errors = error.diagnostics
    return Findings(
        MappingProxyType(checker.operators),
        MappingProxyType(checker.graphs),
        MappingProxyType(checker.scopes),
        errors,
        tuple(checker.warnings),
    )


def _check(loaded: Loaded, library: Library | None) -> ModuleDefinition:
    found = examine(loaded, library)
    if found.errors:
        raise DmlcError(found.errors)
    return ModuleDefinition(loaded.file.source, found.operators, found.graphs, found.warnings)


class _FileChecker:
    """Checker of the declarations of a file and its imports, the imports first."""

    def __init__(self, library: Library | None) -> None:
        self.library = library
        self.diagnostics: list[Diagnostic] = _Mistakes()
        self.warnings: list[Diagnostic] = []
        self.enums: dict[str, EnumDefinition] = {}
        self.operators: dict[str, OperatorDefinition] = {}
        self.graphs: dict[str, GraphDefinition] = {}
        self.places: dict[str, Span] = {}
        self.scopes: dict[str, SymbolTable] = {}
        self.names = SymbolTable(self.enums, {}, {})
        self.checker = ExpressionChecker(self.names, self.diagnostics)

    def check(self, file: syntax.File) -> None:
        module = None if file.module is None else file.module.text
        enums = [d for d in file.declarations if isinstance(d, syntax.Enum)]
        functions = [d for d in file.declarations if isinstance(d, syntax.ScalarFunction)]
        operators = [d for d in file.declarations if isinstance(d, syntax.Operator)]
        graphs = [d for d in file.declarations if isinstance(d, syntax.Graph)]
        for enum in enums:
            self.check_enum(enum)
        self.check_functions(functions)
        own: list[OperatorDefinition] = []
        for operator in operators:
            self.declare("operator or graph", operator.name, qualify(module, operator.name.text))
            names = self.copy_names()
            self.scopes[qualify(module, operator.name.text)] = names
            made = check_operator(operator, module, names, self.diagnostics)
            self.operators[made.name] = made
            self.warnings += find_slips(made, file.comments)
            own.append(made)
        known = Operators(module, self.operators, self.library)

        def find(name: syntax.Name) -> OperatorDefinition | None:
            return known.find(name, self.diagnostics)

        self.operators |= check_gradients(own, find, self.diagnostics, self.warnings)
        for operator in own:
            self.find_partner(operator.name)
        for graph in graphs:
            name = qualify(module, graph.name.text)
            self.declare("operator or graph", graph.name, name)
            names = self.scopes[name] = self.copy_names(elements=True)
            called = check_graph(graph, names, known, self.diagnostics, self.warnings)
            self.graphs[name] = GraphDefinition(
                name, graph, MappingProxyType(called), names.functions, names.enums
            )

    def find_partner(self, name: str) -> None:
        """Links an operator to the one that its `forward` names. That one may be outside this file:
        only comparisons of the two need it."""
        operator = self.operators[name]
        if operator.forward is None or operator.forward == name:
            return
        partner = self.operators.get(operator.forward)
        if partner is None and operator.syntax.forward is not None:
            partner = self.operators.get(operator.syntax.forward.operator.text)
        if partner is None and self.library is not None:
            partner = self.library.find(operator.forward)
        self.operators[name] = dataclasses.replace(operator, partner=partner)
        if partner is not None and operator.syntax.gradient_of is None:
            check_forward(operator, partner, self.diagnostics)
        elif partner is None and self.library is not None:
            known = [n for n in (*self.operators, *self.library.names()) if n != name]
            self.warnings.append(warn_of_forward(operator, known))

    def copy_names(self, *, elements: bool = False) -> SymbolTable:
        """Copy of the current symbol table for one operator or graph."""
        names = self.names
        return SymbolTable(dict(self.enums), names.functions, names.results, elements=elements)

    def declare(self, what: str, name: syntax.Name, qualified: str) -> None:
        named = syntax.Name(f"{what} {qualified}", span=name.span)
        message = f"{what} '{qualified}' is declared twice"
        self.checker.hold_once(named, self.places, message, "the first is here")

    def check_enum(self, enum: syntax.Enum) -> None:
        name = enum.name
        self.declare("enum", name, name.text)
        if not enum.members:
            self.checker.fail(f"enum '{name.text}' has no members", name.span, code="E0504")
        members: dict[str, int] = {}
        for member in enum.members:
            if member.name.text in members:
                self.checker.fail(
                    f"'{member.name.text}' stands twice in enum '{name.text}'",
                    member.name.span,
                    code="E0504",
                )
            elif member.value in members.values():
                other = next(n for n, v in members.items() if v == member.value)
                self.checker.fail(
                    f"'{member.name.text}' has the same value as '{other}' in enum '{name.text}'",
                    member.span,
                    code="E0504",
                )
            members[member.name.text] = member.value
        made = EnumDefinition(name.text, MappingProxyType(members), name.span)
        self.enums.setdefault(name.text, made)

    def check_functions(self, functions: list[syntax.ScalarFunction]) -> None:
        first: dict[str, syntax.ScalarFunction] = {}
        for function in functions:
            name = function.name
            self.declare("function", name, name.text)
            if name.text in BUILT_IN:
                self.checker.fail(
                    f"'{name.text}' is a function of the language", name.span, code="E0207"
                )
            first.setdefault(name.text, function)
            self.names.functions.setdefault(name.text, function)
        ordered, recursive = order_functions(list(first.values()), self.diagnostics)
        for function in ordered:
            name = function.name.text
            self.names.results[name] = self.checker.check_function(function, name in recursive)
        for function in ordered:
            check_function_gradients(self.checker, function)
