"""Resampling and its gradients: the transpose of the forward operator, as its reference has it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.binding import TensorDesc
from dmlc.reference import evaluate
from tests.cover import cover
from tests.library.run import DEVICES, Array, check, normal, run, wide

FLOATS = [np.float32, np.float16]
MODES = [("LINEAR", "DECREASING"), ("NEAREST_NEIGHBOR", "DECREASING"),
         ("NEAREST_NEIGHBOR", "INCREASING")]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The sizes of a resampling, and what its attributes say of places."""

    title: str
    sizes: tuple[int, ...]
    results: tuple[int, ...]
    scales: tuple[float, ...]
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    def __str__(self) -> str:
        return self.title

    def attributes(self, mode: str, direction: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "InterpolationMode": mode,
            "Scales": list(self.scales),
            "InputPixelOffsets": list(self.inputs),
            "OutputPixelOffsets": list(self.outputs),
        }
        return found if direction is None else {**found, "RoundingDirection": direction}

    def gradient_attributes(self, mode: str, direction: str | None = None) -> dict[str, Any]:
        """Those of the gradient: its input is the forward operator's output."""
        exchanged = dataclasses.replace(self, inputs=self.outputs, outputs=self.inputs)
        return exchanged.attributes(mode, direction)


GEOMETRIES = [
    Geometry("up, centres", (5,), (12,), (2.4,), (0.5,), (-0.5,)),
    Geometry("down, corners", (13,), (5,), (0.37,), (0.0,), (0.0,)),
    Geometry("scale far below the ratio", (6,), (9,), (0.8,), (0.5,), (-0.5,)),
    Geometry("scale far above the ratio", (6,), (5,), (3.0,), (0.25,), (-1.75,)),
    Geometry("offsets beyond the edges", (4,), (6,), (1.5,), (-2.5,), (3.0,)),
    Geometry("two axes", (4, 3), (3, 7), (0.75, 7 / 3), (0.5, 0.5), (-0.5, -0.5)),
    Geometry("corners on corners", (3, 4), (5, 7), (2.0, 2.0), (0.0, 0.0), (0.0, 0.0)),
    Geometry("three axes", (2, 3, 4), (3, 2, 5), (1.5, 0.6, 1.3), (0.5, 0.0, -0.3),
             (-0.5, 0.0, 0.7)),
    Geometry("images", (1, 2, 3, 4), (1, 2, 6, 3), (1.0, 1.0, 2.0, 0.75), (0.5,) * 4, (-0.5,) * 4),
    Geometry("four axes", (2, 2, 3, 2), (3, 1, 4, 3), (1.4, 0.5, 1.2, 1.6),
             (0.5, 0.1, 0.0, 0.5), (-0.5, 0.2, 0.0, -1.0)),
    Geometry("one element", (1, 3), (4, 1), (4.0, 0.2), (0.5, 0.5), (-0.5, -0.5)),
]  # fmt: skip


@functools.cache
def matrix(geometry: Geometry, mode: tuple[str, str]) -> Array:
    """The forward operator as a matrix: each column is what it makes of a unit vector."""
    function = dmlc.operator("directml.RESAMPLE2").bind(
        {"InputTensor": TensorDesc("FLOAT32", geometry.sizes), "OutputTensor": geometry.results},
        geometry.attributes(*mode),
    )
    columns: list[Array] = []
    for k in range(int(np.prod(geometry.sizes))):
        unit = np.zeros(geometry.sizes, np.float32)
        unit.flat[k] = 1
        columns.append(evaluate(function, {"InputTensor": unit})["OutputTensor"].reshape(-1))
    return wide(np.stack(columns, 1))


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("geometry", "mode", "dtype", "device"), cover(3, GEOMETRIES, MODES, FLOATS, DEVICES), ids=str
)
def test_the_gradient_is_the_transpose(
    geometry: Geometry, mode: tuple[str, str], dtype: Any, device: str
) -> None:
    dy = normal(*geometry.results, dtype=dtype)
    expected = (matrix(geometry, mode).T @ wide(dy).reshape(-1)).reshape(geometry.sizes)
    found = run("directml.RESAMPLE_GRAD1", {"InputGradientTensor": dy},
                geometry.gradient_attributes(*mode), {"OutputGradientTensor": geometry.sizes},
                device)  # fmt: skip
    check(found["OutputGradientTensor"], expected)


