"""Multi-head attention against NumPy: every way to give it its tensors, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from tests.library.run import Array, check, normal, run, wide

BATCH, LENGTH, KEYS, HEADS, SIZE, VALUES = 2, 3, 4, 2, 3, 2
PAST = 2
SCALE, FILTER = 0.5, -3.0
"""A filter that leaves what it is added to visible, so that a mask in the wrong place shows."""
Q = normal(BATCH, LENGTH, HEADS, SIZE, seed=1)
K = normal(BATCH, KEYS, HEADS, SIZE, seed=2)
V = normal(BATCH, KEYS, HEADS, VALUES, seed=3)


def flat(x: Array) -> Array:
    """Heads and what is in them as one dimension."""
    return x.reshape(*x.shape[:2], -1)


def stack(*parts: Array) -> Array:
    return np.stack(parts, 3)


def attend(q: Array, k: Array, v: Array, added: Array | float = 0.0) -> Array:
    """Attention in float64; q, k and v have batches, places, heads and elements. Each head of k
    and v serves as many of q."""
    shared = q.shape[2] // k.shape[2]
    k, v = (np.repeat(wide(x), shared, 2) for x in (k, v))
    scores = SCALE * np.einsum("bsnd,btnd->bnst", wide(q), k) + added
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return flat(np.einsum("bnst,btnd->bsnd", powers / powers.sum(-1, keepdims=True), v))


def attention(
    inputs: dict[str, Array], name: str = "MULTIHEAD_ATTENTION", device: str = "reference",
    outputs: dict[str, Any] | None = None, heads: int = HEADS, **attributes: object,
) -> dict[str, Array]:  # fmt: skip
    count = "QueryHeadCount" if name.endswith("1") else "HeadCount"
    settings = {"Scale": SCALE, "MaskFilterValue": FILTER, count: heads} | attributes
    return run(f"directml.{name}", inputs, settings, outputs, device)


PLAIN = {"QueryTensor": flat(Q), "KeyTensor": flat(K), "ValueTensor": flat(V)}
GIVEN: dict[str, tuple[dict[str, Array], Array]] = {
    "each by itself": (PLAIN, attend(Q, K, V)),
    "stacked query and key": (
        {"StackedQueryKeyTensor": stack(Q, K[:, :LENGTH]), "ValueTensor": flat(V[:, :LENGTH])},
        attend(Q, K[:, :LENGTH], V[:, :LENGTH]),
    ),
    "stacked key and value": (
        {"QueryTensor": flat(Q), "StackedKeyValueTensor": stack(K, K[::-1])},
        attend(Q, K, K[::-1]),
    ),
    "all stacked": (
        {"StackedQueryKeyValueTensor": stack(Q, Q[::-1], -Q)},
        attend(Q, Q[::-1], -Q),
    ),
}


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("way", GIVEN)
def test_ways_to_give_query_key_and_value(way: str, device: str) -> None:
    inputs, expected = GIVEN[way]
    check(attention(inputs, device=device)["OutputTensor"], expected)


def test_the_newer_form_gives_the_same() -> None:
    for inputs, expected in GIVEN.values():
        check(attention(inputs, "MULTIHEAD_ATTENTION1")["OutputTensor"], expected)


def test_tensors_of_the_newer_form_may_have_leading_dimensions() -> None:
    """As its page says; those of the older one, DirectML refuses."""
    sizes = (1, 1, BATCH, LENGTH, HEADS * VALUES)
    for leading in (PLAIN, {n: x[None, None] for n, x in PLAIN.items()}):
        outputs = {"OutputTensor": sizes}
        found = attention(leading, "MULTIHEAD_ATTENTION1", outputs=outputs)["OutputTensor"]
        check(found, attend(Q, K, V).reshape(sizes))
        with pytest.raises(dmlc.DmlcError, match="takes 3 dimensions"):
            attention(leading, outputs=outputs)


def test_a_bias_for_each_of_the_three() -> None:
    parts = [normal(HEADS * n, seed=4 + n) for n in (SIZE, SIZE, VALUES)]
    q, k, v = (x + p.reshape(HEADS, -1) for x, p in zip((Q, K, V), parts, strict=True))
    bias = np.concatenate(parts)[None]
    check(attention(PLAIN | {"BiasTensor": bias})["OutputTensor"], attend(q, k, v))


@pytest.mark.parametrize("device", ["reference", "opencl", "vulkan"])
def test_a_bias_of_halves(device: str) -> None:
    """Beside FLOAT32; and a type of mask without a mask, which leaves nothing out."""
    parts = [normal(HEADS * n, seed=4 + n, dtype=np.float16) for n in (SIZE, SIZE, VALUES)]
    q, k, v = (
        x + p.astype(np.float32).reshape(HEADS, -1) for x, p in zip((Q, K, V), parts, strict=True)
    )
    inputs = PLAIN | {"BiasTensor": np.concatenate(parts)}
    found = attention(inputs, device=device, MaskType="BOOLEAN")["OutputTensor"]
    check(found, attend(q, k, v))


TIMES = np.arange(KEYS)
STARTS, ENDS = np.array([0, 2]), np.array([2, 4])
BOOLEAN = np.random.default_rng(5).integers(0, 2, (BATCH, HEADS, LENGTH, KEYS)).astype(np.int32)
MASKS: dict[str, tuple[Array, Array]] = {
    "KEY_SEQUENCE_LENGTH": (ENDS[None], ENDS[:, None] > TIMES),
    "KEY_SEQUENCE_END_START": (
        np.stack([ENDS, STARTS]),
        (ENDS[:, None] > TIMES) & (STARTS[:, None] <= TIMES),
    ),
    "KEY_QUERY_SEQUENCE_LENGTH_START_END": (
        np.array([*ENDS, 0, 3, 6, 0, 2, 6]),
        ENDS[:, None] > TIMES,
    ),
    "BOOLEAN": (BOOLEAN, BOOLEAN != 0),
}


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind: str, device: str) -> None:
    mask, kept = MASKS[kind]
    kept = kept if kept.ndim == 4 else kept[:, None, None]
    bias = normal(BATCH, HEADS, LENGTH, KEYS, seed=6)
    inputs = PLAIN | {"MaskTensor": mask.astype(np.int32), "RelativePositionBiasTensor": bias}
    found = attention(inputs, device=device, MaskType=kind)["OutputTensor"]
    check(found, attend(Q, K, V, bias + np.where(kept, 0, FILTER)))


def past(heads: int = HEADS) -> tuple[Array, Array]:
    """Past keys and values: batches, heads, places and elements."""
    return normal(BATCH, heads, PAST, SIZE, seed=7), normal(BATCH, heads, PAST, VALUES, seed=8)


def test_past_and_present() -> None:
    keys, values = past()
    present = {"OutputPresentKeyTensor": (BATCH, HEADS, PAST + KEYS, SIZE),
               "OutputPresentValueTensor": (1, BATCH, HEADS, PAST + KEYS, VALUES)}  # fmt: skip
    inputs = PLAIN | {"PastKeyTensor": keys, "PastValueTensor": values}
    found = attention(inputs, outputs=present)
    k = np.concatenate([keys, K.transpose(0, 2, 1, 3)], 2)
    v = np.concatenate([values, V.transpose(0, 2, 1, 3)], 2)
    np.testing.assert_array_equal(found["OutputPresentKeyTensor"], k)
    np.testing.assert_array_equal(found["OutputPresentValueTensor"], v[None])
    expected = attend(Q, k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3))
    check(found["OutputTensor"], expected)


@pytest.mark.parametrize("device", ["reference", "opencl"])
def test_heads_shared_and_pasts_of_different_lengths(device: str) -> None:
    shared = 2
    q = normal(BATCH, LENGTH, HEADS * shared, SIZE, seed=9)
    keys, values = past()
    lengths = np.array([0, 7], np.int32)
    inputs = PLAIN | {"QueryTensor": flat(q), "PastKeyTensor": keys, "PastValueTensor": values,
                      "PastSequenceLengthsTensor": lengths}  # fmt: skip
    found = attention(
        inputs, "MULTIHEAD_ATTENTION1", device, None, HEADS * shared, KeyValueHeadCount=HEADS
    )["OutputTensor"]
    for b, length in enumerate(np.minimum(lengths, PAST)):
        k = np.concatenate([keys[b, :, :length].transpose(1, 0, 2), K[b]])[None]
        v = np.concatenate([values[b, :, :length].transpose(1, 0, 2), V[b]])[None]
        check(found[b : b + 1], attend(q[b : b + 1], k, v))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"StackedQueryKeyTensor": (2, 3, 2, 2, 3)}, {}, "the query must be given exactly once"),
    ({"StackedKeyValueTensor": (2, 4, 2, 2, 3)}, {}, "the key must be given exactly once"),
    ({"ValueTensor": None}, {}, "the value must be given exactly once"),
    ({}, {"HeadCount": 0}, "there must be a head"),
    ({}, {"HeadCount": 4}, "the heads of the query must be as large as each other"),
    ({"KeyTensor": (2, 4, 8)}, {}, "the heads of the key must be as large as those of the query"),
    ({"PastKeyTensor": (2, 2, 5, 3)}, {}, "PastKeyTensor and PastValueTensor go together"),
    ({"PastKeyTensor": (2, 3, 5, 3), "PastValueTensor": (2, 3, 5, 2)}, {},
     "the tensors must have the heads that are counted"),
    ({"BiasTensor": (9,)}, {}, "BiasTensor must have an element for each"),
    ({"RelativePositionBiasTensor": (2, 2, 3, 9)}, {}, "as many keys as past and new ones"),
    ({"MaskTensor": (1, 2)}, {}, "MaskTensor is given with a MaskType"),
    ({"MaskTensor": (2,)}, {"MaskType": "KEY_SEQUENCE_LENGTH"}, r"sizes \[1, BatchSize\]"),
    ({"MaskTensor": (2, 2)}, {"MaskType": "KEY_SEQUENCE_LENGTH"}, r"sizes \[1, BatchSize\]"),
    ({"MaskTensor": (2,)}, {"MaskType": "KEY_SEQUENCE_END_START"}, r"sizes \[2, BatchSize\]"),
    ({"MaskTensor": (2, 2, 3, 3)}, {"MaskType": "BOOLEAN"}, "HeadCount, SequenceLength, keys"),
    ({"ValueTensor": (2, 5, 4)}, {}, "KeyLength"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2])
def test_what_is_refused(case: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    changed, attributes, message = case
    sizes: dict[str, Any] = {n: x.shape for n, x in PLAIN.items()} | changed
    tensors = {
        name: dmlc.TensorDesc("INT32" if name == "MaskTensor" else "FLOAT32", shape)
        for name, shape in sizes.items()
        if shape is not None
    }
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.operator("directml.MULTIHEAD_ATTENTION").bind(
            tensors, {"Scale": SCALE, "HeadCount": HEADS} | attributes
        )


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_few_kernels_that_are_neither_dense_nor_serial(target: str) -> None:
    rows = dmlc.TensorDesc("FLOAT32", (2, 128, 256))
    function = dmlc.operator("directml.MULTIHEAD_ATTENTION").bind(
        dict.fromkeys(PLAIN, rows), {"Scale": 0.125, "HeadCount": 4}
    )
    program = dmlc.compile(function, target=target)
    assert not program.warnings
    assert len(program.kernels) <= 5
