"""Groups of nodes of PyTorch's graphs as functions of the IR.

A group is given by the nodes that it computes. It also makes the views and constants that they
read; all else that they read is an input."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from dmlc.building.functions import FunctionBuilder, Tensor
from dmlc.ir import Function
from dmlc.runtime.arrays import packed
from dmlc.source import DmlcError, UnsupportedError
from dmlc.torch.composites import is_composite, take_apart
from dmlc.torch.convolutions import CONVOLUTIONS
from dmlc.torch.elementwise import CREATION, ELEMENTWISE, Rule, Site
from dmlc.torch.products import PRODUCTS, count_work
from dmlc.torch.resampling import RESAMPLING
from dmlc.torch.tensors import data_type_of
from dmlc.torch.whole import VIEWS, WHOLE
from dmlc.torch.windows import WINDOWS

_RULES = (
    ELEMENTWISE, WHOLE, WINDOWS, RESAMPLING, PRODUCTS, CONVOLUTIONS, VIEWS, CREATION,
)  # fmt: skip

RULES: Mapping[Any, Rule] = MappingProxyType({k: v for rules in _RULES for k, v in rules.items()})
"""The rule of each operator of PyTorch that is mapped."""

Made: TypeAlias = Tensor | tuple[Tensor | None, ...]

MOST_AXES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Nodes that become one function, with their inputs and outputs."""

    members: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    function: Function


def value_of(node: Node) -> Any:
    """Fake value of a node: a tensor without elements, several, or a number."""
    return node.meta.get("val")


def tensors_of(node: Node) -> list[torch.Tensor]:
    """Fake tensors of a node, without elements."""
    value = value_of(node)
    listed = cast("Sequence[object]", value) if isinstance(value, (tuple, list)) else (value,)
    return [each for each in listed if isinstance(each, torch.Tensor)]


def is_view(node: Node) -> bool:
    """Whether a node is a view of another."""
    return node.op == "call_function" and node.target in VIEWS


def is_creation(node: Node) -> bool:
    """Whether a node has no inputs, such as `full`."""
    return node.op == "call_function" and node.target in CREATION


def find_reason(
    node: Node, reasons: Mapping[Node, str], most_work: int | None = None
) -> str | None:
    """Reason that a node is not mapped; None if it is. `reasons` has the earlier unmapped nodes.
    Products of more than `most_work` multiply-adds are left to eager, if that is given."""
    if node.target is operator.getitem:
        (source, *_) = node.all_input_nodes
        return reasons.get(source)
    work = count_work(node)
    if work is not None and most_work is not None and work > most_work:
        return f"PyTorch's own is faster: {work:,} multiply-adds, of more than {most_work:,}"
    if node.op != "call_function" or not (node.target in RULES or is_composite(node)):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return "PyTorch draws random numbers, so that they are those of eager"
        return "it is not mapped"
    try:
        for each in (node, *node.all_input_nodes):
            for tensor in tensors_of(each):
                _check_tensor(tensor)
        _Translation("probe", {node: None}).make(node)
    except DmlcError as error:
        return error.diagnostics[0].message
    return None


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise UnsupportedError("a tensor is not a strided one of the CPU")
    if tensor.numel() == 0:
        raise UnsupportedError("a tensor has no elements")
    if tensor.dim() > MOST_AXES:
        raise UnsupportedError(f"a tensor has more than {MOST_AXES} axes")
    data_type_of(tensor.dtype)


def make_group(
    members: Sequence[Node], outputs: Sequence[Node], views: Mapping[Node, object]
) -> Group:
    """Group that computes `members`, in order, of which `outputs` are read elsewhere. `views` are
    those that it may make itself. Equal nodes give equal functions, whatever graph they are
    from."""
    inside = {**dict.fromkeys(members), **dict.fromkeys(views)}
    work = _Translation(_join_names(members), inside)
    results: list[tuple[str, tuple[int, ...] | None]] = []
    for number, node in enumerate(outputs):
        made = work.make(node)
        if not isinstance(made, Tensor):
            raise UnsupportedError(f"{node.name} is no tensor")
        found = f"out{number}"
        work.builder.result(found, made)
        results.append((found, _dense_strides(value_of(node))))
    function = work.builder.build()
    strided = tuple(
        dataclasses.replace(result, strides=strides)
        for result, (_, strides) in zip(function.results, results, strict=True)
    )
    function = dataclasses.replace(function, results=strided)
    return Group(tuple(members), tuple(work.inputs), tuple(outputs), function)


