"""The Python side of the explorer, without a browser: `make explorer` tests the page in one."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc import cli
from dmlc.runtime import wgpu
from dmlc.runtime.wgpu.device import open_context
from docs.explorer import compiler

RELU = compiler.describe()["examples"][0]
SOFTSIGN = """// \U0001d6fc: two code units
operator SOFTSIGN {
    tensors {
        | Tensor | Kind   | Ranks  | Types |
        | ------ | ------ | ------ | ----- |
        | src    | Input  | 1 to 8 | f32   |
        | dst    | Output | 1 to 8 | f32   |
    }
    constraints { *src* and *dst* must have the same *DataType* and *Sizes*. }
    compute { dst = src / (1 + abs(scr)) }
}
"""
DEVICE = {
    "name": "a browser's",
    "features": [],
    "limits": {
        "maxComputeWorkgroupsPerDimension": 65535,
        "maxComputeInvocationsPerWorkgroup": 256,
        "maxComputeWorkgroupStorageSize": 16384,
        "maxStorageBuffersPerShaderStage": 8,
        "maxStorageBufferBindingSize": 1 << 27,
        "maxUniformBufferBindingSize": 1 << 16,
        "maxBufferSize": 1 << 28,
    },
}
"""What WebGPU promises of every device."""


def ask(kind: str, **fields: Any) -> dict[str, Any]:
    return json.loads(compiler.answer(json.dumps({"kind": kind, **fields})))


def ask_first(kind: str, example: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A request for the first operator or graph of an example."""
    subject = ask("check", text=example["text"])["subjects"][0]
    return ask(kind, **example | {"subject": subject} | fields)


@pytest.mark.parametrize("example", compiler.describe()["examples"], ids=lambda e: e["title"])
def test_an_example_compiles_for_every_target(example: dict[str, Any]) -> None:
    checked = ask("check", text=example["text"])
    if "Mistakes" in example["title"]:
        assert "subjects" not in checked
        assert all(d["place"] and d["notes"] for d in checked["diagnostics"])
        return
    made = ask_first("compile", example)
    assert [d for d in made["diagnostics"] if d["severity"] == "error"] == []
    assert list(made["programs"]) == ["hlsl", "opencl", "wgsl"]
    assert all(program["files"] for program in made["programs"].values())


def test_the_files_are_those_of_the_command_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = next(e for e in compiler.describe()["examples"] if "dims" in e)
    choices = {"profile": "gpu", "shader_model": "6.0"}
    made = ask_first("compile", example, **choices)
    monkeypatch.chdir(tmp_path)
    Path(compiler.NAME).write_text(example["text"], "utf-8")
    for target, program in made["programs"].items():
        command = shlex.split(program["command"])
        assert command[0] == "dmlc"
        command[-1] = target
        assert cli.run(command[1:]) == 0
        for name, text in program["files"].items():
            assert (tmp_path / target / name).read_text("utf-8") == text


def test_a_mistake_has_its_place_in_utf_16_and_its_cure() -> None:
    (found,) = ask("check", text=SOFTSIGN)["diagnostics"]
    start, end = found["place"]
    units = SOFTSIGN.encode("utf-16-le")
    assert units[2 * start : 2 * end].decode("utf-16-le") == "scr"
    assert found["message"] == "unknown name 'scr'"
    assert [note["message"] for note in found["notes"]] == ["did you mean 'src'?"]
    assert ask("explain", code=found["code"])["text"].startswith("# E0201")


def test_a_target_that_cannot_express_it_says_so_alone() -> None:
    text = SOFTSIGN.replace("scr", "src").replace("f32", "f64")
    programs = ask_first("compile", {"text": text})["programs"]
    assert "FLOAT64" in programs["wgsl"]["refused"]
    assert programs["hlsl"]["files"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensors": "src=FLOAT32[2"}, "'FLOAT32[2' describes no tensor"),
        ({"tensors": "src"}, "expected NAME=VALUE, found 'src'"),
        ({"dims": "N=3"}, "only graphs have symbols"),
        ({"tensors": "sr=FLOAT32[2]"}, "unknown tensor 'sr'"),
    ],
)
def test_an_option_that_is_wrong_is_said(options: dict[str, str], said: str) -> None:
    text = SOFTSIGN.replace("scr", "src")
    found = ask_first("compile", {"text": text}, **options)["diagnostics"]
    assert said in found[0]["message"]


def test_blanks_part_options_and_may_stand_in_brackets() -> None:
    text = SOFTSIGN.replace("scr", "src")
    made = ask_first("compile", {"text": text}, tensors=" src=FLOAT32[2, 3]{4, 1}\n dst=FLOAT32 ")
    command = shlex.split(made["programs"]["hlsl"]["command"])
    assert [w for w in command if "=" in w] == ["src=FLOAT32[2,3]{4,1}", "dst=FLOAT32"]


