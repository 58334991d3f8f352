"""`torch.compile(model, backend="dmlc")`: graphs of PyTorch whose element-wise operations and
reductions, with their gradients, are computed by dmlc.

PyTorch traces a model and its gradient, and decides which tensors of the forward pass are kept for
the backward pass. Both graphs are partitioned into groups, each of which is one function of the IR.
Calls of PyTorch's own operators remain for large convolutions, products and attention, for unmapped
operators, and for groups that eager mode computes faster."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from dmlc.devices import DEFAULT
from dmlc.parameters import expect_flag, expect_text
from dmlc.source import DmlcError, check_known
from dmlc.torch.call import GPU, Call, find_device, make_calls
from dmlc.torch.copying import Copier
from dmlc.torch.decompositions import list_decompositions, list_definitions
from dmlc.torch.groups import Group, make_group, settled_strides, tensors_of, value_of
from dmlc.torch.internals import traced_as
from dmlc.torch.partition import LEAST_ELEMENTS, Partition
from dmlc.torch.products import MOST_WORK
from dmlc.torch.reports import GraphReport, GroupReport
from dmlc.torch.steps import Step, needs_gradient, run_step
from dmlc.torch.timing import Timing, time_group

NAME = "dmlc"
"""What `torch.compile` knows the backend by."""

Run = Callable[..., Any]


def compile_graph(
    name: str,
    module: GraphModule,
    least: int = LEAST_ELEMENTS,
    device: str = DEFAULT,
    measure: bool = False,
) -> tuple[Boxed, GraphReport]:
    """Graph whose sizes are numbers, with its groups compiled for a device. Groups of a few
    operators over fewer than `least` elements stay with eager, and with `measure` each group that
    eager computes faster."""
    partition = Partition(module.graph, least, MOST_WORK if device == DEFAULT else None)
    units: list[tuple[int, int, int, Group | None, list[Node]]] = []
    places = {node: k for k, node in enumerate(module.graph.nodes)}
    calls: dict[int, Run] = {}
    reports: list[GroupReport] = []
    slower: list[GroupReport] = []
    inside = dict.fromkeys(node for members in partition.groups for node in members)
    for members, found in zip(partition.groups, _make_groups(partition, device), strict=True):
        phase = partition.phases[members[0]]
        if isinstance(found, DmlcError):
            for node in members:
                partition.reasons[node] = found.diagnostics[0].message
            units.append((phase, 0, places[members[0]], None, members))
            continue
        group, call = found
        group_name = f"{name}_{len(reports) + len(slower)}"
        timing = time_group(group, call) if measure else None
        reported = _report_group(group_name, group, call, timing)
        if timing is not None and timing.loses:
            slower.append(reported)
            units.append((phase, 0, places[members[0]], None, members))
            continue
        calls[len(units)] = _make_run(group_name, group, call)
        reports.append(reported)
        units.append((phase, 0, len(units), group, members))
    for node, phase in partition.phases.items():
        if node not in inside and node.op not in ("placeholder", "get_attr"):
            units.append((phase, 1, places[node], None, [node]))
    order = sorted(range(len(units)), key=lambda k: units[k][:3])
    made = _Emitter(module)
    for k in order:
        _, _, _, group, members = units[k]
        if group is None:
            for node in members:
                made.copy(node)
        else:
            made.call(group, calls[k])
    compiled = made.finish()
    eager = tuple((str(node.target), reason) for node, reason in partition.reasons.items())
    return compiled, GraphReport(name, tuple(reports), eager, tuple(slower))


def _make_groups(partition: Partition, device: str) -> list[tuple[Group, Call] | DmlcError]:
    """Each group with its call, or with the error if it has none."""
    made: list[Group | DmlcError] = []
    for members in partition.groups:
        try:
            made.append(make_group(members, partition.outputs(members), partition.views))
        except DmlcError as error:
            made.append(error)
    functions = [each.function for each in made if isinstance(each, Group)]
    calls = iter(make_calls(functions, device))
    found: list[tuple[Group, Call] | DmlcError] = []
    for each in made:
        if isinstance(each, Group):
            call = next(calls)
            found.append((each, call) if isinstance(call, Call) else call)
        else:
            found.append(each)
    return found


class _Emitter(Copier):
    """Builder of the graph that calls groups."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(Graph(), {})
        self._module = module
        given = self.graph.call_function(_pop_inputs, (self.graph.placeholder("inputs"),))
        listed = [node for node in module.graph.nodes if node.op == "placeholder"]
        for number, node in enumerate(listed):
            if node.users:
                self.made[node] = self.graph.call_function(operator.getitem, (given, number))

    def call(self, group: Group, run: Run) -> None:
        """Adds a call of a group."""
        inputs = tuple(self.copy(node) for node in group.inputs)
        found = self.graph.call_function(run, inputs)
        for number, node in enumerate(group.outputs):
            self.made[node] = self.graph.call_function(operator.getitem, (found, number))

    def finish(self) -> Boxed:
        """Callable that runs the graph."""
        (output,) = (n for n in self._module.graph.nodes if n.op == "output")
        self.copy(output)
        self.graph.lint()
        return Boxed(GraphModule(self._module, self.graph).forward)


