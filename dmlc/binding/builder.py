"""`Builder`: what makes the nodes of one function, each kind by a part that owns its own state.

It knows types and shapes, not the operator language.
"""

from __future__ import annotations

from dmlc.binding.conversions import Conversions
from dmlc.binding.folds import Folds
from dmlc.binding.nodes import Nodes
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.binding.reads import Reads


class Builder:
    def __init__(self) -> None:
        self.nodes = Nodes()
        self.conversions = Conversions(self.nodes)
        self.positions = Positions(self.nodes, self.conversions)
        parts = (self.nodes, self.conversions, self.positions)
        self.operations = Operations(*parts)
        self.folds = Folds(*parts, self.operations)
        self.reads = Reads(*parts, self.operations)