@pytest.mark.parametrize(
    ("geometry", "mode", "dtype", "device"),
    cover(3, GEOMETRIES[::2], MODES, FLOATS, DEVICES),
    ids=str,
)
def test_resampling_is_its_matrix(
    geometry: Geometry, mode: tuple[str, str], dtype: Any, device: str
) -> None:
    forward = matrix(geometry, mode)
    if mode[0] == "LINEAR":
        np.testing.assert_allclose(forward.sum(1), 1, rtol=1e-6)
    else:
        assert ((forward == 1).sum(1) == 1).all()
        assert (forward != 0).sum() == len(forward)
    x = normal(*geometry.sizes, dtype=dtype)
    expected = (forward @ wide(x).reshape(-1)).reshape(geometry.results)
    found = run("directml.RESAMPLE2", {"InputTensor": x}, geometry.attributes(*mode),
                {"OutputTensor": geometry.results}, device)  # fmt: skip
    check(found["OutputTensor"], expected)


def source(geometry: Geometry, axis: int, place: int) -> float:
    """Where an output place reads, in double precision."""
    at = (place - geometry.outputs[axis]) / geometry.scales[axis] - geometry.inputs[axis]
    return min(max(at, 0.0), geometry.sizes[axis] - 1.0)


@pytest.mark.parametrize("geometry", GEOMETRIES[:5], ids=lambda g: g.title)
def test_linear_weights_are_distances(geometry: Geometry) -> None:
    forward = matrix(geometry, MODES[0])
    for place in range(geometry.results[0]):
        at = source(geometry, 0, place)
        low = int(at)
        expected = np.zeros(geometry.sizes[0])
        expected[low] += 1 - (at - low)
        expected[min(low + 1, len(expected) - 1)] += at - low
        np.testing.assert_allclose(forward[place], expected, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_outside_a_window_does_not_leak(device: str) -> None:
    """NaN and infinity reach the places that were read, and no other."""
    geometry = Geometry("", (4,), (8,), (2.0,), (0.5,), (-0.5,))
    dy = np.ones(8, np.float32)
    dy[5] = np.nan
    found = run("directml.RESAMPLE_GRAD1", {"InputGradientTensor": dy},
                geometry.gradient_attributes(*MODES[0]), {"OutputGradientTensor": (4,)},
                device)  # fmt: skip
    np.testing.assert_array_equal(np.isnan(found["OutputGradientTensor"]), [0, 0, 1, 1])


@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("geometry", GEOMETRIES[1::2], ids=lambda g: g.title)
def test_the_older_operators_are_the_newer_ones(geometry: Geometry, mode: str) -> None:
    """With LINEAR, or rounded down half a pixel further on."""
    more = 0.5 * (mode == "NEAREST_NEIGHBOR")
    shifted = dataclasses.replace(geometry, inputs=tuple(v - more for v in geometry.inputs))
    x, dy = normal(*geometry.sizes), normal(*geometry.results, seed=1)
    results, sizes = {"OutputTensor": geometry.results}, {"OutputGradientTensor": geometry.sizes}
    for new, old, given, outputs, newer, older in (
        ("RESAMPLE2", "RESAMPLE1", {"InputTensor": x}, results,
         shifted.attributes(mode, "DECREASING"), geometry.attributes(mode)),
        ("RESAMPLE_GRAD1", "RESAMPLE_GRAD", {"InputGradientTensor": dy}, sizes,
         shifted.gradient_attributes(mode, "DECREASING"), geometry.gradient_attributes(mode)),
    ):  # fmt: skip
        expected = run(f"directml.{new}", given, newer, outputs)
        for device in DEVICES:
            found = run(f"directml.{old}", given, older, outputs, device)
            for name, array in found.items():
                check(array, wide(expected[name]))


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("inputs", "outputs"), [(0.5, -0.5), (0.0, 0.0), (-0.75, 1.0)])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5, 2.0, 3.0, 0.75])
def test_of_two_pixels_as_near_the_later_is_the_nearest(
    scale: float, inputs: float, outputs: float, device: str
) -> None:
    geometry = Geometry("", (6,), (9,), (scale,), (inputs,), (outputs,))
    places = [source(geometry, 0, o) for o in range(9)]
    nearest = np.floor(np.float32(places) + np.float32(0.5)).astype(int)
    x, dy = normal(6), normal(9, seed=1)
    found = run("directml.RESAMPLE1", {"InputTensor": x}, geometry.attributes("NEAREST_NEIGHBOR"),
                {"OutputTensor": (9,)}, device)  # fmt: skip
    np.testing.assert_array_equal(found["OutputTensor"], x[nearest])
    found = run("directml.RESAMPLE_GRAD", {"InputGradientTensor": dy},
                geometry.gradient_attributes("NEAREST_NEIGHBOR"),
                {"OutputGradientTensor": (6,)}, device)  # fmt: skip
    check(found["OutputGradientTensor"], np.bincount(nearest, wide(dy), 6))