def _pop_inputs(inputs: list[Any]) -> tuple[Any, ...]:
    """Inputs, removed from their list, so that each is freed after its last use."""
    given = tuple(inputs)
    inputs.clear()
    return given


class Boxed:
    """Graph that takes its inputs in a list, as PyTorch calls it, and empties the list."""

    def __init__(self, run: Callable[[list[Any]], Any]) -> None:
        self._run = run
        # What PyTorch knows it by.
        self._boxed_call = True

    def __call__(self, inputs: list[Any]) -> Any:
        return self._run(inputs)


def _make_run(name: str, group: Group, call: Call) -> Run:
    """Callable that runs a group. Results of eager whose strides differ from those that PyTorch
    predicted are copied."""
    values = [value_of(node) for node in group.inputs]
    expected = [value.stride() for value in values]
    sizes = [tuple(value.shape) for value in values]

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        for tensor, strides in zip(tensors, expected, strict=True):
            if tensor.stride() != strides:
                return call(*map(_lay_out, tensors, sizes, expected))
        return call(*tensors)

    run.__name__ = name
    return run


def _lay_out(
    tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    """Tensor copied to the strides that a group reads, if it has others."""
    if settled_strides(sizes, tensor.stride()) == settled_strides(sizes, strides):
        return tensor
    made = torch.empty_strided(sizes, strides, dtype=tensor.dtype)
    return made.copy_(tensor)


def _report_group(name: str, group: Group, call: Call, timing: Timing | None) -> GroupReport:
    return GroupReport(
        name,
        tuple(str(n.target) for n in group.members if n.target is not operator.getitem),
        len(call.program.kernels),
        sum(map(_bytes_of, group.inputs)),
        sum(map(_bytes_of, group.outputs)),
        timing,
    )


def _bytes_of(node: Node) -> int:
    return sum(t.numel() * t.element_size() for t in tensors_of(node))


# Graphs with sizes that are symbols -------------------------------------------------------------


MOST_SIZES = 32


class Specializer:
    """Graph with symbolic sizes, compiled anew for each set of sizes and numbers that it is called
    with; after `most` of them it is left to eager."""

    def __init__(
        self,
        name: str,
        module: GraphModule,
        reports: list[GraphReport],
        least: int = LEAST_ELEMENTS,
        most: int = MOST_SIZES,
        device: str = DEFAULT,
        measure: bool = False,
    ) -> None:
        self._least, self._most, self._device, self._measure = least, most, device, measure
        self._name = name
        self._module = module
        self._reports = reports
        self._compiled: dict[object, Run] = {}

    def __call__(self, inputs: list[Any]) -> Any:
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)
        found = self._compiled.get(key)
        if found is None:
            if len(self._compiled) >= self._most:
                return self._module(*inputs)
            found = self._compiled[key] = self._compile(inputs)
        return found(inputs)

    def _compile(self, inputs: Sequence[Any]) -> Run:
        module = GraphModule(self._module, Graph())
        module.graph = _copy_graph(self._module.graph)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            shown = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
            _Propagator(module).run(*shown)
        compiled, report = compile_graph(
            self._name, module, self._least, self._device, self._measure
        )
        self._reports.append(report)
        return compiled


