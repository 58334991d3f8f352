"""Scatters, regions of images and random numbers, against NumPy and published answers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from tests.library.run import DEVICES, Array, check, normal, run, wide

# Scatters and gathers --------------------------------------------------------------------------


def scatter(x: Array, indices: Array, updates: Array, axis: int) -> Array:
    """One write after the other; what lies outside is dropped."""
    made = x.copy()
    for place in np.ndindex(indices.shape):
        at = int(indices[place])
        at += x.shape[axis] if at < 0 else 0
        if 0 <= at < x.shape[axis]:
            made[(*place[:axis], at, *place[axis + 1 :])] = updates[place]
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_last_writer_stays(axis: int, device: str) -> None:
    random = np.random.default_rng(axis)
    x, sizes = normal(3, 4, 5), [3, 4, 5]
    sizes[axis] = 9
    indices = random.integers(-7, 7, sizes).astype(np.int32)
    updates = normal(*sizes, seed=1)
    given = {"InputTensor": x, "IndicesTensor": indices, "UpdatesTensor": updates}
    found = run("directml.SCATTER", given, {"Axis": axis}, device=device)["OutputTensor"]
    assert np.array_equal(found, scatter(x, indices, updates, axis))


def test_the_low_32_bits_of_indices_count() -> None:
    indices = np.array([2**64 - 1, 2**31, 1, 2**32 + 2], np.uint64)
    given = {"InputTensor": np.zeros(3, np.float32), "IndicesTensor": indices,
             "UpdatesTensor": normal(4)}  # fmt: skip
    found = run("directml.SCATTER", given, {"Axis": 0})["OutputTensor"]
    assert np.array_equal(found, [0, *given["UpdatesTensor"][2:]])
    given["IndicesTensor"] = np.array([2**32 - 4, 2**32 - 3, 2**32, 2**40 - 1], np.int64)
    found = run("directml.SCATTER", given, {"Axis": 0})["OutputTensor"]
    assert np.array_equal(found, [given["UpdatesTensor"][2], 0, given["UpdatesTensor"][3]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("tuple_size", "tuples"), [(1, (4,)), (2, (3, 2)), (3, ()), (3, (7,))])
def test_tuples_of_indices(tuple_size: int, tuples: tuple[int, ...], device: str) -> None:
    random = np.random.default_rng(tuple_size)
    rank = max(3, len(tuples) + 3 - tuple_size)
    x = normal(*[1] * (rank - 3), 3, 4, 2)
    limits = np.array([3, 4, 2])[:tuple_size]
    indices = random.integers(-limits, limits, (*tuples, tuple_size)).astype(np.int64)
    picked = (*tuples, *(3, 4, 2)[tuple_size:])
    updates, core = normal(*picked, seed=3), x.reshape(3, 4, 2)
    expected, taken = core.copy(), np.zeros(picked, np.float32)
    for place in np.ndindex(tuples):
        at = tuple(indices[place])
        expected[at] = updates[place]
        taken[place] = core[at]

    def lift(array: Array) -> Array:
        return array.reshape([1] * (rank - array.ndim) + list(array.shape))

    settings = {"InputDimensionCount": 3, "IndicesDimensionCount": len(tuples) + 1}
    given = {"InputTensor": x, "IndicesTensor": lift(indices)}
    found = run("directml.GATHER_ND", given, settings, device=device)["OutputTensor"]
    assert np.array_equal(found, lift(taken))
    given["UpdatesTensor"] = lift(updates)
    found = run("directml.SCATTER_ND", given, settings, device=device)["OutputTensor"]
    assert np.array_equal(found, lift(expected))


@pytest.mark.parametrize("device", DEVICES)
def test_each_batch_has_indices_of_its_own(device: str) -> None:
    x = normal(2, 3, 4, 5, 2)
    indices = np.random.default_rng(0).integers(-4, 4, (2, 3, 6, 1)).astype(np.int32)
    expected = np.stack([
        np.stack([x[a, b][indices[a, b, :, 0]] for b in range(3)]) for a in range(2)
    ])  # fmt: skip
    settings = {"InputDimensionCount": 5, "IndicesDimensionCount": 4, "BatchDimensionCount": 2}
    given = {"InputTensor": x, "IndicesTensor": indices[None]}
    found = run("directml.GATHER_ND1", given, settings, device=device)["OutputTensor"]
    assert np.array_equal(found, expected)


def test_unpooling_undoes_pooling() -> None:
    x = normal(2, 3, 6, 8)
    settings = {name: [value, value] for name, value in
                (("Strides", 2), ("WindowSize", 2), ("Dilations", 1), ("StartPadding", 0),
                 ("EndPadding", 0))}  # fmt: skip
    found = run("directml.MAX_POOLING2", {"InputTensor": x}, settings,
                {"OutputIndicesTensor": (2, 3, 3, 4)})  # fmt: skip
    given = {"InputTensor": found["OutputTensor"], "IndicesTensor": found["OutputIndicesTensor"]}
    made = run("directml.MAX_UNPOOLING", given, outputs={"OutputTensor": x.shape})["OutputTensor"]
    windows = x.reshape(2, 3, 3, 2, 4, 2)
    largest = windows.max((3, 5), keepdims=True)
    assert np.array_equal(made, np.where(windows == largest, windows, 0).reshape(x.shape))


GRADIENTS = """
operator SCATTERED_GRAD {
    attributes { | Attribute | Type |
                 | Axis | UINT | }
    tensors {
        | Tensor        | Kind   | Ranks | Types   |
        | IndicesTensor | Input  | 2     | INT32   |
        | dY            | Input  | 2     | FLOAT32 |
        | dX            | Output | 2     | FLOAT32 |
        | dU            | Output | 2     | FLOAT32 |
    }
    gradient of directml.SCATTER {
        dY = gradient of OutputTensor
        dX = gradient of InputTensor
        dU = gradient of UpdatesTensor
    }
}
"""


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_overwritten_takes_no_gradient(device: str) -> None:
    operator = dmlc.parse(GRADIENTS).operators["SCATTERED_GRAD"]
    indices = np.random.default_rng(0).integers(-3, 6, (3, 7)).astype(np.int32)
    dy = normal(3, 5)
    given = {"IndicesTensor": indices, "dY": dy}
    found = dmlc.run(operator, given, {"Axis": 1}, {"dX": (3, 5), "dU": (3, 7)}, device)
    numbers = np.arange(1, 22, dtype=np.float32).reshape(3, 7)
    writers = scatter(np.zeros((3, 5), np.float32), indices, numbers, 1)
    assert np.array_equal(found["dX"], np.where(writers == 0, dy, 0))
    rows, columns = np.nonzero(writers)
    expected = np.zeros((3, 7), np.float32)
    expected.flat[writers[rows, columns].astype(int) - 1] = dy[rows, columns]
    assert np.array_equal(found["dU"], expected)


# Regions ---------------------------------------------------------------------------------------

SETTINGS = {"ReductionFunction": "AVERAGE", "InterpolationMode": "LINEAR", "SpatialScaleX": 1.0,
            "SpatialScaleY": 0.5, "InputPixelOffset": 0.5, "OutputPixelOffset": -0.5,
            "OutOfBoundsInputValue": -7.0, "MinimumSamplesPerOutput": 1,
            "MaximumSamplesPerOutput": 3, "AlignRegionsToCorners": False}  # fmt: skip
REGIONS = np.array([[0, 0, 7, 12], [1.25, 3, 6.5, 4], [5, 9, 1, 2], [-6, -9, 3, 5], [2, 2, 2, 2],
                    [4, 6, 30, 40]], np.float32)  # fmt: skip
IMAGES = np.array([1, 0, 1, 0, 1, 0], np.uint32)


def align(x: Array, regions: Array, images: Array, size: tuple[int, int], s: Mapping[str, object]
          ) -> Array:  # fmt: skip
    """Sample by sample, in float64."""
    made = np.zeros((len(regions), x.shape[1], *size))
    least, most = int(str(s["MinimumSamplesPerOutput"])), int(str(s["MaximumSamplesPerOutput"]))

    def places(start: float, end: float, outputs: int) -> Array:
        count = int(np.clip(np.ceil((end - start) / outputs), least, most))
        steps, offset = np.arange(outputs * count), float(str(s["InputPixelOffset"]))
        parts = outputs * count - bool(s["AlignRegionsToCorners"])
        shifted = steps - float(str(s["OutputPixelOffset"]))
        found = shifted * (end - start) / parts if parts else np.array([(end - start) / 2])
        return (found + start - offset).reshape(outputs, count)

    def is_inside(place: float, size: int) -> bool:
        return 0 <= place <= size - 1 if s["AlignRegionsToCorners"] else -1 < place < size

    def nearest(place: float, inverted: bool) -> int:
        return int(np.ceil(place - 0.5) if inverted else np.floor(place + 0.5))

    def read(image: Array, y: float, x: float, inverted: Array) -> Array:
        height, width = image.shape[1:]
        if not (is_inside(y, height) and is_inside(x, width)):
            return np.full(image.shape[0], float(str(s["OutOfBoundsInputValue"])))
        y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
        if s["InterpolationMode"] == "NEAREST_NEIGHBOR":
            found: Array = image[:, nearest(y, inverted[1]), nearest(x, inverted[0])]
            return found
        (top, left), (bottom, right) = np.floor([y, x]).astype(int), np.ceil([y, x]).astype(int)
        above = image[:, top, left] * (1 - x + left) + image[:, top, right] * (x - left)
        below = image[:, bottom, left] * (1 - x + left) + image[:, bottom, right] * (x - left)
        return above * (1 - y + top) + below * (y - top)

    scale = [float(str(s[f"SpatialScale{axis}"])) for axis in "XY"]
    for number, (region, image) in enumerate(zip(wide(regions), images, strict=True)):
        x1, y1, x2, y2 = region * [*scale, *scale]
        inverted = np.array([x2 < x1, y2 < y1])
        rows, columns = places(y1, y2, size[0]), places(x1, x2, size[1])
        for i, j in itertools.product(*map(range, size)):
            samples = np.array([read(wide(x[min(image, len(x) - 1)]), a, b, inverted)
                                for a in rows[i] for b in columns[j]])  # fmt: skip
            reduce = np.max if s["ReductionFunction"] == "MAX" else np.mean
            made[number, :, i, j] = reduce(samples, axis=0)
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("changed", [
    {}, {"ReductionFunction": "MAX"}, {"InterpolationMode": "NEAREST_NEIGHBOR"},
    {"AlignRegionsToCorners": True}, {"MinimumSamplesPerOutput": 2, "MaximumSamplesPerOutput": 2},
    {"InputPixelOffset": 0.0}, {"OutputPixelOffset": 0.25},
    {"AlignRegionsToCorners": True, "OutputPixelOffset": 0.0, "InputPixelOffset": 0.0},
])  # fmt: skip
def test_regions_are_sampled(changed: Mapping[str, object], device: str) -> None:
    settings, x = {**SETTINGS, **changed}, normal(2, 3, 6, 8)
    given = {"InputTensor": x, "ROITensor": REGIONS, "BatchIndicesTensor": IMAGES}
    sizes = {"OutputTensor": (6, 3, 2, 3)}
    found = run("directml.ROI_ALIGN1", given, settings, sizes, device)["OutputTensor"]
    check(found, align(x, REGIONS, IMAGES, (2, 3), settings))


CORNERS = [[0, 0, 2, 2], [1, 1, 3, 3], [-2, -2, 2, 2], [2, 2, 6, 6], [0, 2, 1, 0], [3, 3, 1, 1],
           [-0.5, -0.5, 2.5, 2.5], [-0.5, 0.5, 3.5, 2.5], [1, 1, 1, 1]]  # fmt: skip
"""Regions whose samples lie half-way between pixels, or on the edges."""


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("mode", ["NEAREST_NEIGHBOR", "LINEAR"])
@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 2), (2, 3)])
def test_samples_half_way_and_at_the_edges(
    size: tuple[int, int], mode: str, corners: bool, device: str
) -> None:
    """What sizes and corners make exact is so on every device. There is one image of four that
    numbers name, and it is read for all."""
    settings = {**SETTINGS, "SpatialScaleY": 1.0, "MaximumSamplesPerOutput": 1,
                "InterpolationMode": mode, "AlignRegionsToCorners": corners}  # fmt: skip
    x, regions = normal(1, 2, 4, 4), np.array(CORNERS, np.float32)
    images = np.array([0, 1, 7, 2**32 - 1, 0, 0, 3, 0, 5], np.uint64)
    given = {"InputTensor": x, "ROITensor": regions, "BatchIndicesTensor": images}
    sizes = {"OutputTensor": (len(regions), 2, *size)}
    found = run("directml.ROI_ALIGN1", given, settings, sizes, device)["OutputTensor"]
    expected = align(x, regions, images, size, settings)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_of_a_64_bit_number_of_an_image_the_low_bits_count() -> None:
    x, regions = normal(3, 1, 2, 2), np.array([[0, 0, 2, 2]] * 2, np.float32)
    given = {"InputTensor": x, "ROITensor": regions,
             "BatchIndicesTensor": np.array([2**32 + 1, 2**33 + 9], np.uint64)}  # fmt: skip
    for device in DEVICES:
        found = run("directml.ROI_ALIGN1", given, SETTINGS | {"SpatialScaleY": 1.0},
                    {"OutputTensor": (2, 1, 2, 2)}, device)["OutputTensor"]  # fmt: skip
        np.testing.assert_allclose(found, x[1:], rtol=1e-6)


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_samples_without_a_limit(device: str) -> None:
    """A kernel takes as many as regions need, not as many as there may be."""
    settings, x = {**SETTINGS, "MaximumSamplesPerOutput": 4294967295}, normal(2, 3, 6, 8)
    given = {"InputTensor": x, "ROITensor": REGIONS, "BatchIndicesTensor": IMAGES}
    sizes = {"OutputTensor": (6, 3, 2, 3)}
    found = run("directml.ROI_ALIGN1", given, settings, sizes, device)["OutputTensor"]
    check(found, align(x, REGIONS, IMAGES, (2, 3), settings))


def test_the_older_operator_is_the_newer_with_pixels_at_their_centres() -> None:
    given = {"InputTensor": normal(2, 3, 6, 8), "ROITensor": REGIONS[None],
             "BatchIndicesTensor": IMAGES[None]}  # fmt: skip
    sizes = {"OutputTensor": (6, 3, 2, 3)}
    newer = run("directml.ROI_ALIGN1", given, SETTINGS, sizes)["OutputTensor"]
    names = ("InputPixelOffset", "OutputPixelOffset", "AlignRegionsToCorners")
    settings = {name: value for name, value in SETTINGS.items() if name not in names}
    assert np.array_equal(run("directml.ROI_ALIGN", given, settings, sizes)["OutputTensor"], newer)


@pytest.mark.parametrize("reduction", ["AVERAGE", "MAX"])
def test_gradients_of_regions_are_differences(reduction: str) -> None:
    x, dy = normal(2, 2, 6, 8), normal(3, 2, 2, 3, seed=1)
    regions = np.array([[0.3, 0.4, 7.1, 11.9], [1.25, 3.1, 6.6, 4.7], [5.2, 9.1, 1.3, 2.2]])
    settings = {**SETTINGS, "ReductionFunction": reduction, "OutOfBoundsInputValue": 0.0}
    given = {"InputTensor": x, "InputGradientTensor": dy, "ROITensor": regions.astype(np.float32),
             "BatchIndicesTensor": IMAGES[:3]}  # fmt: skip
    own = {n: v for n, v in settings.items() if n != "OutOfBoundsInputValue"}
    outputs = {"OutputGradientTensor": x.shape, "OutputROIGradientTensor": regions.shape}
    found = run("directml.ROI_ALIGN_GRAD", given, own, outputs)

    def loss(x: Array, regions: Array) -> float:
        return float((align(x, regions, IMAGES[:3], (2, 3), settings) * dy).sum())

    step = 1e-6
    for name, of in (("OutputROIGradientTensor", 1), ("OutputGradientTensor", 0)):
        values = [wide(x), regions]
        expected = np.zeros(values[of].shape)
        for place in itertools.islice(np.ndindex(expected.shape), 0, None, 1 if of else 7):
            ends: list[float] = []
            for sign in (1, -1):
                moved = [v.copy() for v in values]
                moved[of][place] += sign * step
                ends.append(loss(*moved))
            expected[place] = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(found[name][place], expected[place], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_regions_are_pooled(device: str) -> None:
    x = normal(2, 3, 6, 8)
    regions = np.array([
        [0, 0, 0, 15, 11], [1, 3, 2, 9, 5], [1, 14, 10, 40, 30], [0, 30, 0, 34, 3],
        [0.9, 3, 2, 9, 5], [7, 3, 2, 9, 5], [-3, 3, 2, 9, 5], [1.2, 9, 2, 3, 8], [1, 3, 8, 9, 2],
    ])  # fmt: skip
    given = {"InputTensor": x, "ROITensor": regions[None, None].astype(np.float32)}
    settings = {"SpatialScale": 0.5, "PooledSize": [3, 2]}
    found = run("directml.ROI_POOLING", given, settings, device=device)["OutputTensor"]
    expected = np.zeros((len(regions), 3, 2, 3))
    for number, row in enumerate(regions):
        number_of_image, *corners = row.tolist()
        image = min(max(int(number_of_image), 0), 1)
        x1, y1, x2, y2 = (round(corner * 0.5) for corner in corners)
        x2, y2 = max(x1, x2), max(y1, y2)
        for i, j in itertools.product(range(2), range(3)):
            rows = slice(min(i * (y2 - y1 + 1) // 2 + y1, 6), -(-(i + 1) * (y2 - y1 + 1) // 2) + y1)
            columns = slice(
                min(j * (x2 - x1 + 1) // 3 + x1, 8), -(-(j + 1) * (x2 - x1 + 1) // 3) + x1
            )
            window = x[image, :, rows, columns]
            expected[number, :, i, j] = window.max((1, 2)) if window.size else 0
    assert np.array_equal(found, expected.astype(np.float32))


# Random numbers --------------------------------------------------------------------------------

PUBLISHED = {
    (0, 0, 0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (0xFFFFFFFF,) * 6: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0): (
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
}  # fmt: skip
"""What philox4x32 gives in ten rounds for a counter and a key: known answers of Random123."""


def generate(state: Array, shape: tuple[int, ...], device: str) -> dict[str, Array]:
    given = {"InputStateTensor": state.astype(np.uint32).reshape(1, 1, 1, 6)}
    outputs = {"OutputTensor": shape, "OutputStateTensor": (1, 1, 1, 6)}
    return run("directml.RANDOM_GENERATOR", given, {}, outputs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_are_the_published_ones(device: str) -> None:
    for state, expected in PUBLISHED.items():
        found = generate(np.array(state), (1, 1, 2, 2), device)["OutputTensor"]
        assert np.array_equal(found.ravel(), np.array(expected, np.uint32)), state


@pytest.mark.parametrize("device", DEVICES)
def test_the_counter_moves_by_blocks_of_four(device: str) -> None:
    """In parts or at once, the numbers are the same; carries go through all words."""
    state = np.array([0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFF, 3, 1, 2])
    whole = generate(state, (1, 1, 3, 5), device)["OutputTensor"].ravel()
    first = generate(state, (1, 1, 1, 7), device)
    after = first["OutputStateTensor"]
    assert after.ravel().tolist() == [0, 0, 0, 4, 1, 2]
    second = generate(after.ravel(), (1, 1, 1, 7), device)["OutputTensor"]
    assert np.array_equal(whole, [*first["OutputTensor"].ravel(), whole[7], *second.ravel()])
    # The page's own example of a counter, its words the least significant first.
    state = np.array([0x74746C65, 0x6D536561, 0x6F46726F, 0x48656C6C, 0, 0])
    moved = generate(state, (3, 3, 20, 7219), device)["OutputStateTensor"]
    assert moved.ravel().tolist()[:4] == [0x74746C65 + 324855, *state[1:4]]