def settled_strides(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides in which those of axes with one element, which no index is multiplied by, are as in
    packed tensors."""
    tight = packed(tuple(sizes))
    steps = zip(sizes, strides, tight, strict=True)
    return tuple(step if size > 1 else own for size, step, own in steps)


def _given_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of an input; None if it is packed."""
    sizes = tuple(tensor.shape)
    strides = settled_strides(sizes, tensor.stride())
    return None if strides == packed(sizes) else strides


def _dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a result in eager mode, if they leave no gaps."""
    strides = _given_strides(tensor)
    if strides is None:
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    tight = packed(tuple(tensor.shape[axis] for axis in order))
    return strides if tuple(strides[axis] for axis in order) == tight else None


MOST_LETTERS = 48


def _join_names(members: Sequence[Node]) -> str:
    """Name of a group, from the names of its nodes' operators."""
    found = ""
    for name in dict.fromkeys(map(_operator_name, members)):
        if len(found) + len(name) > MOST_LETTERS:
            break
        found = f"{found}_{name}" if found else name
    return found or "group"


def _operator_name(node: Node) -> str:
    """Name of a node's operator: `var_mean` of `aten.var_mean.correction`."""
    return str(getattr(node.target, "__name__", node.name)).partition(".")[0].strip("_")


def _expect_one(made: Made) -> Tensor:
    if not isinstance(made, Tensor):
        raise UnsupportedError("its definition gives several tensors as one")
    return made


class _Translation:
    """Function of a group under construction. Values that are not of its nodes are inputs."""

    def __init__(self, name: str, inside: Mapping[Node, object]) -> None:
        self.builder = FunctionBuilder(name)
        self.inputs: list[Node] = []
        self._inside = inside
        self._made: dict[Node, Made] = {}

    def make(self, node: Node) -> Made:
        """Tensor of a node, after those that it reads. Iterative, for long chains."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self._made:
                pending.pop()
                continue
            missing = [n for n in self._sources(current) if n not in self._made]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._made[current] = self._translate(current)
        return self._made[node]

    def _is_inside(self, node: Node) -> bool:
        return node in self._inside or is_creation(node)

    def _sources(self, node: Node) -> list[Node]:
        if not self._is_inside(node) or is_creation(node):
            return []
        return [n for n in node.all_input_nodes if tensors_of(n)]

    def _translate(self, node: Node) -> Made:
        if not self._is_inside(node):
            return self._add_input(node)
        return self._apply(node, self._made)

    def _apply(self, node: Node, made: Mapping[Node, Made]) -> Made:
        """Result of a node, from the results of those that it reads."""
        if node.target is operator.getitem:
            source, number = cast("tuple[Node, int]", node.args)
            whole = made[source]
            part = whole[number] if isinstance(whole, tuple) else whole
            if part is None:
                raise UnsupportedError("it is read, and was not wanted")
            return part
        if node.target in RULES:
            return self._apply_rule(node, made)
        if is_composite(node):
            return self._apply_parts(node, made)
        raise UnsupportedError(f"its part {node.target} is not mapped")

    def _apply_parts(self, node: Node, made: Mapping[Node, Made]) -> Made:
        graph = take_apart(node)
        given = (made[source] for source in node.all_input_nodes if tensors_of(source))
        own: dict[Node, Made] = {}
        for inner in graph.nodes:
            if inner.op == "placeholder":
                own[inner] = next(given)
            elif inner.op == "call_function":
                own[inner] = self._apply(inner, own)
        (output,) = (inner for inner in graph.nodes if inner.op == "output")
        (found,) = cast("tuple[Node | Sequence[Node | None]]", output.args)
        if isinstance(found, Node):
            return own[found]
        parts = (None if each is None else own[each] for each in found)
        return tuple(None if part is None else _expect_one(part) for part in parts)

    def _apply_rule(self, node: Node, made: Mapping[Node, Made]) -> Made:
        rule = RULES[node.target]
        first = tensors_of(node)[0]
        name = _operator_name(node)
        sources = tuple(t for source in node.all_input_nodes for t in tensors_of(source))
        site = Site(self.builder, name, data_type_of(first.dtype), tuple(first.shape), sources)
        blind = is_creation(node)

        def find(source: Node) -> Any:
            if not tensors_of(source):
                return value_of(source)
            return None if blind else made[source]

        args, kwargs = cast(
            "tuple[tuple[Any, ...], dict[str, Any]]", map_arg((node.args, node.kwargs), find)
        )
        try:
            inspect.signature(rule).bind(site, *args, **kwargs)
        except TypeError as error:
            raise UnsupportedError("it is not mapped with these arguments") from error
        return rule(site, *args, **kwargs)

    def _add_input(self, node: Node) -> Tensor:
        value = value_of(node)
        strides = _given_strides(value)
        tensor = self.builder.parameter(
            f"in{len(self.inputs)}", data_type_of(value.dtype), tuple(value.shape), strides
        )
        self.inputs.append(node)
        return tensor
