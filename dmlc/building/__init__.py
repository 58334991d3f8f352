"""Graphs built in Python: values with NumPy's arithmetic, printed and checked as the language."""

from dmlc.building.builder import GraphBuilder
from dmlc.building.values import Value

__all__ = ["GraphBuilder", "Value"]
