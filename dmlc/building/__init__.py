"""Graphs and functions built in Python: graphs of values with NumPy's arithmetic, printed and
checked as the language; functions of the tensor IR; gradients of operators and graphs."""

from dmlc.building.builder import GraphBuilder
from dmlc.building.gradient import gradient
from dmlc.building.values import Value

__all__ = ["GraphBuilder", "Value", "gradient"]