# Whole numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("geometry", GEOMETRIES[::4], ids=lambda g: g.title)
def test_pixels_of_8_bits(geometry: Geometry, dtype: Any, device: str) -> None:
    """Of these the older operators read the pixel before. A fraction between two is cut off, which
    the last bit decides where the sum is whole."""
    info = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(info.min, info.max, geometry.sizes, dtype, endpoint=True)
    given, outputs = {"InputTensor": x}, {"OutputTensor": geometry.results}
    for mode in MODES:
        found = run("directml.RESAMPLE2", given, geometry.attributes(*mode), outputs, device)
        array = found["OutputTensor"]
        assert array.dtype == dtype
        exact = (matrix(geometry, mode) @ wide(x).reshape(-1)).reshape(geometry.results)
        near = 1e-3 if mode[0] == "LINEAR" else 0
        assert (np.trunc(exact - near) <= array).all()
        assert (array <= np.trunc(exact + near)).all()
        if mode[1] == "DECREASING":
            older = run("directml.RESAMPLE1", given, geometry.attributes(mode[0]), outputs, device)
            np.testing.assert_array_equal(older["OutputTensor"], array)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_cut_off_of_8_bits(device: str) -> None:
    """Towards 0, and at the limits of the type."""
    settings = {"InterpolationMode": "LINEAR", "Scales": [2.0], "RoundingDirection": "DECREASING",
                "InputPixelOffsets": [0.0], "OutputPixelOffsets": [0.0]}  # fmt: skip
    for x, expected in (
        (np.array([-3, 0, -128, 127], np.int8), [-3, -1, 0, -64, -128, 0, 127, 127]),
        (np.array([0, 255, 254, 1], np.uint8), [0, 127, 255, 254, 254, 127, 1, 1]),
    ):
        found = run("directml.RESAMPLE2", {"InputTensor": x}, settings, {"OutputTensor": (8,)},
                    device)  # fmt: skip
        np.testing.assert_array_equal(found["OutputTensor"], np.array(expected, x.dtype))


@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
def test_resample_reads_from_centres(mode: str) -> None:
    geometry = Geometry("", (1, 2, 3, 4), (1, 2, 6, 3), (1, 1, 2, 0.75), (0.5,) * 4, (-0.5,) * 4)
    given, outputs = {"InputTensor": normal(1, 2, 3, 4)}, {"OutputTensor": geometry.results}
    expected = run("directml.RESAMPLE1", given, geometry.attributes(mode), outputs)
    settings = {"InterpolationMode": mode, "Scales": list(geometry.scales)}
    for device in DEVICES:
        found = run("directml.RESAMPLE", given, settings, outputs, device)
        check(found["OutputTensor"], wide(expected["OutputTensor"]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_upsampling_repeats(dtype: Any, device: str) -> None:
    x = normal(2, 3, 4, 5, dtype=dtype)
    settings = {"ScaleSize": [3, 2], "InterpolationMode": "NEAREST_NEIGHBOR"}
    found = run("directml.UPSAMPLE_2D", {"InputTensor": x}, settings, device=device)
    np.testing.assert_array_equal(found["OutputTensor"], x.repeat(2, 2).repeat(3, 3))
