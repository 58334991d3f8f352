"""Test files of the offload-test-suite: they keep to its format, and played on a Vulkan device they
pass what is right, by the suite's own rules, and fail what is ten bounds off."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pytest
import yaml

import dmlc
from dmlc import TensorDesc
from dmlc.interop import rules
from dmlc.interop.export import OFFLOAD, export_case
from dmlc.interop.offload import make_test
from dmlc.interop.proof import Proof, prove
from dmlc.runtime.dxc import compile_spirv
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.case import Call, Case
from tests.interop import shaders
from tests.interop.shaders import OPERATORS, describe

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(
    (Path(dmlc.__file__).parent / "interop" / "pipeline.schema.json").read_text(encoding="utf-8")
)
RELU_GRAD = "directml.ACTIVATION_RELU_GRAD"
TYPES = {
    "Float16": np.uint16, "Float32": np.float32, "Float64": np.float64, "Int16": np.int16,
    "Int32": np.int32, "Int64": np.int64, "UInt16": np.uint16, "UInt32": np.uint32,
    "UInt64": np.uint64, "Hex32": np.uint32,
}  # fmt: skip


# The suite ------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A pipeline and its shader."""

    source: str
    arguments: list[str]
    pipeline: dict[str, Any]


def split_file(text: str) -> dict[str, str]:
    """The parts of a test file, as LLVM's split-file takes it apart."""
    parts = re.split(r"^(?:#|//)--- (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_test(text: str) -> list[Part]:
    """What the test runs, by its own commands."""
    files = split_file(text)
    runs = re.findall(r"^# RUN: (.+)$", text, flags=re.MULTILINE)
    assert runs[0] == "split-file %s %t"
    found: list[Part] = []
    for build, launch in zip(runs[1::2], runs[2::2], strict=True):
        compiled = re.fullmatch(
            r"%dxc_target (.+) %if DXC && !Vulkan %\{ -Gis %\} -Fo %t/(\S+) %t/(\S+)", build
        )
        started = re.fullmatch(r"%offloader %t/(\S+) %t/(\S+)", launch)
        assert compiled
        assert started
        assert compiled[2] == started[2]
        # Booleans and the like would be read as such.
        pipeline = yaml.load(files[started[1]], yaml.BaseLoader)
        found.append(Part(files[compiled[3]], compiled[1].split(), pipeline))
    return found


def make_buffer(described: dict[str, Any]) -> Array:
    """A buffer's contents, as the suite's parser reads them."""
    kind = np.dtype(TYPES[described["Format"]])
    if "FillSize" in described:
        value = read_number(described["FillValue"], kind)
        return np.full(int(described["FillSize"]) // kind.itemsize, value, kind)
    return np.array([read_number(word, kind) for word in described["Data"]], kind)


def read_number(text: str, kind: np.dtype[Any]) -> Any:
    return kind.type(text) if kind.kind == "f" else kind.type(int(text, 0))


def holds(rule: dict[str, str], kind: str, actual: Array, expected: Array) -> bool:
    """Whether a result passes, by the words of the suite's lib/Support/Check.cpp."""
    if actual.nbytes != expected.nbytes:
        return False
    if rule["Rule"] == "BufferExact":
        return actual.tobytes() == expected.tobytes()
    if kind == "Float16":
        pairs = zip(actual.tolist(), expected.tolist(), strict=True)
        return all(same_16(a, b, rule) for a, b in pairs)
    assert rule["DenormMode"] == "Preserve"
    alike = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if rule["Rule"] == "BufferFloatULP":
        bits = [array.view(f"i{array.itemsize}").astype(object) for array in (actual, expected)]
        return bool(np.all(alike | (np.abs(bits[0] - bits[1]) <= int(rule["ULPT"]))))
    with np.errstate(all="ignore"):
        return bool(
            np.all(alike | (np.abs(actual - expected) < actual.dtype.type(rule["Epsilon"])))
        )


def same_16(actual: int, expected: int, rule: dict[str, str]) -> bool:
    """Two words of 16-bit floats."""
    if actual == expected or (actual | expected) & 0x7FFF == 0:
        return True
    nans = [word & 0x7FFF > 0x7C00 for word in (actual, expected)]
    if any(nans):
        return all(nans)
    if rule["Rule"] == "BufferFloatEpsilon":
        values = np.uint16([actual, expected]).view(np.float16).astype(np.float32)
        return bool(abs(values[0] - values[1]) < np.float32(rule["Epsilon"]))
    ranks = [~word & 0xFFFF if word & 0x8000 else word | 0x8000 for word in (actual, expected)]
    return abs(ranks[0] - ranks[1]) <= int(rule["ULPT"])


class Played(NamedTuple):
    """A pipeline after it has run."""

    pipeline: dict[str, Any]
    buffers: dict[str, Array]

    def judge(self, spoilt: dict[str, Array] | None = None) -> list[bool]:
        """Whether each rule holds, with some results in the place of those that were computed."""
        found = self.buffers | (spoilt or {})
        formats = {b["Name"]: b["Format"] for b in self.pipeline["Buffers"]}
        verdicts: list[bool] = []
        for rule in self.pipeline["Results"]:
            kind = formats[rule["Actual"]]
            assert kind == formats[rule["Expected"]]
            verdicts.append(holds(rule, kind, found[rule["Actual"]], found[rule["Expected"]]))
        return verdicts


def play(part: Part) -> Played:
    """Runs a pipeline as the suite's offloader does: resources are found by their registers."""
    pipeline = part.pipeline
    buffers = {b["Name"]: make_buffer(b) for b in pipeline["Buffers"]}
    strides = {b["Name"]: int(b.get("Stride", 0)) for b in pipeline["Buffers"]}
    registers: dict[str, str] = {}
    places: set[int] = set()
    classes = {"StructuredBuffer": "t", "RWStructuredBuffer": "u", "ConstantBuffer": "b"}
    (group,) = pipeline["DescriptorSets"]
    for resource in group["Resources"]:
        assert resource["DirectXBinding"]["Space"] == "0"
        register = classes[resource["Kind"]] + resource["DirectXBinding"]["Register"]
        registers[register] = resource["Name"]
        place = int(resource["VulkanBinding"]["Binding"])
        assert place not in places
        places.add(place)
        assert re.search(
            rf"^\[\[vk::binding\({place}, 0\)\]\] .*: register\({register}\)", part.source, re.M
        )
    bound: dict[str, Array] = {}
    constants: Array | None = None
    for name, register in re.findall(r"(\w+) : register\((\w+)\)", part.source):
        if register == "b0":
            constants = buffers[registers[register]].view(np.uint8)
        else:
            bound[name] = buffers[registers[register]]
    groups = [int(n) for n in pipeline["DispatchParameters"]["DispatchGroupCount"]]
    reflection = shaders.dispatch(part.source, part.arguments, bound, constants, groups)
    # Nothing refuses what a shader does not use.
    assert {r.register for r in reflection.resources} <= set(registers)
    for resource in reflection.resources:
        if resource.stride:
            name = registers[resource.register]
            assert strides[name] == resource.stride
            assert buffers[name].nbytes % resource.stride == 0
    return Played(pipeline, buffers)


def check(text: str) -> list[Played]:
    """Plays every pipeline of a file that keeps to the format, and holds it to pass."""
    played: list[Played] = []
    for part in read_test(text):
        jsonschema.validate(convert(part.pipeline), SCHEMA)
        played.append(play(part))
        assert all(played[-1].judge())
        assert played[-1].pipeline["Results"]
    assert played
    return played


def convert(found: Any) -> Any:
    """Whole numbers as such, for the schema; all else is text."""
    if isinstance(found, dict):
        return {key: convert(value) for key, value in found.items()}
    if isinstance(found, list):
        return [convert(value) for value in found]
    return int(found) if re.fullmatch(r"-?\d+", found) else found


def spoil_results(proof: Proof, played: list[Played]) -> Iterator[tuple[Played, str, Array]]:
    """Results with one element made wrong: of those held closest and least, and the last."""
    for found in played:
        for name in dict.fromkeys(rule["Actual"] for rule in found.pipeline["Results"]):
            if name not in proof.expected:
                continue
            expected, allowed = proof.expected[name], proof.allowed[name].reshape(-1)
            dtype = next(t for t in DataType if t.dtype == expected.dtype)
            for place in sorted({int(allowed.argmin()), int(allowed.argmax()), allowed.size - 1}):
                yield found, name, spoil(found.buffers[name], place, expected, allowed, dtype)


def spoil(values: Array, place: int, expected: Array, allowed: Array, dtype: DataType) -> Array:
    """A result with an element that is ten bounds off, or as far as steps of its type can show."""
    shown = np.maximum(allowed, find_blur(expected, allowed, dtype) / 10)
    wrong = values.copy()
    line = wrong.view(dtype.dtype)[: allowed.size]
    line[...] = shaders.spoil(line.copy(), place, expected, shown, dtype)
    return wrong


def find_blur(expected: Array, allowed: Array, dtype: DataType) -> Array:
    """What moved values are rounded to: steps at an element's size and the largest bound."""
    if not dtype.is_float or dtype.bytes == 2 or not np.any(allowed > 0):
        return np.zeros(allowed.shape)
    wide = np.nan_to_num(expected.reshape(-1).astype(np.float64), posinf=0.0, neginf=0.0)
    reach = allowed[np.isfinite(expected.reshape(-1))].max(initial=0.0)
    # The rules' tolerance has room for eight steps at the largest value that is moved.
    room = 8 * np.finfo(dtype.dtype).eps * (np.abs(wide).max() + 4 * reach)
    sizes = np.abs(wide) + reach + room
    return 5 * np.spacing(sizes.astype(dtype.dtype)).astype(np.float64)


# Files ----------------------------------------------------------------------------------------


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", OPERATORS)
def test_examples_of_the_library_pass_and_their_mistakes_do_not(name: str) -> None:
    proof = shaders.example(name)
    if proof.function.loops:
        with pytest.raises(UnsupportedError, match="a test file runs each kernel once"):
            make_test(proof)
        return
    close = [
        n for n, a in proof.expected.items() if a.dtype.kind in "iu" and proof.allowed[n].any()
    ]
    if close:
        with pytest.raises(UnsupportedError, match="leaves no element out"):
            make_test(proof)
        return
    played = check(make_test(proof))
    wrong = list(spoil_results(proof, played))
    assert len(wrong) >= len(proof.expected)
    for found, result, values in wrong:
        assert not all(found.judge({result: values})), result


def relu_grad(*sizes: int, dtype: str = "FLOAT32", strides: tuple[int, ...] | None = None) -> Proof:
    names = ("InputTensor", "InputGradientTensor")
    tensors = {n: TensorDesc(dtype, sizes, strides) for n in names}
    return prove(dmlc.operator(RELU_GRAD), tensors, {}, seed=3)


def rms_norm(dtype: str, *sizes: int, **more: TensorDesc) -> Proof:
    operator = dmlc.load(ROOT / "examples" / "rms_norm.dml").operators["normalization.RMS_NORM"]
    return prove(operator, {"src": TensorDesc(dtype, sizes), **more}, {}, seed=7)


PROOFS: dict[str, Proof] = {
    "structures that nothing fills": relu_grad(3, 5, 7),
    "half a word": relu_grad(5, 7, dtype="FLOAT16"),
    "one element": relu_grad(1),
    "bytes": prove(
        dmlc.operator("directml.ACTIVATION_RELU"),
        {"InputTensor": describe(5, 7, dtype="INT8")},
        {},
    ),
    "strides in": relu_grad(5, 6, strides=(12, 2)),
    "strides out": prove(
        dmlc.operator(RELU_GRAD),
        {
            "InputTensor": describe(5, 6),
            "InputGradientTensor": describe(5, 6, strides=(1, 5)),
            "OutputGradientTensor": describe(5, 6, strides=(13, 2)),
        },
        {},
    ),
    "rows alike": relu_grad(5, 6, strides=(0, 1)),
    "rms_norm": rms_norm("FLOAT32", 4, 64, gamma=describe(64), rms=describe(4)),
    "rms_norm of bfloat16": rms_norm("BFLOAT16", 4, 33),
    "softmax": prove(dmlc.operator("onednn.SoftMax"), {"src": describe(4, 30)}, {"axis": 1}),
    "softmax of float16": prove(
        dmlc.operator("directml.ACTIVATION_SOFTMAX1"),
        {"InputTensor": describe(5, 13, dtype="FLOAT16")},
        {"Axes": [1]},
    ),
    "gemm": prove(
        dmlc.operator("directml.GEMM"),
        {"ATensor": describe(1, 1, 7, 65), "BTensor": describe(1, 1, 65, 9)},
        {},
    ),
    "kernels": prove(
        dmlc.load(ROOT / "examples" / "graphs" / "softmax_cross_entropy_backward.dml").graphs[
            "softmax_cross_entropy_backward"
        ],
        {},
        {},
        dims={"N": 4, "K": 6},
    ),
}


@pytest.mark.parametrize("name", PROOFS)
def test_files_pass_what_is_right_and_fail_what_is_ten_bounds_off(name: str) -> None:
    proof = PROOFS[name]
    played = check(make_test(proof))
    for found, result, values in spoil_results(proof, played):
        assert not all(found.judge({result: values})), result
    if name == "rms_norm":
        # Any one element.
        allowed = proof.allowed["dst"].reshape(-1)
        values = played[0].buffers["dst"]
        for place in range(allowed.size):
            wrong = spoil(values, place, proof.expected["dst"], allowed, DataType.FLOAT32)
            assert not all(played[0].judge({"dst": wrong})), place


def test_words_of_shader_model_6_0() -> None:
    proof = relu_grad(5, 7, dtype="FLOAT16")
    text = make_test(proof, "6.0")
    assert "-T cs_6_0" in text
    assert "REQUIRES" not in text
    (played,) = check(text)
    for _, result, values in spoil_results(proof, [played]):
        assert not all(played.judge({result: values}))


def test_a_file_asks_for_what_not_every_device_has() -> None:
    assert "# REQUIRES: Half, Int16\n" in make_test(relu_grad(4, dtype="FLOAT16"))
    assert "# REQUIRES: Int16\n" in make_test(rms_norm("BFLOAT16", 4, 33))
    assert "# REQUIRES: Double\n" in make_test(shaders.example("directml.JOIN"))
    assert "REQUIRES" not in make_test(relu_grad(4))


def test_shaders_compile_for_vulkan_as_they_stand() -> None:
    """By their attributes alone, without the compiler being told where registers lie."""
    (part,) = read_test(make_test(relu_grad(3, 5)))
    assert compile_spirv(part.source).code


def test_memory_is_full_of_what_shows() -> None:
    """What nothing writes is no result, and what is between elements stays as it was."""
    (part,) = read_test(make_test(PROOFS["strides out"]))
    played = play(part)
    (name,) = {rule["Actual"] for rule in part.pipeline["Results"]}
    before = next(b for b in part.pipeline["Buffers"] if b["Name"] == name)
    assert not all(played.judge({name: make_buffer(before)}))
    stray = played.buffers[name].copy()
    assert np.isnan(stray[1])
    stray[1] = 0
    assert not all(played.judge({name: stray}))


def test_what_no_file_can_say_is_refused() -> None:
    graphs = dmlc.load(ROOT / "examples" / "graphs" / "softmax_cross_entropy_backward.dml").graphs
    graph = graphs["softmax_cross_entropy_backward"]
    with pytest.raises(UnsupportedError, match="partial results in 'loss_sum_parts'"):
        make_test(prove(graph, {}, {}, dims={"N": 65, "K": 300}))
    with pytest.raises(DmlcError, match="before the sizes of its tensors are known"):
        prove(graph, {}, {})


def test_a_case_is_exported_as_one_file(tmp_path: Path) -> None:
    operator = dmlc.operator("directml.ACTIVATION_RELU")
    tensors = {n: describe(3) for n in ("InputTensor", "OutputTensor")}
    case = Case(Call(operator, tensors, {}), {"InputTensor": np.float32([-1, 0, 2])}, "three")
    (path,) = export_case(case, tmp_path, OFFLOAD)
    assert path.name == "ACTIVATION_RELU.test"
    check(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "title",
    ["x\n# RUN: touch x", "RUN: touch x", "x\r# XFAIL: *", "the END.", "REDEFINE: %t = x\u2028y"],
)
def test_a_title_says_nothing_to_lit(title: str) -> None:
    """It obeys its words wherever in a line they are."""
    given = {n: describe(3) for n in ("InputTensor", "OutputTensor")}
    proof = prove(dmlc.operator("directml.ACTIVATION_RELU"), given, {}, seed=3)
    words = r"(?:RUN|XFAIL|REQUIRES|UNSUPPORTED|ALLOW_RETRIES|DEFINE|REDEFINE):|END\."
    usual = re.findall(rf"^.*(?:{words}).*$", make_test(proof), re.MULTILINE)
    text = make_test(dataclasses.replace(proof, title=title))
    assert re.findall(rf"^.*(?:{words}).*$", text, re.MULTILINE) == usual
    assert len(text.splitlines()) == len(make_test(proof).splitlines())
    check(text)


# Rules ----------------------------------------------------------------------------------------


def judge_rules(made: list[rules.Rule], values: Array, kind: str) -> bool:
    verdicts: list[bool] = []
    for rule in made:
        words = (lambda a: a.view(np.uint16)) if kind == "Float16" else (lambda a: a)
        settings = {"Rule": rule.name, **dict(rule.settings)}
        verdicts.append(holds(settings, kind, words(values), words(rule.expected)))
    return all(verdicts)


KINDS = {
    DataType.FLOAT32: "Float32",
    DataType.FLOAT64: "Float64",
    DataType.FLOAT16: "Float16",
    DataType.BFLOAT16: "Float16",
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_rules_keep_to_each_elements_bound(dtype: DataType, seed: int) -> None:
    """Elements of many sizes, and bounds of many sizes: what just keeps to its bound passes, and
    what is ten bounds off does not, but for steps that are wider than that."""
    random = np.random.default_rng(seed)
    count = 40
    exponents = random.uniform(-4, 3, count)
    expected = (random.choice([-1.0, 1.0], count) * 10.0**exponents).astype(dtype.dtype)
    expected[:4] = [0.0, -0.0, np.inf, np.nan]
    size = np.abs(np.nan_to_num(expected.astype(np.float64), posinf=1.0))
    allowed = size * 10.0 ** random.uniform(-6, -2, count) + random.choice([0.0, 1e-6], count)
    made = rules.make_rules("Y", expected, allowed, dtype)
    with np.errstate(all="ignore"):
        for sign in (-1, 1):
            exact = expected.astype(np.float64) + sign * allowed
            edge = exact.astype(dtype.dtype)
            beyond = np.abs(edge.astype(np.float64) - expected.astype(np.float64)) > allowed
            edge = np.where(beyond, expected, edge).astype(dtype.dtype)
            assert judge_rules(made, edge, KINDS[dtype])
    for place in range(4, count):
        wrong = spoil(expected, place, expected, allowed, dtype)
        # Of 16 bits, ten bounds may be less than a step.
        if abs(float(wrong[place]) - float(expected[place])) > allowed[place]:
            assert not judge_rules(made, wrong, KINDS[dtype]), place


def test_float16_far_from_a_wide_bound_is_held_by_its_difference() -> None:
    """Words near the largest cannot be moved by as many steps as lie about zero."""
    expected = np.float16([0.0, 2000.0, -2000.0])
    allowed = np.float64([0.25, 1.0, 1.0])
    made = rules.make_rules("Y", expected, allowed, DataType.FLOAT16)
    assert [rule.name for rule in made] == ["BufferFloatULP"] * 2 + ["BufferFloatEpsilon"] * 2
    assert judge_rules(made, np.float16([-0.25, 2001.0, -1999.0]), "Float16")
    for wrong in ([2.5, 2000, -2000], [0, 2010, -2000], [0, 1990, -2000], [0, 2000, -1990]):
        assert not judge_rules(made, np.float16(wrong), "Float16")


def test_exact_results_are_held_to_every_bit_that_counts() -> None:
    expected = np.float32([0.0, 1e-40, 1.0])
    (rule,) = rules.make_rules("Y", expected, np.zeros(3), DataType.FLOAT32)
    assert (rule.name, rule.settings[0]) == ("BufferFloatULP", ("ULPT", "0"))
    assert judge_rules([rule], np.float32([-0.0, 1e-40, 1.0]), "Float32")
    assert not judge_rules([rule], np.float32([0.0, 0.0, 1.0]), "Float32")
    (rule,) = rules.make_rules("Y", np.int32([1, 2]), np.zeros(2), DataType.INT32)
    assert rule.name == "BufferExact"


def test_bounds_without_end_are_refused() -> None:
    far = np.float32([1, 3e38])
    with pytest.raises(UnsupportedError, match="nowhere near the largest"):
        rules.make_rules("Y", far, np.float64([0, 3e38]), DataType.FLOAT32)
    for values, dtype in (
        (np.float32([1, 2]), DataType.FLOAT32),
        (np.int32([1, 2]), DataType.INT32),
    ):
        with pytest.raises(UnsupportedError, match="'Y' may be off by any amount"):
            rules.make_rules("Y", values, np.float64([0.5, np.inf]), dtype)