def test_words_are_offered_and_told_of() -> None:
    text = SOFTSIGN.replace("scr", "src")
    at = len(text[: text.index("abs(src") + len("abs(s")].encode("utf-16-le")) // 2
    offered = ask("suggest", text=text, at=at)
    assert text.encode("utf-16-le")[2 * offered["from"] : 2 * at].decode("utf-16-le") == "s"
    assert "src" in [option["label"] for option in offered["options"]]
    told = ask("tell", text=text, at=at)
    assert "src" in told["title"]
    assert ask("tell", text=text, at=0) == {}


def test_what_fusion_made_is_drawn() -> None:
    made = ask_first("report", RELU)
    assert made["svg"].startswith("<svg")
    assert "InputGradientTensor" in made["text"]


# Runs -----------------------------------------------------------------------------------------


def test_results_are_held_to_the_reference() -> None:
    plan = ask_first("plan", RELU, device=DEVICE, seed=3)
    given = [np.frombuffer(base64.b64decode(plan["uploads"][name]), np.float32)
             for name in ("InputTensor", "InputGradientTensor")]  # fmt: skip
    right = np.where(given[0] > 0, given[1], np.float32(0))
    assert right.size == compiler.COUNT

    def judge(values: np.ndarray[Any, Any]) -> dict[str, Any]:
        results = {"OutputGradientTensor": base64.b64encode(values.tobytes()).decode()}
        (found,) = ask("judge", results=results)["results"]
        return found

    assert judge(right)["within"]
    wrong = right.copy()
    wrong[77] += 1
    found = judge(wrong)
    assert not found["within"]
    assert found["first"] == 77
    assert found["actual"][0] != found["expected"][0]
    assert judge(right)["within"]


@pytest.mark.parametrize("start", ["Rows of any number", "A graph: backward"])
def test_a_plan_computes_what_it_is_held_to(start: str) -> None:
    """It is run here as the page runs it, buffer by buffer."""
    example = next(e for e in compiler.describe()["examples"] if e["title"].startswith(start))
    context = open_context(wgpu.find_device())
    gpu, package = context.handle, context.package
    plan = ask_first("plan", example, device=DEVICE)
    usage = package.BufferUsage
    kinds = {True: "storage", False: "read-only-storage"}
    buffers = {
        name: gpu.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        for name, size in plan["buffers"].items()
    }
    for name, text in plan["uploads"].items():
        gpu.queue.write_buffer(buffers[name], 0, base64.b64decode(text))
    pipelines: list[tuple[Any, Any]] = []
    for kernel in plan["kernels"]:
        types = [kinds[written] for written in kernel["written"]]
        types += ["uniform"] if kernel["has_constants"] else []
        layout = gpu.create_bind_group_layout(entries=[
            {"binding": n, "visibility": package.ShaderStage.COMPUTE, "buffer": {"type": t}}
            for n, t in enumerate(types)
        ])  # fmt: skip
        module = gpu.create_shader_module(code=kernel["source"])
        pipelines.append((layout, gpu.create_compute_pipeline(
            layout=gpu.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": kernel["entry_point"]},
        )))  # fmt: skip
    encoder = gpu.create_command_encoder()
    steps = encoder.begin_compute_pass()
    for launch in plan["launches"]:
        layout, pipeline = pipelines[launch["kernel"]]
        bound = [buffers[name] for name in launch["buffers"]]
        if plan["kernels"][launch["kernel"]]["has_constants"]:
            block = base64.b64decode(launch["constants"])
            bound.append(gpu.create_buffer_with_data(data=block, usage=usage.UNIFORM))
        entries = [{"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                   for n, b in enumerate(bound)]  # fmt: skip
        steps.set_pipeline(pipeline)
        steps.set_bind_group(0, gpu.create_bind_group(layout=layout, entries=entries))
        steps.dispatch_workgroups(*launch["groups"])
    steps.end()
    gpu.queue.submit([encoder.finish()])
    results = {
        name: base64.b64encode(bytes(gpu.queue.read_buffer(buffers[name]))[:size]).decode()
        for name, size in plan["downloads"].items()
    }
    judged = ask("judge", results=results)["results"]
    assert judged
    assert [each["said"] for each in judged if not each["within"]] == []


def test_a_run_that_is_too_long_is_refused() -> None:
    text = SOFTSIGN.replace("scr", "src")
    (found,) = ask_first("plan", {"text": text}, device=DEVICE,
                         tensors="src=FLOAT32[65536,65536]")["diagnostics"]  # fmt: skip
    assert "4,294,967,296 elements" in found["message"]


def test_a_limit_of_the_device_is_named() -> None:
    small = DEVICE | {"limits": DEVICE["limits"] | {"maxComputeInvocationsPerWorkgroup": 64}}
    (found,) = ask_first("plan", RELU, device=small)["diagnostics"]
    assert "maxComputeInvocationsPerWorkgroup" in found["message"]
    assert "a browser's allows 64" in found["message"]


def test_the_version_is_the_program_s() -> None:
    assert compiler.describe()["version"] == dmlc.__version__
