"""Runs single ONNX nodes on the library's operators: a thin adapter, for ONNX's own node tests.

`run_node` says which operator an ONNX operator is and how its inputs and attributes are spelt
there. It moves no data but to add or drop axes of size 1, and computes nothing but sizes. What it
has no operator for raises `Unmapped`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.library import onnx_activations, onnx_elements, onnx_sequences
from tests.library.onnx_elements import Handler, Node, Unmapped
from tests.library.run import Array, run


def run_node(node: Node, inputs: Sequence[Array | None], device: str) -> list[Array]:
    """The outputs of a node, in its order."""
    handler = HANDLERS.get(node["op_type"])
    if handler is None:
        raise Unmapped(node["op_type"])
    given = [None if a is None else np.asarray(a) for a in inputs]
    return handler(node, [*given, *[None] * (8 - len(given))], device)


# Pooling and convolution --------------------------------------------------------------------


def _windows(node: Node, space: Sequence[int], kernel: Sequence[int]) -> dict[str, list[int]]:
    """Strides, dilations and paddings as DirectML has them: explicit."""
    count = len(space)
    strides = list(node.get("strides", [1] * count))
    dilations = list(node.get("dilations", [1] * count))
    pads = list(node.get("pads", [0] * (2 * count)))
    start, end = pads[:count], pads[count:]
    auto = node.get("auto_pad", "NOTSET")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    for k in range(count):
        size, stride, span = space[k], strides[k], spans[k]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = max(0, (math.ceil(size / stride) - 1) * stride + span - size)
            start[k] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            end[k] = total - start[k]
    return {"Strides": strides, "Dilations": dilations, "StartPadding": start, "EndPadding": end}


def _pool(
    node: Node, name: str, x: Array, more: Mapping[str, object], device: str
) -> dict[str, Array]:
    """A pooling operator; one axis of space is made two, for DirectML."""
    kernel = list(node.get("kernel_shape", x.shape[2:]))
    attributes = _windows(node, x.shape[2:], kernel)
    attributes["WindowSize"] = kernel
    if x.ndim == 3:
        padding = {"Strides": 1, "Dilations": 1, "WindowSize": 1}
        attributes = {n: [padding.get(n, 0), *v] for n, v in attributes.items()}
    undilated = name in ("AVERAGE_POOLING", "MAX_POOLING")
    if undilated and any(d != 1 for d in attributes.pop("Dilations")):
        raise Unmapped(f"{name} with dilations")
    lifted = x[:, :, None] if x.ndim == 3 else x
    outputs: dict[str, Sequence[int]] = {}
    if node.get("ceil_mode", 0):
        outputs["OutputTensor"] = _list_sizes(lifted, attributes, True)
    if name == "MAX_POOLING2" and len(node["outputs"]) > 1:
        sizes = _list_sizes(lifted, attributes, bool(node.get("ceil_mode", 0)))
        outputs["OutputIndicesTensor"] = sizes
    found = run(f"directml.{name}", {"InputTensor": lifted}, {**attributes, **more},
                outputs, device)  # fmt: skip
    return {n: a[:, :, 0] if x.ndim == 3 else a for n, a in found.items()}


def _list_sizes(
    x: Array, attributes: Mapping[str, Sequence[int]], rounds_up: bool
) -> tuple[int, ...]:
    """The sizes of a pooled tensor: of an optional output, and of one whose windows are counted up,
    where the last of them begins on an element or in the padding before it."""
    sizes = list(x.shape[:2])
    for k, size in enumerate(x.shape[2:]):
        dilation = attributes.get("Dilations", [1] * x.ndim)[k]
        span, stride = (attributes["WindowSize"][k] - 1) * dilation + 1, attributes["Strides"][k]
        start, end = attributes["StartPadding"][k], attributes["EndPadding"][k]
        room = size + start + end - span
        count = (math.ceil(room / stride) if rounds_up else room // stride) + 1
        sizes.append(count - (rounds_up and (count - 1) * stride >= size + start))
    return tuple(sizes)


def _average_pool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    more = {"IncludePadding": bool(node.get("count_include_pad", 0))}
    return [_pool(node, "AVERAGE_POOLING1", inputs[0], more, device)["OutputTensor"]]


def _global_average_pool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    more = {"IncludePadding": False}
    return [_pool(node, "AVERAGE_POOLING", inputs[0], more, device)["OutputTensor"]]


def _global_max_pool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_pool(node, "MAX_POOLING", inputs[0], {}, device)["OutputTensor"]]


def _max_pool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    if node.get("storage_order", 0):
        raise Unmapped("indices that count columns first")
    found = _pool(node, "MAX_POOLING2", inputs[0], {}, device)
    return [found[n] for n in ("OutputTensor", "OutputIndicesTensor")[: len(node["outputs"])]]


def _lp_pool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_pool(node, "LP_POOLING1", inputs[0], {"P": node.get("p", 2)}, device)["OutputTensor"]]


def _convolution(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, w, bias = inputs[:3]
    attributes = {**_windows(node, x.shape[2:], w.shape[2:]), "OutputPadding": [0] * (x.ndim - 2)}
    return [_convolve(x, w, bias, {**attributes, "Direction": "FORWARD"}, node, device)]


def _transposed_convolution(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, w, bias = inputs[:3]
    count = x.ndim - 2
    attributes = _windows({**node, "auto_pad": "NOTSET"}, x.shape[2:], w.shape[2:])
    more = list(node.get("output_padding", [0] * count))
    wanted = node.get("output_shape")
    if node.get("auto_pad", "NOTSET") != "NOTSET":
        wanted = [n * s for n, s in zip(x.shape[2:], attributes["Strides"], strict=True)]
    for k in range(count) if wanted is not None else ():
        span = (w.shape[2 + k] - 1) * attributes["Dilations"][k] + 1
        total = attributes["Strides"][k] * (x.shape[2 + k] - 1) + more[k] + span - wanted[k]
        more[k] += max(0, -total)
        total = max(0, total)
        lower = node.get("auto_pad") == "SAME_UPPER"
        start = total // 2 if lower else total - total // 2
        attributes["StartPadding"][k], attributes["EndPadding"][k] = start, total - start
    # ONNX lengthens what is computed, and DirectML pads it: zeros behind the input make room.
    longer = [-(-m // s) for m, s in zip(more, attributes["Strides"], strict=True)]
    ends = zip(attributes["EndPadding"], longer, attributes["Strides"], more, strict=True)
    attributes["EndPadding"] = [end + n * stride - m for end, n, stride, m in ends]
    attributes |= {"OutputPadding": [0] * count, "Direction": "BACKWARD"}
    x = np.pad(x, [(0, 0), (0, 0), *((0, n) for n in longer)])
    return [_convolve(x, w, bias, attributes, node, device)]


def _convolve(
    x: Array, w: Array, bias: Array | None, attributes: Any, node: Node, device: str
) -> Array:
    shaped = None if bias is None else bias.reshape(1, -1, *[1] * (x.ndim - 2))
    inputs = {"InputTensor": x, "FilterTensor": w, "BiasTensor": shaped}
    settings = {**attributes, "Mode": "CROSS_CORRELATION", "GroupCount": node.get("group", 1)}
    return run("directml.CONVOLUTION", inputs, settings, device=device)["OutputTensor"]


# Resampling ---------------------------------------------------------------------------------


def _resize(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings, shape = describe_resize(node, inputs)
    found = run("directml.RESAMPLE2", {"InputTensor": inputs[0]}, settings,
                {"OutputTensor": shape}, device)  # fmt: skip
    return [found["OutputTensor"]]


def describe_resize(node: Node, inputs: Sequence[Any]) -> tuple[dict[str, object], tuple[int, ...]]:
    """The attributes of RESAMPLE2 for a Resize, and the sizes of its result."""
    x, region, scales, sizes = inputs[:4]
    mode = node.get("mode", "nearest")
    if mode == "cubic" or node.get("antialias", 0) or node.get("exclude_outside", 0):
        raise Unmapped(f"{mode} interpolation, antialias or exclude_outside")
    axes = [a % x.ndim for a in node.get("axes", range(x.ndim))]
    ratios, shape = np.ones(x.ndim), list(x.shape)
    if sizes is not None and sizes.size:
        wanted = [n / x.shape[a] for n, a in zip(sizes.tolist(), axes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            wanted = [(min if policy == "not_larger" else max)(wanted)] * len(axes)
        for a, ratio, size in zip(axes, wanted, sizes.tolist(), strict=True):
            ratios[a] = ratio
            shape[a] = size if policy == "stretch" else math.floor(ratio * x.shape[a] + 0.5)
    else:
        for a, ratio in zip(axes, scales.tolist(), strict=True):
            ratios[a] = ratio
            shape[a] = math.floor(ratio * x.shape[a])
    attributes = {"Scales": [], "InputPixelOffsets": [], "OutputPixelOffsets": []}
    transformation = node.get("coordinate_transformation_mode", "half_pixel")
    for a in range(x.ndim):
        window = None
        if transformation == "tf_crop_and_resize":
            at = axes.index(a) if a in axes else None
            window = (0.0, 1.0) if at is None else (region[at], region[at + len(axes)])
        line = _line(transformation, x.shape[a], shape[a], float(ratios[a]), window)
        for values, value in zip(attributes.values(), line, strict=True):
            values.append(float(value))
    direction, shift = {
        "floor": ("DECREASING", 0.0), "ceil": ("INCREASING", 0.0),
        "round_prefer_floor": ("INCREASING", 0.5), "round_prefer_ceil": ("DECREASING", -0.5),
    }[node.get("nearest_mode", "round_prefer_floor")]  # fmt: skip
    if mode == "nearest":
        offsets = [v + shift for v in attributes["InputPixelOffsets"]]
        attributes["InputPixelOffsets"] = offsets
    settings = {
        **attributes,
        "InterpolationMode": "NEAREST_NEIGHBOR" if mode == "nearest" else "LINEAR",
        "RoundingDirection": direction,
    }
    return settings, tuple(shape)


def _line(
    transformation: str, size: int, result: int, scale: float, window: tuple[float, float] | None
) -> tuple[float, float, float]:
    """Scale, input and output offset of one axis: places are `(o - out) / scale - in`."""
    match transformation:
        case "half_pixel":
            return scale, 0.5, -0.5
        case "pytorch_half_pixel":
            return (scale, 0.5, -0.5) if result > 1 else (1.0, 0.0, 0.0)
        case "half_pixel_symmetric":
            offset = size / 2 * (1 - result / (scale * size))
            return scale, 0.5 - offset, -0.5
        case "asymmetric":
            return scale, 0.0, 0.0
        case "align_corners":
            # ONNX takes the length before it is rounded.
            length = scale * size
            return ((length - 1) / (size - 1) if min(result, size) > 1 else 1.0), 0.0, 0.0
        case "tf_crop_and_resize" if window is not None and result > 1 and size > 1:
            first, last = window
            return (result - 1) / ((last - first) * (size - 1)), -first * (size - 1), 0.0
        case "tf_crop_and_resize":
            return 1.0, 0.0, 0.0
        case _:
            raise Unmapped(transformation)


def _upsample(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, scales = inputs[:2]
    settings = {"ScaleSize": [int(scales[3]), int(scales[2])],
                "InterpolationMode": "NEAREST_NEIGHBOR"}  # fmt: skip
    return [
        run("directml.UPSAMPLE_2D", {"InputTensor": x}, settings, device=device)["OutputTensor"]
    ]


# What moves data ----------------------------------------------------------------------------


def _slice(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, starts, ends, axes, steps = inputs[:5]
    listed = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    window = [(0, n, 1) for n in x.shape]
    for a, start, end, step in zip(listed, starts.tolist(), ends.tolist(), strides, strict=True):
        first, last, step = slice(start, end, step).indices(x.shape[a])
        low, high = (first, last) if step > 0 else (last + 1, first + 1)
        window[a % x.ndim] = (low, max(0, high - low), step)
    offsets, sizes, steps = zip(*window, strict=True)
    settings = {"InputWindowOffsets": list(offsets), "InputWindowSizes": list(sizes),
                "InputWindowStrides": list(steps)}  # fmt: skip
    shape = tuple(-(-n // abs(s)) for n, s in zip(sizes, steps, strict=True))
    found = run("directml.SLICE1", {"InputTensor": x}, settings, {"OutputTensor": shape}, device)
    return [found["OutputTensor"]]


def _pad(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, pads, value, axes = inputs[:4]
    listed = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes.tolist()]
    start, end = [0] * x.ndim, [0] * x.ndim
    for k, a in enumerate(listed):
        start[a], end[a] = int(pads[k]), int(pads[k + len(listed)])
    modes = {"constant": "CONSTANT", "edge": "EDGE", "reflect": "REFLECTION", "wrap": "WRAP"}
    settings = {
        "PaddingMode": modes[node.get("mode", "constant")], "StartPadding": start,
        "EndPadding": end, "PaddingValue": 0.0 if value is None else float(value),
    }  # fmt: skip
    return [run("directml.PADDING", {"InputTensor": x}, settings, device=device)["OutputTensor"]]


def _tile(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"Repeats": inputs[1].tolist()}
    return [
        run("directml.TILE", {"InputTensor": inputs[0]}, settings, device=device)["OutputTensor"]
    ]


def _concat(node: Node, inputs: list[Any], device: str) -> list[Array]:
    arrays = [a for a in inputs if a is not None]
    settings = {"Axis": node["axis"] % arrays[0].ndim}
    given = {f"InputTensors[{k}]": a for k, a in enumerate(arrays)}
    return [run("directml.JOIN", given, settings, device=device)["OutputTensor"]]


def _split(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, lengths = inputs[:2]
    axis, count = node.get("axis", 0) % x.ndim, len(node["outputs"])
    size = x.shape[axis]
    each = -(-size // count)
    parts = (
        [min(each, size - k * each) for k in range(count)] if lengths is None else lengths.tolist()
    )
    outputs = {
        f"OutputTensors[{k}]": (*x.shape[:axis], n, *x.shape[axis + 1 :])
        for k, n in enumerate(parts)
    }
    found = run("directml.SPLIT", {"InputTensor": x}, {"Axis": axis}, outputs, device)
    return [found[n] for n in outputs]


def _transpose(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"order": list(node.get("perm", range(inputs[0].ndim)[::-1]))}
    return [run("onednn.StaticTranspose", {"src": inputs[0]}, settings, device=device)["dst"]]


def _reshape(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"shape": inputs[1].tolist(), "special_zero": not node.get("allowzero", 0)}
    return [run("onednn.StaticReshape", {"src": inputs[0]}, settings, device=device)["dst"]]


def _depth_to_space(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_space("DEPTH_TO_SPACE1", node, inputs, device)]


def _space_to_depth(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_space("SPACE_TO_DEPTH1", node, inputs, device)]


def _space(name: str, node: Node, inputs: list[Any], device: str) -> Array:
    orders = {"DCR": "DEPTH_COLUMN_ROW", "CRD": "COLUMN_ROW_DEPTH"}
    settings = {"BlockSize": node["blocksize"], "Order": orders[node.get("mode", "DCR")]}
    given = {"InputTensor": inputs[0]}
    return run(f"directml.{name}", given, settings, device=device)["OutputTensor"]


def _gather(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, indices = inputs[:2]
    rank = x.ndim + indices.ndim - 1
    axis = node.get("axis", 0) % x.ndim
    given = {
        "InputTensor": x.reshape([1] * (rank - x.ndim) + list(x.shape)),
        "IndicesTensor": indices.reshape([1] * (rank - indices.ndim) + list(indices.shape)),
    }
    settings = {"Axis": axis + rank - x.ndim, "IndexDimensions": indices.ndim}
    return [run("directml.GATHER", given, settings, device=device)["OutputTensor"]]


def _gather_elements(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"Axis": node.get("axis", 0) % inputs[0].ndim}
    given = {"InputTensor": inputs[0], "IndicesTensor": inputs[1]}
    return [run("directml.GATHER_ELEMENTS", given, settings, device=device)["OutputTensor"]]


def _lift(array: Array, rank: int) -> Array:
    return array.reshape([1] * (rank - array.ndim) + list(array.shape))


def _gather_nd(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, indices = inputs[:2]
    batches, tuple_size = node.get("batch_dims", 0), indices.shape[-1]
    shape = (*indices.shape[:-1], *x.shape[batches + tuple_size :])
    rank = max(x.ndim, indices.ndim, len(shape))
    settings = {"InputDimensionCount": x.ndim, "IndicesDimensionCount": indices.ndim,
                "BatchDimensionCount": batches}  # fmt: skip
    given = {"InputTensor": _lift(x, rank), "IndicesTensor": _lift(indices, rank)}
    found = run("directml.GATHER_ND1", given, settings, device=device)["OutputTensor"]
    return [found.reshape(shape)]


def _scatter_elements(node: Node, inputs: list[Any], device: str) -> list[Array]:
    _check_overwrites(node)
    settings = {"Axis": node.get("axis", 0) % inputs[0].ndim}
    given = {"InputTensor": inputs[0], "IndicesTensor": inputs[1], "UpdatesTensor": inputs[2]}
    return [run("directml.SCATTER", given, settings, device=device)["OutputTensor"]]


def _scatter_nd(node: Node, inputs: list[Any], device: str) -> list[Array]:
    _check_overwrites(node)
    x, indices, updates = inputs[:3]
    rank = max(x.ndim, indices.ndim, updates.ndim)
    settings = {"InputDimensionCount": x.ndim, "IndicesDimensionCount": indices.ndim}
    given = {"InputTensor": _lift(x, rank), "IndicesTensor": _lift(indices, rank),
             "UpdatesTensor": _lift(updates, rank)}  # fmt: skip
    found = run("directml.SCATTER_ND", given, settings, device=device)["OutputTensor"]
    return [found.reshape(x.shape)]


def _check_overwrites(node: Node) -> None:
    reduction = node.get("reduction", "none")
    if reduction != "none":
        raise Unmapped(f"writes that are combined by {reduction}")


def _max_unpool(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, indices, wanted = inputs[:3]
    if wanted is not None:
        raise Unmapped("indices that number the places of another output")
    kernel, strides = node["kernel_shape"], node.get("strides", [1, 1])
    pads = node.get("pads", [0] * 4)
    sides = zip(x.shape[2:], strides, kernel, pads[:2], pads[2:], strict=True)
    shape = (*x.shape[:2], *((n - 1) * t + w - a - b for n, t, w, a, b in sides))
    given = {"InputTensor": x, "IndicesTensor": indices.astype(np.uint64)}
    found = run("directml.MAX_UNPOOLING", given, {}, {"OutputTensor": shape}, device)
    return [found["OutputTensor"]]


def _roi_align(node: Node, inputs: list[Any], device: str) -> list[Array]:
    """ROI_ALIGN1 is RoiAlign but for a sample just one pixel outside: of ONNX it reads the edge."""
    x, regions, images = inputs[:3]
    sizes = node.get("output_height", 1), node.get("output_width", 1)
    scale, samples = node.get("spatial_scale", 1.0), node.get("sampling_ratio", 0)
    # As many as the largest region has pixels for an output.
    longest = max((regions[:, 2] - regions[:, 0]).max() * scale / sizes[1],
                  (regions[:, 3] - regions[:, 1]).max() * scale / sizes[0])  # fmt: skip
    half = node.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    settings = {
        "ReductionFunction": "AVERAGE" if node.get("mode", "avg") == "avg" else "MAX",
        "InterpolationMode": "LINEAR", "SpatialScaleX": scale, "SpatialScaleY": scale,
        "InputPixelOffset": 0.5 if half else 0.0, "OutputPixelOffset": -0.5,
        "OutOfBoundsInputValue": 0.0, "MinimumSamplesPerOutput": samples or 1,
        "MaximumSamplesPerOutput": samples or max(1, math.ceil(longest)),
        "AlignRegionsToCorners": False,
    }  # fmt: skip
    given = {"InputTensor": x, "ROITensor": regions, "BatchIndicesTensor": images.astype(np.uint32)}
    shape = {"OutputTensor": (len(regions), x.shape[1], *sizes)}
    return [run("directml.ROI_ALIGN1", given, settings, shape, device)["OutputTensor"]]


def _one_hot(node: Node, inputs: list[Any], device: str) -> list[Array]:
    indices, depth, values = inputs[:3]
    rank = indices.ndim + 1
    axis = node.get("axis", -1) % rank
    shape = (*indices.shape[:axis], int(depth), *indices.shape[axis:])
    given = {
        "IndicesTensor": np.expand_dims(indices.astype(np.int64), axis),
        "ValuesTensor": values.reshape([1] * (rank - 1) + [2]),
    }
    found = run("directml.ONE_HOT", given, {"Axis": axis}, {"OutputTensor": shape}, device)
    return [found["OutputTensor"]]


# What computes ------------------------------------------------------------------------------


def _local_response(node: Node, inputs: list[Any], device: str) -> list[Array]:
    settings = {"CrossChannel": True, "LocalSize": node["size"], "Alpha": node.get("alpha", 1e-4),
                "Beta": node.get("beta", 0.75), "Bias": node.get("bias", 1.0)}  # fmt: skip
    found = run("directml.LOCAL_RESPONSE_NORMALIZATION", {"InputTensor": inputs[0]}, settings,
                device=device)  # fmt: skip
    return [found["OutputTensor"]]


def _batch_normalization(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, scale, bias, mean, variance = inputs[:5]
    epsilon = node.get("epsilon", 1e-5)
    if node.get("training_mode", 0):
        given = {"src": x, "gamma": scale, "beta": bias, "mean": mean, "variance": variance}
        settings = {"epsilon": epsilon, "momentum": node.get("momentum", 0.9),
                    "data_format": "NCX"}  # fmt: skip
        found = run("onednn.BatchNormForwardTraining", given, settings, device=device)
        return [found[n] for n in ("dst", "running_mean", "running_variance")]
    shape = (1, -1, *[1] * (x.ndim - 2))
    named = zip(("ScaleTensor", "BiasTensor", "MeanTensor", "VarianceTensor"),
                (scale, bias, mean, variance), strict=True)  # fmt: skip
    given = {"InputTensor": x, **{n: a.reshape(shape) for n, a in named}}
    found = run("directml.BATCH_NORMALIZATION", given, {"Epsilon": epsilon}, device=device)
    return [found["OutputTensor"]]


def _softmax(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_over_axis("ACTIVATION_SOFTMAX1", node, inputs, device)]


def _log_softmax(node: Node, inputs: list[Any], device: str) -> list[Array]:
    return [_over_axis("ACTIVATION_LOG_SOFTMAX1", node, inputs, device)]


def _over_axis(name: str, node: Node, inputs: list[Any], device: str) -> Array:
    settings = {"Axes": [node.get("axis", -1) % inputs[0].ndim]}
    given = {"InputTensor": inputs[0]}
    return run(f"directml.{name}", given, settings, device=device)["OutputTensor"]


_REDUCTIONS = {
    "ReduceL1": "L1", "ReduceL2": "L2", "ReduceLogSum": "LOG_SUM",
    "ReduceLogSumExp": "LOG_SUM_EXP", "ReduceMax": "MAX", "ReduceMean": "AVERAGE",
    "ReduceMin": "MIN", "ReduceProd": "MULTIPLY", "ReduceSum": "SUM",
    "ReduceSumSquare": "SUM_SQUARE",
}  # fmt: skip


def _reduce(node: Node, inputs: list[Any], device: str) -> list[Array]:
    x, listed = inputs[:2]
    axes = [] if listed is None else [a % x.ndim for a in listed.tolist()]
    if not axes and not node.get("noop_with_empty_axes", 0):
        axes = list(range(x.ndim))
    settings = {"Function": _REDUCTIONS[node["op_type"]], "Axes": axes}
    given = {"InputTensor": onnx_elements.as_bytes(x)}
    found = run("directml.REDUCE", given, settings, device=device)["OutputTensor"].view(x.dtype)
    return [found if node.get("keepdims", 1) else found.squeeze(tuple(axes))]


def _gemm(node: Node, inputs: list[Any], device: str) -> list[Array]:
    a, b, c = inputs[:3]
    turned = {name: bool(node.get(f"trans{name}", 0)) for name in "AB"}
    sizes = (a.shape[turned["A"]], b.shape[not turned["B"]])
    third = None if c is None else np.broadcast_to(c, sizes)
    given = {"ATensor": a, "BTensor": b, "CTensor": third}
    settings = {"Alpha": node.get("alpha", 1.0), "Beta": node.get("beta", 1.0)}
    for name, transposed in turned.items():
        settings[f"Trans{name}"] = "TRANSPOSE" if transposed else "NONE"
    return [run("directml.GEMM", given, settings, device=device)["OutputTensor"]]


def _matmul(node: Node, inputs: list[Any], device: str) -> list[Array]:
    a, b = inputs[:2]
    given = {"src": a[None] if a.ndim == 1 else a, "weights": b[:, None] if b.ndim == 1 else b}
    found = run("onednn.MatMul", given, {}, device=device)["dst"]
    dropped = ((-2,) if a.ndim == 1 else ()) + ((-1,) if b.ndim == 1 else ())
    return [found.squeeze(dropped)]


_RECURRENT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _recurrent(node: Node, inputs: list[Any], device: str) -> list[Array]:
    kind = node["op_type"]
    x, w, r, b, lengths, state, cell, peepholes = inputs[:8]
    batches_first = bool(node.get("layout", 0))
    if batches_first:
        x, state, cell = (None if a is None else a.swapaxes(0, 1) for a in (x, state, cell))
    directions, units = w.shape[0], r.shape[2]
    names = [a.decode() if isinstance(a, bytes) else a for a in node.get("activations", [])]
    settings: dict[str, object] = {
        "ActivationDescs": [
            f"ACTIVATION_{name.upper()}" for name in names or _RECURRENT[kind] * directions
        ],
        "Direction": {"reverse": "BACKWARD"}.get(
            name := node.get("direction", "forward"), name.upper()
        ),
    }
    given = {
        "InputTensor": x[None], "WeightTensor": w[None], "RecurrenceTensor": r[None],
        "BiasTensor": None if b is None else b[None, None],
        "HiddenInitTensor": None if state is None else state[None],
        "SequenceLengthsTensor":
            None if lengths is None else lengths[None, None, None].astype(np.uint32),
    }  # fmt: skip
    if kind == "GRU":
        settings["LinearBeforeReset"] = bool(node.get("linear_before_reset", 0))
    if kind == "LSTM":
        settings["CoupleInputForget"] = bool(node.get("input_forget", 0))
        settings["UseClipThreshold"] = "clip" in node
        settings["ClipThreshold"] = node.get("clip", 0.0)
        given["CellMemInitTensor"] = None if cell is None else cell[None]
        given["PeepholeTensor"] = None if peepholes is None else peepholes[None, None]
    single = (1, directions, x.shape[1], units)
    outputs: dict[str, Sequence[int]] = {
        "OutputSequenceTensor": (x.shape[0], *single[1:]), "OutputSingleTensor": single,
    }  # fmt: skip
    if kind == "LSTM":
        outputs["OutputCellSingleTensor"] = single
    found = run(f"directml.{kind}", given, settings, outputs, device)
    sequence, *singles = (found[name] for name in outputs)
    if batches_first:
        made = [sequence.transpose(2, 0, 1, 3), *(s[0].swapaxes(0, 1) for s in singles)]
    else:
        made = [sequence, *(s[0] for s in singles)]
    return [a for a, name in zip(made, node["outputs"], strict=False) if name]


HANDLERS: dict[str, Handler] = {
    "AveragePool": _average_pool, "GlobalAveragePool": _global_average_pool,
    "MaxPool": _max_pool, "GlobalMaxPool": _global_max_pool, "LpPool": _lp_pool,
    "Conv": _convolution, "ConvTranspose": _transposed_convolution,
    "Resize": _resize, "Upsample": _upsample, "Slice": _slice, "Pad": _pad, "Tile": _tile,
    "Concat": _concat, "Split": _split, "Transpose": _transpose, "Reshape": _reshape,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "MaxUnpool": _max_unpool,
    "RoiAlign": _roi_align, "OneHot": _one_hot, "LRN": _local_response,
    "BatchNormalization": _batch_normalization, "Softmax": _softmax, "LogSoftmax": _log_softmax,
    "Gemm": _gemm, "MatMul": _matmul, **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_RECURRENT, _recurrent), **onnx_activations.HANDLERS,
    **onnx_elements.HANDLERS, **onnx_sequences.HANDLERS,
}  # fmt: skip
