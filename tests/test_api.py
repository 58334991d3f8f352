"""The Python face: names, one call from arrays to arrays, and the same in steps."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dmlc
from dmlc import api, devices, ir
from dmlc.runtime.foreign import receive

Array = npt.NDArray[Any]
NAME = "directml.ACTIVATION_RELU_GRAD"
DEVICES = ("opencl", "reference")

POLYNOMIAL = """
operator SHIFTED {
    attributes { | Attribute | Type  | Default |
                 | Offset    | FLOAT | 0       | }
    tensors {
        | Tensor | Kind   | Supported dimension counts | Supported data types |
        | A      | Input  | 1 to 4                     | FLOAT32, FLOAT16     |
        | B      | Output | 1 to 4                     | FLOAT32, FLOAT16     |
    }
    constraints { A and B must have the same DataType, DimensionCount, and Sizes. }
    compute { B = A * A + Offset }
}
"""


def arrays(shape: tuple[int, ...] = (2, 3), dtype: npt.DTypeLike = np.float32) -> dict[str, Array]:
    random = np.random.default_rng(3)
    x = random.standard_normal(shape).astype(dtype)
    if x.size:
        x.reshape(-1)[:2] = [0.0, np.nan][: x.size]
    return {"InputTensor": x, "InputGradientTensor": random.standard_normal(shape).astype(dtype)}


def wanted(inputs: dict[str, Array]) -> Array:
    x, dy = inputs["InputTensor"], inputs["InputGradientTensor"]
    with np.errstate(invalid="ignore"):
        return np.where(x > 0, dy, x.dtype.type(0))


def result(inputs: dict[str, Any], **options: Any) -> Array:
    return dmlc.run(NAME, inputs, **options)["OutputGradientTensor"]


# Names ----------------------------------------------------------------------------------------


def test_the_library_is_a_mapping() -> None:
    found = dmlc.operators()
    assert NAME in found
    assert "onednn.ReLUBackward" in list(found)
    assert len(found) == len(list(found)) >= 4
    assert found[NAME] is dmlc.operator(NAME)
    assert found[NAME].name == NAME
    assert NAME in repr(found)


def test_an_unknown_operator_is_a_key_error_with_the_nearest_name() -> None:
    with pytest.raises(dmlc.UnknownNameError, match=rf"did you mean '{NAME}'"):
        dmlc.operator("directml.ACTIVATION_RELU_GRAAD")
    with pytest.raises(KeyError):
        dmlc.operators()["nothing"]
    with pytest.raises(dmlc.UnknownNameError, match="unknown operator 'relu'"):
        dmlc.run("relu", {})
    assert "nothing" not in dmlc.operators()


def test_every_public_name_is_there() -> None:
    for name in dmlc.__all__:
        assert getattr(dmlc, name) is not None
        assert name in dir(dmlc)
    assert dmlc.ir is ir
    assert dmlc.run is api.run
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        getattr(dmlc, "walk".lower())


def test_importing_costs_nothing() -> None:
    text = (
        "import sys, dmlc; "
        "assert not {'numpy', 'lark', 'pyopencl', 'jinja2', 'onnx', 'torch'} & set(sys.modules); "
        "import dmlc.api; assert 'pyopencl' not in sys.modules"
    )
    root = pathlib.Path(__file__).parents[1]
    subprocess.run([sys.executable, "-W", "error", "-c", text], check=True, cwd=root)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "dmlc.torch", raising=False)
    monkeypatch.delitem(vars(dmlc), "torch", raising=False)
    with pytest.raises(dmlc.UnavailableError, match=r"pip install 'dmlc\[torch\]'"):
        getattr(dmlc, "torch".lower())


# Running --------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5), (1, 2, 1, 3, 1, 2, 1, 2), (0,), (2, 0)])
def test_run(device: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    inputs = arrays(shape, dtype)
    found = dmlc.run(NAME, inputs, device=device)
    assert list(found) == ["OutputGradientTensor"]
    np.testing.assert_array_equal(found["OutputGradientTensor"], wanted(inputs), strict=True)
    assert found.report.copies == ()


@pytest.mark.parametrize("device", DEVICES)
def test_an_operator_with_attributes_and_bfloat16(device: str) -> None:
    x = np.array([-1, 0, 2], ml_dtypes.bfloat16)
    dy = np.array([5, 6, 7], ml_dtypes.bfloat16)
    relu = dmlc.operator("onednn.ReLUBackward")
    for use_dst in (True, False):
        names = [p.name for p in relu.bind({}, {"use_dst": use_dst}).parameters]
        inputs = {name: dy if "diff" in name else x for name in names}
        found = dmlc.run(relu, inputs, attributes={"use_dst": use_dst}, device=device)
        (only,) = found.values()
        assert only.dtype == ml_dtypes.bfloat16
        assert only.tolist() == [0, 0, 7]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.T,
        lambda a: a[::2, 1:],
        lambda a: a[:, ::-1],
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a[1:2],
    ],
)
def test_arrays_of_any_strides(device: str, change: Callable[[Array], Array]) -> None:
    inputs = {n: change(a) for n, a in arrays((4, 6)).items()}
    np.testing.assert_array_equal(result(inputs, device=device), wanted(inputs))
    mixed = {**inputs, "InputTensor": np.ascontiguousarray(inputs["InputTensor"])}
    np.testing.assert_array_equal(result(mixed, device=device), wanted(mixed))


def test_only_what_a_buffer_cannot_express_is_copied() -> None:
    inputs = arrays((4, 6))
    assert dmlc.run(NAME, {n: a.T for n, a in inputs.items()}).report.copies == ()
    assert dmlc.run(NAME, {n: a[::2, ::3] for n, a in inputs.items()}).report.copies == ()
    inputs["InputTensor"] = inputs["InputTensor"][::-1]
    (copy,) = dmlc.run(NAME, inputs).report.copies
    assert copy.tensor == "InputTensor"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [lambda a: a.astype(">f4"), lambda a: np.frombuffer(b"\0" + a.tobytes(), "f4", offset=1)],
)
def test_swapped_and_misaligned_arrays(device: str, change: Callable[[Array], Array]) -> None:
    inputs = {n: change(a) for n, a in arrays((6,)).items()}
    expected = wanted({n: a.astype(np.float32) for n, a in inputs.items()})
    np.testing.assert_array_equal(result(inputs, device=device), expected, strict=True)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_to_write_into(device: str) -> None:
    inputs = arrays((4, 6))
    for out in (
        np.empty((4, 6), np.float32),
        np.empty((6, 4), np.float32).T,
        np.empty((4, 12), np.float32)[:, ::2],
        np.empty((4, 6), np.float32)[::-1],
    ):
        assert result(inputs, outputs={"OutputGradientTensor": out}, device=device) is out
        np.testing.assert_array_equal(out, wanted(inputs))
    assert result(inputs, outputs={"OutputGradientTensor": (4, 6)}, device=device).shape == (4, 6)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place(device: str) -> None:
    inputs = arrays((4, 6))
    expected = wanted(inputs)
    out = inputs["InputGradientTensor"]
    assert result(inputs, outputs={"OutputGradientTensor": out}, device=device) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_single_numbers(device: str) -> None:
    inputs: dict[str, Any] = {
        "InputTensor": np.float32(2), "InputGradientTensor": np.array(7, np.float32)
    }  # fmt: skip
    found = result(inputs, device=device)
    assert found.shape == ()
    assert found == 7
    out = np.zeros((), np.float32)
    assert result(inputs, outputs={"OutputGradientTensor": out}, device=device) is out
    assert out == 7
    assert result(inputs, outputs={"OutputGradientTensor": ()}, device=device).shape == ()


@pytest.mark.parametrize("device", DEVICES)
def test_attributes_of_an_operator_of_ones_own(device: str) -> None:
    shifted = dmlc.parse(POLYNOMIAL, "shifted.dml").operators["SHIFTED"]
    a = np.arange(4, dtype=np.float32)
    for offset in (0.5, -2, 0.5):
        found = dmlc.run(shifted, {"A": a}, {"Offset": offset}, device=device)
        assert found["B"].tolist() == (a * a + np.float32(offset)).tolist()
    assert dmlc.run(shifted, {"A": a}, device=device)["B"].tolist() == (a * a).tolist()
    as_array = dmlc.run(shifted, {"A": a}, {"Offset": np.float32(1)}, device=device)
    assert as_array["B"].tolist() == (a * a + 1).tolist()


def test_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "shifted.dml"
    path.write_text(POLYNOMIAL)
    module = dmlc.load(path)
    assert list(module.operators) == ["SHIFTED"]
    with pytest.raises(dmlc.DmlcError, match=r"bad\.dml:1:"):
        dmlc.parse("operator {", "bad.dml")


@pytest.mark.parametrize("device", DEVICES)
def test_a_function(device: str) -> None:
    text = """