def _copy_graph(graph: Graph) -> Graph:
    made = Graph()
    made.output(made.graph_copy(graph, {}))
    return made


class _Propagator(Interpreter):
    """Computes the fake value of each node, for sizes that are numbers."""

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        n.meta["val"] = found
        return found


def _has_symbols(module: GraphModule) -> bool:
    for node in module.graph.nodes:
        value = value_of(node)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return True
        if isinstance(value, torch.Tensor) and any(
            isinstance(size, torch.SymInt) for size in value.shape
        ):
            return True
    return False


# The backend ------------------------------------------------------------------------------------


class Backend:
    """Backend of `torch.compile` that keeps reports of the compiled graphs.

    Groups of a few operators over fewer than `least` elements stay with eager. With `measure` each
    group is timed beside eager when it is compiled, and eager computes those that it is faster at;
    without, the same model always gives the same kernels. `device` is a device text of dmlc, or
    `gpu`, for which nothing is measured. Tensors are on the CPU in any case, and are copied if the
    device has memory of its own. Raises `UnavailableError` if there is no such device."""

    def __init__(
        self, least: int = LEAST_ELEMENTS, device: str = DEFAULT, measure: bool = True
    ) -> None:
        self._least, self._device = least, device
        self._measure = measure and device == DEFAULT
        if device != DEFAULT:
            find_device(device)
        self.reports: list[GraphReport] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        step = Step(module, self.reports, self._measure)
        compile_both = aot_autograd(
            fw_compiler=self._compiler("forward", step),
            bw_compiler=self._compiler("backward", step),
            decompositions=list_decompositions(),
            partition_fn=min_cut_rematerialization_partition,
        )
        with traced_as(list_definitions()):
            step.compiled = compile_both(module, inputs)
        return step

    def _compiler(self, name: str, step: Step) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compile_one(module: GraphModule, inputs: Sequence[Any]) -> Any:
            if _has_symbols(module):
                run = Specializer(
                    name, module, self.reports, self._least,
                    device=self._device, measure=self._measure,
                )  # fmt: skip
                return Boxed(run)
            compiled, report = compile_graph(name, module, self._least, self._device, self._measure)
            step.add(module.graph, report)
            return compiled

        return compile_one


def report(model: Callable[..., Any], *inputs: Any, measure: bool = True) -> list[GraphReport]:
    """Runs a model and its gradient once, or twice to measure them, and returns a report for each
    graph, forward and backward: its groups, and the nodes that stay with eager, with the reasons.
    `measure` is that of `Backend`. Gradients of parameters and inputs are not accumulated."""
    backend = Backend(measure=measure)
    run: Callable[..., Any] = cast(Any, torch).compile(model, backend=backend)
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    sources = [x for x in (*parameters, *tree_leaves(inputs)) if needs_gradient(x)]
    for _ in range(2 if measure else 1):
        run_step(run, inputs, sources)
    return backend.reports


@functools.cache
def _usual(device: str, measure: bool) -> Backend:
    return Backend(device=device, measure=measure)


def compile_module(
    module: GraphModule,
    inputs: Sequence[Any],
    mode: str = "default",
    options: Mapping[str, object] | None = None,
) -> Any:
    """Backend that `torch.compile(model, backend="dmlc")` selects. With `mode="gpu"` groups are
    computed on a GPU, with `options={"device": text}` on the device of that text.
    `options={"measure": False}` keeps groups that eager is faster at. Raises `DmlcError` for other
    modes and options, and `UnavailableError` without such a device."""
    check_known("mode of the backend dmlc", ("default", GPU), mode)
    given = dict(options or {})
    device = given.pop("device", GPU if mode == GPU else DEFAULT)
    measure = given.pop("measure", True)
    check_known("option of the backend dmlc", ("device", "measure"), *given)
    usual = _usual(expect_text("device", device), expect_flag("measure", measure))
    return usual(module, inputs)


# Where dmlc is installed, PyTorch lists the backend by its entry point, and registers what that
# loads, which may be why this module is imported.
_compiler: Any = torch.compiler
if NAME not in _compiler.list_backends():
    register_backend(compiler_fn=compile_module, name=NAME)
