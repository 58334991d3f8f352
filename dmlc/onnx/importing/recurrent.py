"""Recurrent operators of ONNX: loops over the steps of a sequence, or its steps laid out one after
another where these are few.

In a loop, tensors of a step have the steps as their first axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.ir import Extent
from dmlc.onnx.importing.nodes import Node, Rule, need_number
from dmlc.scalars import DataType
from dmlc.sizes import measure
from dmlc.source import DmlcError, UnsupportedError

FEW_STEPS = 4
"""The longest sequence that is laid out. The first step of these has no product, where the state is
0 before it."""

Activation = Callable[[Scalar], Scalar]

_ACTIVATIONS: Mapping[str, Activation] = {
    "relu": lambda x: x.apply("max", 0),
    "sigmoid": lambda x: x.apply("sigmoid"),
    "tanh": lambda x: x.apply("tanh"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Cell:
    """One direction of a recurrent node over a sequence."""

    node: Node
    direction: int
    size: int
    """How many hidden values there are."""
    batch: Extent
    inputs: Tensor
    """What each step adds to each gate: by time, batch, and place in the gates."""
    activations: tuple[Activation, ...]
    steps: tuple[Extent, ...]
    """How many steps there are, in a loop over them."""

    def feed_back(self, name: str, hidden: Tensor, gates: range) -> Tensor:
        """The product of a state with the recurrent weights of some gates: by batch and place in
        these."""
        weights, first = self.node.tensor(2), gates.start * self.size

        def element(at: Point) -> Scalar:
            *lead, gate = at.indices
            (inner,) = at.reduced
            weight = at.read(weights, self.direction, gate + first, inner)
            return at.read(hidden, *lead, inner) * weight

        places = len(gates) * self.size
        return self.node.builder.reduce(
            name, "sum", (*self.steps, self.batch, places), [self.size], element
        )

    def add_bias(self, at: Point, total: Scalar, gate: int, recurrent: bool) -> Scalar:
        """A sum with the bias of a gate, where there are biases; the second half of them is for the
        recurrent weights."""
        biases = self.node.optional(3)
        if biases is None:
            return total
        place = at.indices[-1] + gate * self.size
        half = cast("int", biases.extents[1]) // 2
        return total + at.read(biases, self.direction, place + half if recurrent else place)

    def number(self, at: Point, step: int) -> Scalar:
        """The number of a step: of one that is laid out, or that the loop is at."""
        return at.indices[0] if self.steps else at.constant(step, DataType.INDEX)

    def input(self, at: Point, step: int, gate: int) -> Scalar:
        place = at.indices[-1] + gate * self.size
        return at.read(self.inputs, self.number(at, step), at.indices[-2], place)

    def read(self, at: Point, tensor: Tensor, gate: int = 0) -> Scalar:
        """An element of a state, or of a gate."""
        return at.read(tensor, *at.indices[:-1], at.indices[-1] + gate * self.size)

    def gate(self, at: Point, step: int, number: int, fed: Tensor) -> Scalar:
        """All that a gate adds up, before its activation."""
        total = self.input(at, step, number) + self.read(at, fed, number)
        return self.add_bias(at, self.add_bias(at, total, number, False), number, True)

    def compute(self, name: str, element: Callable[[Point], Scalar]) -> Tensor:
        return self.node.builder.compute(name, (*self.steps, self.batch, self.size), element)


States = list[Tensor]
Step = Callable[[_Cell, int, str, States], States]
"""The next states from those before, under a name."""


def _step_simple(cell: _Cell, step: int, name: str, states: States) -> States:
    fed = cell.feed_back(f"{name}_fed", states[0], range(1))
    (activate,) = cell.activations
    return [cell.compute(name, lambda at: activate(cell.gate(at, step, 0, fed)))]


def _step_gru(cell: _Cell, step: int, name: str, states: States) -> States:
    (hidden,) = states
    late = bool(cell.node.integer("linear_before_reset"))
    fed = cell.feed_back(f"{name}_fed", hidden, range(3 if late else 2))
    activate, activate_hidden = cell.activations
    update = cell.compute(f"{name}_update", lambda at: activate(cell.gate(at, step, 0, fed)))
    reset = cell.compute(f"{name}_reset", lambda at: activate(cell.gate(at, step, 1, fed)))
    kept, place = fed, 2
    if not late:
        part = cell.compute(f"{name}_part", lambda at: cell.read(at, reset) * cell.read(at, hidden))
        kept, place = cell.feed_back(f"{name}_kept", part, range(2, 3)), 0

    def element(at: Point) -> Scalar:
        memory = cell.add_bias(at, cell.read(at, kept, place), 2, True)
        if late:
            memory = memory * cell.read(at, reset)
        made = activate_hidden(cell.add_bias(at, cell.input(at, step, 2) + memory, 2, False))
        held = cell.read(at, update)
        return (1 - held) * made + held * cell.read(at, hidden)

    return [cell.compute(name, element)]


def _step_lstm(cell: _Cell, step: int, name: str, states: States) -> States:
    hidden, memory = states
    fed = cell.feed_back(f"{name}_fed", hidden, range(4))
    activate, activate_cell, activate_hidden = cell.activations
    peepholes = cell.node.optional(7)

    def see(at: Point, gate: int, state: Tensor) -> Scalar:
        """A gate, before its activation, that sees a state through its peephole."""
        total = cell.gate(at, step, gate, fed)
        if peepholes is None:
            return total
        place = at.indices[-1] + gate * cell.size
        return total + at.read(peepholes, cell.direction, place) * cell.read(at, state)

    def remember(at: Point) -> Scalar:
        taken = activate(see(at, 0, memory))
        kept = activate(see(at, 2, memory))
        if cell.node.integer("input_forget"):
            kept = 1 - taken
        made = activate_cell(cell.gate(at, step, 3, fed))
        return kept * cell.read(at, memory) + taken * made

    after = cell.compute(f"{name}_cell", remember)

    def emit(at: Point) -> Scalar:
        shown = activate(see(at, 1, after))
        return shown * activate_hidden(cell.read(at, after))

    return [cell.compute(name, emit), after]


def _recurrence(step: Step, defaults: Sequence[str], initial: Sequence[int]) -> Rule:
    """The rule of a recurrent operator: its step, its activations, and the inputs that are its
    states at the start."""

    def rule(node: Node) -> list[Tensor | None]:
        x, weights = node.tensor(0), node.tensor(1)
        if "clip" in node.attributes or "activation_alpha" in node.attributes:
            raise UnsupportedError("it clips, or has activations of numbers of its own")
        if x.dtype.is_storage_only:
            raise UnsupportedError(f"recurrence in {x.dtype.name}")
        batch_first = node.integer("layout")
        time, batch = (x.extents[1], x.extents[0]) if batch_first else x.extents[:2]
        looped = not isinstance(time, int) or time > FEW_STEPS
        directions, rows, features = node.fixed(weights, 3)
        recurrent = node.fixed(node.tensor(2), 3)
        size = recurrent[2]
        if directions not in (1, 2) or node.integer("hidden_size", size) != size:
            raise DmlcError(f"it has weights for {directions} directions and {size} hidden values")
        given = cast("Sequence[str]", node.attributes.get("activations", ()))
        names = list(given or [*defaults] * directions)
        hidden: list[Mapping[int | None, Tensor]] = []
        last: list[States] = []
        for direction in range(directions):

            def feed(at: Point, direction: int = direction) -> Scalar:
                t, b, gate = at.indices
                place = (b, t) if batch_first else (t, b)
                value = at.read(x, *place, at.reduced[0])
                return value * at.read(weights, direction, gate, at.reduced[0])

            prefix = f"{node.name}_{direction}"
            inputs = node.builder.reduce(
                f"{prefix}_inputs", "sum", (time, batch, rows), [features], feed
            )
            own = names[direction * len(defaults) : (direction + 1) * len(defaults)]
            cell = _Cell(node, direction, size, batch, inputs, tuple(map(_activation, own)),
                         (time,) if looped else ())  # fmt: skip
            turned = direction == 1 or node.text("direction", "forward") == "reverse"
            alone = dataclasses.replace(cell, steps=())
            states = [_start(alone, f"{prefix}_start{k}", k, batch_first) for k in initial]
            if looped:
                shown, states = _loop(cell, step, prefix, states, turned)
                hidden.append({None: shown})
            else:
                steps: dict[int | None, Tensor] = {}
                for number in range(need_number(time, "the length of a sequence"))[
                    :: -1 if turned else 1
                ]:
                    name = f"{prefix}_step{number}"
                    found = step(cell, number, name, states)
                    states = _hold(cell, number, name, states, found)
                    steps[number] = _mask(cell, number, name, states[0])
                hidden.append(steps)
            last.append(states)
        sequence = _collect_steps(node, hidden, (time, batch, size), batch_first)
        ends = [
            _collect_ends(node, 1 + k, [states[k] for states in last], batch_first)
            for k in range(len(initial))
        ]
        return [sequence, *ends]

    return rule


def _loop(
    cell: _Cell, step: Step, prefix: str, starts: States, backwards: bool
) -> tuple[Tensor, States]:
    """A loop over all steps: what each of them shows, and the states after the last."""
    builder, (time,) = cell.node.builder, cell.steps
    alone = dataclasses.replace(cell, steps=())
    held = [builder.before(f"{prefix}_before{k}", start.dtype, (time, *start.extents))
            for k, start in enumerate(starts)]  # fmt: skip
    before: States = []
    for number, (start, delay) in enumerate(zip(starts, held, strict=True)):

        def begin(at: Point, start: Tensor = start, delay: Tensor = delay) -> Scalar:
            edge = at.measure(measure(time) - 1) if backwards else at.constant(0, DataType.INDEX)
            first = at.indices[0].equals(edge)
            return first.select(at.read(start, *at.indices[1:]), at.read(delay, *at.indices))

        before.append(cell.compute(f"{prefix}_state{number}", begin))
    found = step(cell, 0, prefix, before)
    states = _hold(cell, 0, prefix, before, found)
    builder.close_loop(list(zip(held, states, strict=True)), backwards)
    shown = _mask(cell, 0, prefix, states[0])

    def end(state: Tensor) -> Callable[[Point], Scalar]:
        return lambda at: at.read(state, at.measure(0 if backwards else measure(time) - 1),
                                  *at.indices)  # fmt: skip

    return shown, [alone.compute(f"{prefix}_end{k}", end(s)) for k, s in enumerate(states)]


def _activation(name: str) -> Activation:
    found = _ACTIVATIONS.get(name.lower())
    if found is None:
        raise UnsupportedError(f"the activation {name}")
    return found


def _start(cell: _Cell, name: str, number: int, batch_first: int) -> Tensor:
    """A state at the start: zeros where it is not given."""
    given = cell.node.optional(number)

    def element(at: Point) -> Scalar:
        if given is None:
            return at.constant(0, cell.inputs.dtype.compute)
        batch, place = at.indices
        if batch_first:
            return at.read(given, batch, cell.direction, place)
        return at.read(given, cell.direction, batch, place)

    return cell.compute(name, element)


def _goes_on(cell: _Cell, at: Point, number: int) -> Scalar | None:
    """Whether a step is one of a sequence; None where all are as long as they can be."""
    lengths = cell.node.optional(4)
    if lengths is None:
        return None
    step = cell.number(at, number).cast(lengths.dtype.compute)
    return at.read(lengths, at.indices[-2]) > step


def _hold(cell: _Cell, step: int, name: str, before: States, after: States) -> States:
    """States, as they were beyond the end of a sequence."""
    if not cell.node.has(4):
        return after
    held: States = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):

        def element(at: Point, old: Tensor = old, new: Tensor = new) -> Scalar:
            goes_on = _goes_on(cell, at, step)
            found = cell.read(at, new)
            return found if goes_on is None else goes_on.select(found, cell.read(at, old))

        held.append(cell.compute(f"{name}_held{number}", element))
    return held


def _mask(cell: _Cell, step: int, name: str, hidden: Tensor) -> Tensor:
    """A state as a result of its step: zeros beyond the end of a sequence."""
    if not cell.node.has(4):
        return hidden

    def element(at: Point) -> Scalar:
        goes_on = _goes_on(cell, at, step)
        found = cell.read(at, hidden)
        return found if goes_on is None else goes_on.select(found, 0)

    return cell.compute(f"{name}_shown", element)


def _collect_steps(
    node: Node, hidden: Sequence[Mapping[int | None, Tensor]], sizes: tuple[Extent, Extent, int],
    batch_first: int,
) -> Tensor | None:  # fmt: skip
    """The state after every step: by time, direction, batch and place."""
    if not node.wants(0):
        return None
    time, batch, size = sizes
    count = len(hidden)
    extents = (batch, time, count, size) if batch_first else (time, count, batch, size)

    def element(at: Point) -> Scalar:
        order = (1, 2, 0, 3) if batch_first else (0, 1, 2, 3)
        t, d, b, place = (at.indices[axis] for axis in order)
        found: Scalar | None = None
        for direction, shown in enumerate(hidden):
            for step, tensor in shown.items():
                value = at.read(tensor, *([t] if step is None else []), b, place)
                own = d.equals(direction)
                chosen = own if step is None else t.equals(step) & own
                found = value if found is None else chosen.select(value, found)
        if found is None:
            raise DmlcError("a sequence of no steps")
        return found

    return node.builder.compute(node.outputs[0], extents, element)


def _collect_ends(
    node: Node, output: int, states: Sequence[Tensor], batch_first: int
) -> Tensor | None:
    """A state after the last step: by direction, batch and place."""
    if not node.wants(output):
        return None
    batch, size = states[0].extents
    count = len(states)
    extents = (batch, count, size) if batch_first else (count, batch, size)

    def element(at: Point) -> Scalar:
        b, d, place = (at.indices[k] for k in ((0, 1, 2) if batch_first else (1, 0, 2)))
        found = at.read(states[0], b, place)
        for direction, tensor in enumerate(states[1:], 1):
            found = d.equals(direction).select(at.read(tensor, b, place), found)
        return found

    return node.builder.compute(node.outputs[output], extents, element)


RULES: Mapping[str, Rule] = {
    "GRU": _recurrence(_step_gru, ("Sigmoid", "Tanh"), (5,)),
    "LSTM": _recurrence(_step_lstm, ("Sigmoid", "Tanh", "Tanh"), (5, 6)),
    "RNN": _recurrence(_step_simple, ("Tanh",), (5,)),
}
