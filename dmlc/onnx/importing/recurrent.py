"""Recurrent operators of ONNX, as operators of the library. Their loops are unrolled if they have
few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.building.functions import Operand, Point, Scalar, Tensor
from dmlc.building.library import bind_operator
from dmlc.building.tensors import concatenate, map_elements, reshape, transpose
from dmlc.onnx.importing.nodes import Node, Rule
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.transform.unroll import unroll_loops

FEW_STEPS = 4
"""The longest sequence that is laid out. The first step of these has no product, where the state is
0 before it."""

_ACTIVATIONS: Mapping[str, tuple[str, Sequence[float]]] = {
    "affine": ("LINEAR", (1.0, 0.0)),
    "elu": ("ELU", (1.0,)),
    "hardsigmoid": ("HARD_SIGMOID", (0.2, 0.5)),
    "leakyrelu": ("LEAKY_RELU", (0.01,)),
    "relu": ("RELU", ()),
    "scaledtanh": ("SCALED_TANH", (1.0, 1.0)),
    "sigmoid": ("SIGMOID", ()),
    "softplus": ("SOFTPLUS", ()),
    "softsign": ("SOFTSIGN", ()),
    "tanh": ("TANH", ()),
    "thresholdedrelu": ("THRESHOLDED_RELU", (1.0,)),
}
"""Activations by their name in ONNX, in lower case: that in DirectML, and the parameters that are
taken where none are given."""

_DIRECTIONS = {
    "forward": ("FORWARD",), "reverse": ("BACKWARD",), "bidirectional": ("FORWARD", "BACKWARD"),
    "foward": ("FORWARD",),
}  # fmt: skip
"""Directions by their names in ONNX, whose first GRU has a default that is misspelt."""
_FLAGS = {"linear_before_reset": "LinearBeforeReset", "input_forget": "CoupleInputForget"}

_INPUTS = (
    "InputTensor", "WeightTensor", "RecurrenceTensor", "BiasTensor", "SequenceLengthsTensor",
    "HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor",
)  # fmt: skip
_BY_BATCH = (0, 5, 6)
"""The inputs that have batches first where the layout is 1."""
_OUTPUTS = ("OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")


def _read_activations(
    node: Node, defaults: Sequence[str], directions: int
) -> dict[str, list[object]]:
    """Activations of all directions, with their parameters, which each takes from the node's lists
    in order."""
    given = node.texts("activations")
    alphas, betas = (iter(node.floats(f"activation_{name}")) for name in ("alpha", "beta"))
    names: list[str] = []
    parameters: list[tuple[float, float]] = []
    for each in given or [*defaults] * directions:
        known = _ACTIVATIONS.get(each.lower())
        if known is None:
            raise UnsupportedError(f"the activation {each}")
        name, own = known
        names.append(f"ACTIVATION_{name}")
        alpha = next(alphas, own[0]) if own else 1.0
        parameters.append((alpha, next(betas, own[1]) if len(own) > 1 else 0.0))
    return {
        "ActivationDescs": [*names],
        "ActivationAlphas": [alpha for alpha, _ in parameters],
        "ActivationBetas": [beta for _, beta in parameters],
    }


def _read_inputs(node: Node, direction: int) -> dict[str, Tensor]:
    """Inputs that are present, in DirectML's form for one direction: rank 4, steps before
    batches."""
    batch_first = node.integer("layout")
    found: dict[str, Tensor] = {}
    for number, row in enumerate(_INPUTS):
        tensor = node.optional(number)
        if tensor is None:
            continue
        sizes, order = tensor.extents, [0, 1, 2]
        if row == "SequenceLengthsTensor":
            tensor = map_elements(node.builder, f"{node.name}_lengths",
                                  lambda x: x.cast(DataType.UINT32), tensor)  # fmt: skip
        elif batch_first and number in _BY_BATCH:
            order = [1, 0, 2]
            sizes = (sizes[1], sizes[0], *sizes[2:])
        has_directions = number not in (0, 4)
        sizes = (1, *sizes[1:]) if has_directions else sizes

        def read(
            at: Point, tensor: Tensor = tensor, order: Sequence[int] = order,
            has_directions: bool = has_directions,
        ) -> Scalar:  # fmt: skip
            own: list[Operand] = list(at.indices[4 - tensor.rank :])
            if has_directions:
                own[0] = direction
            return at.read(tensor, *(own[axis] for axis in order[: tensor.rank]))

        name, extents = f"{node.name}_{row}", (*[1] * (4 - tensor.rank), *sizes)
        found[row] = node.builder.compute(name, extents, read, tensor.dtype)
    return found


def _recurrence(kind: str, defaults: Sequence[str]) -> Rule:
    """Rule of a recurrent operator: the library's operator for each direction, so that each is a
    loop of its own."""

    def rule(node: Node) -> list[Tensor | None]:
        count, size = node.fixed(node.tensor(2), 3)[::2]
        directions = _DIRECTIONS.get(node.text("direction"))
        if directions is None:
            raise UnsupportedError(f"the direction {node.text('direction')}")
        if len(directions) != count or node.integer("hidden_size", size) != size:
            raise DmlcError(f"it has weights for {count} directions and {size} hidden values")
        if "clip" in node.attributes and kind != "LSTM":
            raise UnsupportedError("it clips")
        attributes: dict[str, object] = {
            name: True for given, name in _FLAGS.items() if node.integer(given)
        }
        if "clip" in node.attributes:
            attributes |= {"UseClipThreshold": True, "ClipThreshold": node.number("clip")}
        activations = _read_activations(node, defaults, count)
        rows = {row: node.outputs[k] for k, row in enumerate(_OUTPUTS) if node.wants(k)}
        made: list[Mapping[str, Tensor]] = []
        for number, direction in enumerate(directions):
            tensors = _read_inputs(node, number)
            first, last = number * len(defaults), (number + 1) * len(defaults)
            own = {name: values[first:last] for name, values in activations.items()}
            function = bind_operator(
                f"directml.{kind}", tensors, {**attributes, **own, "Direction": direction},
                dict.fromkeys(rows),
            )  # fmt: skip
            time = tensors["InputTensor"].extents[1]
            if isinstance(time, int) and time <= FEW_STEPS:
                function = unroll_loops(function, "an importer", FEW_STEPS)
            prefix = f"{node.name}_{number}_"
            made.append(node.builder.call(function, tensors, prefix=prefix))
        return [
            _join(node, rows[row], [part[row] for part in made]) if row in rows else None
            for row in _OUTPUTS
        ]

    return rule


def _join(node: Node, name: str, parts: Sequence[Tensor]) -> Tensor:
    """Output in ONNX's form, from those of each direction: the states of all steps, or those after
    the last."""
    found = concatenate(node.builder, name, parts, 1)
    if name != node.outputs[0]:
        found = reshape(node.builder, name, found, found.extents[1:])
    if not node.integer("layout"):
        return found
    order = [2, 0, 1, 3] if found.rank == 4 else [1, 0, 2]
    return transpose(node.builder, name, found, order)


RULES: Mapping[str, Rule] = {
    "GRU": _recurrence("GRU", ("Sigmoid", "Tanh")),
    "LSTM": _recurrence("LSTM", ("Sigmoid", "Tanh", "Tanh")),
    "RNN": _recurrence("RNN", ("Tanh",)),
}
