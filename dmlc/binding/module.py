"""`Module`: the operators and graphs of one checked file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.binding.graph import Graph
from dmlc.binding.operator import Operator
from dmlc.language.definitions import ModuleDefinition
from dmlc.source import Diagnostic, list_names


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """Operators and graphs by qualified name; `diagnostics` holds warnings."""

    operators: Mapping[str, Operator]
    graphs: Mapping[str, Graph]
    diagnostics: tuple[Diagnostic, ...]

    def __repr__(self) -> str:
        names = list_names([*self.operators, *self.graphs])
        return f"<module of {names}>" if names else "<empty module>"

    @staticmethod
    def of(definition: ModuleDefinition) -> Module:
        operators = {name: Operator(d) for name, d in definition.operators.items()}
        graphs = {name: Graph(d) for name, d in definition.graphs.items()}
        return Module(
            MappingProxyType(operators),
            MappingProxyType(graphs),
            definition.diagnostics,
        )
