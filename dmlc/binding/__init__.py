"""From a checked operator to a tensor IR function, for concrete tensors and attributes."""

from dmlc.binding.facts import ir_name
from dmlc.binding.graph import Graph
from dmlc.binding.module import Module
from dmlc.binding.operator import Operator
from dmlc.binding.tensors import TensorDesc

__all__ = ["Graph", "Module", "Operator", "TensorDesc", "ir_name"]