func @halve(%A: f32[2, 3]) -> (%B) {
  %B: f32[i0 < 3, i1 < 2] = mul(%A[i1, i0], 0.5)
}
"""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    function = ir.parse(text)
    for _ in range(2):
        found = dmlc.run(function, {"A": a}, device=device)
        assert found["B"].tolist() == (a.T / 2).tolist()
    out = np.empty((3, 2), np.float32)
    dmlc.run(function, {"A": a}, outputs={"B": out}, device=device)
    assert out.tolist() == (a.T / 2).tolist()
    with pytest.raises(dmlc.DmlcError, match="has its attributes bound already"):
        dmlc.run(function, {"A": a}, {"Offset": 1}, device=device)
    with pytest.raises(dmlc.DmlcError, match="unknown output tensor 'C'"):
        dmlc.run(function, {"A": a}, outputs={"C": (3, 2)}, device=device)
    with pytest.raises(dmlc.DmlcError, match=r"B has the sizes \[3, 2\], and \[2, 3\]"):
        dmlc.run(function, {"A": a}, outputs={"B": (2, 3)}, device=device)


def test_packed_arrays_of_any_size_share_one_kernel() -> None:
    plans = []
    for shape in ((7,), (2, 9), (3, 1, 4)):
        result(arrays(shape))
        call = api._RunRequest(
            dmlc.operator(NAME), receive(arrays(shape), {}), {}, {}, devices.find_device("opencl")
        )
        plans.append(api._plans.find(call._signature()))
    assert all(p is not None and p.executable is plans[0].executable for p in plans)


def test_the_oldest_plans_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_PLANS_KEPT", 2)
    kept = api._Plans()
    function = ir.parse(str(dmlc.operator(NAME).bind({})))
    plan = api._Plan(dmlc.operator(NAME), function, None, function)
    for key in ("a", "b", "c"):
        kept.keep(key, plan)
    assert kept.find("a") is None
    assert kept.find("b") is plan
    assert kept.find("c") is plan


def test_plans_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,024 of them took half a gigabyte on Vulkan."""
    subject = dmlc.operator(NAME)
    function = subject.bind({})
    executable = devices.load_function(function, devices.find_device("opencl"))
    plan = api._Plan(subject, function, executable, function)
    size = plan.estimate_bytes()
    assert size > 256 * len(executable.program.kernels[0].source) // 2
    monkeypatch.setattr(api, "_BYTES_KEPT", 3 * size)
    kept = api._Plans()
    for key in range(10):
        kept.keep(key, plan)
    kept.keep(9, plan)
    assert [kept.find(key) is plan for key in range(10)] == [False] * 7 + [True] * 3
    monkeypatch.setattr(api, "_BYTES_KEPT", size // 2)
    kept.keep("one", plan)
    assert kept.find(9) is None
    assert kept.find("one") is plan


def test_threads() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(10):
            inputs = arrays((number + 1, turn + 2))
            if not np.array_equal(result(inputs), wanted(inputs)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# In steps -------------------------------------------------------------------------------------


def test_the_steps() -> None:
    inputs = arrays((2, 3))
    described = {n: dmlc.TensorDesc("FLOAT32", (2, 3), strides=None) for n in inputs}
    function = dmlc.operator(NAME).bind(described)
    assert ir.parse(str(function)) == function
    program = dmlc.compile(function, target="opencl")
    executable = dmlc.load_program(program, device="opencl")
    np.testing.assert_array_equal(executable(inputs)["OutputGradientTensor"], wanted(inputs))
    call = executable.bind(inputs, outputs={"OutputGradientTensor": (2, 3)})
    np.testing.assert_array_equal(call()["OutputGradientTensor"], wanted(inputs))


def test_a_program_goes_to_a_device_that_runs_it() -> None:
    function = dmlc.operator(NAME).bind({})
    with pytest.raises(dmlc.UnsupportedError, match=r"compiled for hlsl[\s\S]*target='opencl'"):
        dmlc.load_program(dmlc.compile(function, target="hlsl"))
    program = dmlc.compile(function)
    with pytest.raises(dmlc.UnsupportedError, match="the reference evaluates functions"):
        dmlc.load_program(program, device="reference")
    with pytest.raises(dmlc.UnsupportedError, match=r"compiled for opencl[\s\S]*target='hlsl'"):
        dmlc.load_program(program, device="vulkan")
    executable = dmlc.load_program(dmlc.compile(function, target="hlsl"), device="vulkan")
    inputs = {"InputTensor": np.float32([1, -1]), "InputGradientTensor": np.float32([2, 3])}
    np.testing.assert_array_equal(executable(inputs)["OutputGradientTensor"], [2, 0])


def test_vulkan_runs_what_opencl_runs() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float16)
    inputs = {"InputTensor": x.transpose(2, 0, 1), "InputGradientTensor": x.transpose(2, 0, 1) + 1}
    results = dmlc.run(NAME, inputs, device="vulkan")
    np.testing.assert_array_equal(
        results["OutputGradientTensor"], dmlc.run(NAME, inputs)["OutputGradientTensor"]
    )
    assert "llvmpipe" in str(results.report)


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("vulkan:no such device", "no Vulkan device"),
        ("d3d12:no such device", "Direct3D 12"),
        ("opencl:no such device", "no OpenCL device matches 'no such device'"),
        ("opencll", "unknown device 'opencll'"),
    ],
)
def test_devices_that_are_not_there(device: str, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, arrays(), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"InputTensor": [[1.0]]}, "InputTensor is a list, and an array is expected"),
        ({"InputTensor": np.ma.zeros((2, 3), "f4")}, r"masked array[\s\S]*filled\(0\)"),
        ({"InputTensor": np.array([["a"]])}, "InputTensor holds <U1, which no tensor can hold"),
        ({"InputTensor": np.array([[None]])}, "holds object"),
        ({"InputTensor": np.zeros((2, 3), complex)}, "holds complex128"),
        ({"InputTensor": np.zeros((2, 3), "M8[s]")}, "holds datetime64"),
        ({"InputTensor": np.zeros((2, 3), "f4,f4")}, "which no tensor can hold"),
        ({"InputTensor": np.zeros((2, 3))}, "FLOAT64"),
        ({"InputTensor": np.zeros((3, 2), np.float32)}, "must have the same"),
        ({"InputTensor": np.zeros((2, 3), np.float16)}, "must have the same"),
        ({"InputTenser": np.zeros((2, 3), np.float32)}, "InputTenser"),
        ({"InputTensor": None}, "InputTensor"),
    ],
)
def test_inputs_that_do_not_fit(device: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, {**arrays(), **changed}, device=device)


