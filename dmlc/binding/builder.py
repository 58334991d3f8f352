"""`NodeBuilder`: creates the nodes of one function. It knows types and shapes, and no syntax of the
language. Each kind of node has a part of its own."""

from __future__ import annotations

from dmlc.binding.conversions import Conversions
from dmlc.binding.folds import Folds
from dmlc.binding.nodes import Nodes
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.binding.reads import Reads


class NodeBuilder:
    def __init__(self) -> None:
        self.nodes = Nodes()
        self.conversions = Conversions(self.nodes)
        self.positions = Positions(self.nodes, self.conversions)
        parts = (self.nodes, self.conversions, self.positions)
        self.operations = Operations(*parts)
        self.folds = Folds(*parts, self.operations)
        self.reads = Reads(*parts, self.operations)