def test_too_many_dimensions_are_refused_although_the_kernel_would_take_them() -> None:
    with pytest.raises(dmlc.DmlcError, match="dimensions"):
        result(arrays((1,) * 9))


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_that_do_not_fit(device: str) -> None:
    def attempt(out: Any) -> None:
        result(arrays(), outputs={"OutputGradientTensor": out}, device=device)

    with pytest.raises(dmlc.DmlcError):
        attempt(np.empty((3, 2), np.float32))
    with pytest.raises(dmlc.DmlcError):
        attempt(np.empty((2, 3), np.float16))
    with pytest.raises(dmlc.DmlcError):
        attempt((3, 2))
    frozen = np.empty((2, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(dmlc.DmlcError, match="read-only"):
        attempt(frozen)
    with pytest.raises(dmlc.DmlcError, match="unknown output tensor 'Out'"):
        dmlc.run(NAME, arrays(), outputs={"Out": (2, 3)}, device=device)


def test_things_that_do_not_run() -> None:
    with pytest.raises(dmlc.DmlcError, match=r"subject must be an operator.*, not 3"):
        dmlc.run(cast(Any, 3), {})


def test_attributes_that_cannot_be_looked_up_still_get_their_message() -> None:
    shifted = dmlc.parse(POLYNOMIAL).operators["SHIFTED"]
    with pytest.raises(dmlc.DmlcError, match="Offset"):
        dmlc.run(shifted, {"A": np.zeros(2, np.float32)}, {"Offset": {1, 2}})
    with pytest.raises(dmlc.DmlcError, match="Offset"):
        dmlc.run(shifted, {"A": np.zeros(2, np.float32)}, {"Offset": {"a": [1]}})
    with pytest.raises(dmlc.DmlcError, match="Offset"):
        dmlc.run(shifted, {"A": np.zeros(2, np.float32)}, {"Offset": np.arange(2)})


# Graphs ---------------------------------------------------------------------------------------

GRAPH = """
graph g[N, C, K](x: FLOAT32[N, C], dy: FLOAT32[N, C], scale: FLOAT32[1, C]) {
    masked = directml.ACTIVATION_RELU_GRAD(InputTensor: x, InputGradientTensor: dy)
    output dx     = masked * scale * K
    output dscale = sum(masked, like: scale)
}
"""


def graph_inputs(rows: int = 3, columns: int = 4) -> dict[str, Array]:
    random = np.random.default_rng(0)
    sizes = {"x": (rows, columns), "dy": (rows, columns), "scale": (1, columns)}
    return {n: random.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_run(device: str) -> None:
    graph = dmlc.parse(GRAPH).graphs["g"]
    given = graph_inputs()
    masked = np.where(given["x"] > 0, given["dy"], np.float32(0))
    found = dmlc.run(graph, given, device=device, dims={"K": 3})
    assert list(found) == ["dx", "dscale"]
    np.testing.assert_allclose(found["dx"], masked * given["scale"] * 3, rtol=1e-6)
    np.testing.assert_allclose(found["dscale"], masked.sum(0, keepdims=True), rtol=1e-5)
    turned = {**given, "x": np.asfortranarray(given["x"])}
    place = np.zeros((4, 3), np.float32).T
    again = dmlc.run(graph, turned, outputs={"dx": place, "dscale": (1, 4)}, device=device,
                     dims={"K": 3})  # fmt: skip
    assert again["dx"] is place
    np.testing.assert_array_equal(place, found["dx"])


def test_graphs_are_compiled_once_for_the_same_sizes() -> None:
    graph = dmlc.parse(GRAPH).graphs["g"]
    given = graph_inputs()
    calls = [api._RunRequest(graph, receive(given, {}), {}, {"K": k}, None) for k in (2, 2, 3)]
    first, second, third = (call._signature() for call in calls)
    assert first == second
    assert first != third


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"dy": None}, {"dims": {"K": 2}}, "input 'dy' of graph 'g' is not given"),
        ({}, {}, "the size of symbol 'K' is not known"),
        ({}, {"dims": {"K": 2, "N": 4}}, "symbol 'N' is stated to be 4, but 'x' has 3 there"),
        ({"z": np.ones(3, np.float32)}, {"dims": {"K": 2}}, "unknown tensor of graph 'g' 'z'"),
        ({"scale": np.ones((1, 4))}, {"dims": {"K": 2}},
         "input 'scale' is FLOAT32, but FLOAT64 is given"),
        ({"scale": np.ones((1, 5), np.float32)}, {"dims": {"K": 2}},
         "symbol 'C' has two sizes: 4 in 'x' and 5 in 'scale'"),
        ({}, {"dims": {"K": 2}, "outputs": {"dx": (4, 3)}},
         r"output 'dx' has sizes \[3, 4\], but \[4, 3\] are asked for"),
        ({}, {"dims": {"K": 2}, "attributes": {"Alpha": 1}}, "graph 'g' takes no attributes"),
    ],
)  # fmt: skip
def test_mistakes_in_running_graphs(
    change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    graph = dmlc.parse(GRAPH).graphs["g"]
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(graph, {**graph_inputs(), **change}, device="reference", **options)


def test_only_graphs_have_symbols() -> None:
    with pytest.raises(dmlc.DmlcError, match="only graphs have symbols"):
        dmlc.run(NAME, arrays((3,)), dims={"N": 3})
