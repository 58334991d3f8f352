"""Host code for Vulkan: it is compiled without a warning, and gives what the reference gives.

They run where a compiler is at hand: Mono's of C#, and Rust's from 1.82 on.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc, ir
from dmlc.interop.host_names import Names
from dmlc.interop.host_program import describe_program
from dmlc.interop.vulkan_hosts import LANGUAGES, write_hosts
from dmlc.pipeline import Steps, compile_by
from dmlc.program import Dispatch, Program
from dmlc.reference import evaluate
from dmlc.runtime.hlsl import compile_files
from dmlc.runtime.instructions import LAVAPIPE
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from dmlc.testing.fill import draw_values
from tests.interop.d3d12 import programs
from tests.open_sizes import SUBJECTS

_RUST = """
#![allow(non_snake_case)]
mod dmlc_vulkan;
{modules}

fn read(name: &str) -> Vec<u8> {{
    std::fs::read(name).unwrap()
}}

fn main() {{
    let host = dmlc_vulkan::Host::open("").unwrap();
{runs}
}}
"""
_RUST_RUN = """
    let program = host.load(&{name}::PROGRAM, std::path::Path::new(".")).unwrap();
    let inputs: Vec<Vec<u8>> = (0..{inputs}).map(|k| read(&format!("{tag}.in{{k}}"))).collect();
    let given: Vec<&[u8]> = inputs.iter().map(|each| each.as_slice()).collect();
    match program.run(&{name}::Sizes {{ {sizes} }}, &given) {{
        Ok(found) => {{
            for (k, each) in found.iter().enumerate() {{
                std::fs::write(format!("{tag}.out{{k}}"), each).unwrap();
            }}
        }}
        Err(said) => std::fs::write("{tag}.error", said).unwrap(),
    }}
"""
_CSHARP = """
using System.IO;
using Dmlc;
using Dmlc.Programs;

public static class Start
{{
    public static void Main()
    {{
        using (var host = new Host())
        {{
{runs}
        }}
    }}
}}
"""
_CSHARP_RUN = """
    using (var pipelines = host.Load({name}.Kernels, "."))
    {{
        var inputs = new byte[{inputs}][];
        for (int k = 0; k < inputs.Length; ++k)
        {{
            inputs[k] = File.ReadAllBytes("{tag}.in" + k);
        }}
        try
        {{
            byte[][] found = host.Run({name}.At(new {name}.Sizes {{ {sizes} }}), pipelines, inputs);
            for (int k = 0; k < found.Length; ++k)
            {{
                File.WriteAllBytes("{tag}.out" + k, found[k]);
            }}
        }}
        catch (DmlcException error)
        {{
            File.WriteAllText("{tag}.error", error.Message);
        }}
    }}
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """A program at certain sizes."""

    open: ir.Function
    fixed: ir.Function
    sizes: Mapping[str, int]


def list_runs() -> list[Run]:
    """The four operators of a ReLU and its gradient; versions for some sizes, loops, constants,
    scratch, and elements of 8 and 16 bits."""
    made: list[Run] = []
    for name, inputs in programs.SEEDS:
        function = dmlc.operator(name).bind(dict.fromkeys(inputs.split(), TensorDesc("FLOAT32")))
        given = dict.fromkeys(inputs.split(), programs.tensor("FLOAT32", 7, 11))
        made.append(Run(function, dmlc.operator(name).bind(given), {"n": 77}))
    for name, sizes in (("softmax", {"R": 3, "C": 70_001}), ("gemm", {"M": 70, "N": 17, "K": 33})):
        made.append(Run(SUBJECTS[name].bind(), SUBJECTS[name].bind(sizes), sizes))
    tensor = programs.tensor
    loop = [programs.read_text(programs.LOOP, X=tensor("FLOAT32", *sizes))
            for sizes in (("T", 5), (7, 5))]  # fmt: skip
    made.append(Run(*loop, {"T": 7}))
    images = {programs.X: (1, 2, 50, 30), programs.Y: (1, 2, 65, 21)}
    resample = {name: tensor("FLOAT32", *sizes) for name, sizes in images.items()}
    add = dict.fromkeys(("ATensor", "BTensor"), tensor("FLOAT16", 37))
    bytes_ = {"ATensor": tensor("INT8", 1, 1, 20, 30), "BTensor": tensor("INT8", 1, 1, 30, 17)}
    fixed = [
        dmlc.operator("directml.RESAMPLE").bind(
            resample, {"InterpolationMode": "LINEAR", "Scales": [1, 1, 1.3, 0.7]}
        ),
        dmlc.operator("directml.ELEMENT_WISE_ADD").bind(add),
        dmlc.operator("directml.MATRIX_MULTIPLY_INTEGER").bind(bytes_),
        programs.read_text(programs.CHAIN, X=tensor("FLOAT32", 40, 40)),
    ]
    return made + [Run(function, function, {}) for function in fixed]


def draw(run: Run, seed: int) -> dict[str, Array]:
    """Arrays for a function's parameters."""
    random = np.random.default_rng(seed)
    return {
        p.name: draw_values(TensorDesc(p.dtype, p.extents), "random", random)
        for p in run.fixed.parameters
    }


def find_rust() -> str | None:
    """A compiler of Rust that is new enough."""
    found = shutil.which("rustc")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    assert version is not None
    return found if (int(version[1]), int(version[2])) >= (1, 82) else None


def write_rust(folder: Path, names: Sequence[str], runs: str) -> tuple[str, ...]:
    modules = "\n".join(f"mod {name};" for name in names)
    (folder / "main.rs").write_text(_RUST.format(modules=modules, runs=runs), "utf-8")
    run_command("rustc", "--edition", "2021", "-D", "warnings", "main.rs", "-o", "main", cwd=folder)
    return ("./main",)


def write_csharp(folder: Path, names: Sequence[str], runs: str) -> tuple[str, ...]:
    (folder / "Start.cs").write_text(_CSHARP.format(runs=runs), "utf-8")
    files = ["Start.cs", "DmlcVulkan.cs", *(f"{name}.cs" for name in names)]
    run_command("mcs", "-warnaserror", "-warn:4", "-out:main.exe", *files, cwd=folder)
    return ("mono", "main.exe")


def run_command(*command: str, cwd: Path) -> str:
    """What a command prints, with the validation of Vulkan's calls and of barriers."""
    environment = {**os.environ, **VALIDATED, LAVAPIPE.variable: LAVAPIPE.value}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stderr or done.stdout)[-4000:]
    return done.stdout + done.stderr


VALIDATED = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/vulkan"
HOSTS = {"csharp": (write_csharp, _CSHARP_RUN), "rust": (write_rust, _RUST_RUN)}
AT_HAND = [*(["csharp"] if shutil.which("mcs") else []), *(["rust"] if find_rust() else [])]


@pytest.fixture(scope="module")
def compiled() -> list[tuple[Run, Program, Mapping[str, bytes]]]:
    # Steps of a loop are launches, as those of a large one are.
    apart = Steps(joins=False)
    made = [(run, compile_by(apart, run.open, "hlsl")) for run in list_runs()]
    return [(run, program, compile_files(program)) for run, program in made]


@pytest.mark.parametrize("host", AT_HAND)
def test_hosts_give_what_the_reference_gives(
    host: str, compiled: Sequence[tuple[Run, Program, Mapping[str, bytes]]], tmp_path: Path
) -> None:
    build, template = HOSTS[host]
    suffix = LANGUAGES[host].suffix
    texts: list[str] = []
    names: list[str] = []
    for number, (run, program, files) in enumerate(compiled):
        written = write_hosts(program, host, files)
        for name, text in written.items():
            (tmp_path / name).write_text(text, "utf-8")
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        names.append(next(iter(written)).removesuffix(suffix))
        for place, array in enumerate(draw(run, number).values()):
            (tmp_path / f"run{number}.in{place}").write_bytes(array.tobytes())
        spelled = ": " if host == "rust" else " = "
        sizes = ", ".join(f"{name}{spelled}{value}" for name, value in run.sizes.items())
        count = len(run.fixed.parameters)
        texts.append(template.format(name=names[-1], tag=f"run{number}", inputs=count, sizes=sizes))
    # One without its inputs.
    texts.append(template.format(name=names[0], tag="wrong", inputs=0, sizes=sizes_of(host, 3)))
    said = run_command(*build(tmp_path, names, "\n".join(texts)), cwd=tmp_path)
    assert re.findall(r"Validation Error.*|SYNC-HAZARD.*|VUID-.*", said) == []
    assert "has 1 inputs, and 0 are given" in (tmp_path / "wrong.error").read_text("utf-8")
    for number, (run, program, _) in enumerate(compiled):
        wanted = evaluate(run.fixed, draw(run, number))
        for place, tensor in enumerate(program.outputs):
            expected = wanted[tensor.name]
            content = (tmp_path / f"run{number}.out{place}").read_bytes()
            found = np.frombuffer(content, expected.dtype).reshape(expected.shape)
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=1e-3, atol=1e-3,
                err_msg=program.name,
            )  # fmt: skip


def sizes_of(host: str, count: int) -> str:
    return f"n{': ' if host == 'rust' else ' = '}{count}"


@pytest.mark.parametrize("host", AT_HAND)
def test_the_examples(host: str, tmp_path: Path) -> None:
    program = dmlc.compile("directml.ACTIVATION_RELU_GRAD", "hlsl")
    files = compile_files(program)
    texts = {name: text.encode() for name, text in write_hosts(program, host, files).items()}
    for name, content in {**files, **texts}.items():
        (tmp_path / name).write_bytes(content)
    main = {"rust": "main.rs", "csharp": "Main.cs"}[host]
    (tmp_path / main).write_bytes((EXAMPLES / main).read_bytes())
    if host == "rust":
        run_command("rustc", "--edition", "2021", "-D", "warnings", main, cwd=tmp_path)
        said = run_command("./main", cwd=tmp_path)
    else:
        run_command("mcs", "-warnaserror", "-out:main.exe", main, *texts, cwd=tmp_path)
        said = run_command("mono", "main.exe", cwd=tmp_path)
    assert said.startswith("0 0 7 8 on ")
    # A shader of another kernel is refused, by its name.
    (shader,) = tmp_path.glob("*.spv")
    shader.write_bytes(shader.read_bytes() + bytes(4))
    with pytest.raises(AssertionError, match="the SPIR-V of ACTIVATION_RELU_GRAD is not the one"):
        run_command(*(["./main"] if host == "rust" else ["mono", "main.exe"]), cwd=tmp_path)


def test_only_hlsl_has_such_hosts() -> None:
    program = dmlc.compile("directml.ACTIVATION_RELU", "opencl")
    with pytest.raises(UnsupportedError, match=r"C# for Vulkan runs SPIR-V, which is made of HLSL"):
        write_hosts(program, "csharp")


@pytest.mark.parametrize("host", LANGUAGES)
def test_names_that_a_language_keeps(host: str) -> None:
    text = programs.NAMES.replace("operator class", "operator match").replace("OUT ", "base")
    text = text.replace("OUT[", "base[")
    lines = dict.fromkeys(("min", "base", "sizes", "class_"), programs.tensor("FLOAT32", "while"))
    function = programs.read_text(text, **lines)
    written = write_hosts(dmlc.compile(function, "hlsl"), host)
    name = next(iter(written))
    assert name == {"rust": "match_.rs", "csharp": "match.cs"}[host]
    assert re.search(r"\bwhile_\b", written[name])
    assert not re.search(r"\bwhile\b(?! \()", re.sub(r"//.*", "", written[name]))


def test_choices_are_spelled_wherever_they_stand() -> None:
    function = programs.read_text(programs.CHAIN, X=programs.tensor("FLOAT32", "N", "N"))
    program = dmlc.compile(function, "hlsl")
    rust, csharp = (Names(program, LANGUAGES[host].spelling) for host in ("rust", "csharp"))
    text = "(N + 1) * (N / 2 + (N < 9 ? (N != 3 ? 1 : 2 * N) : 2)) / 4"
    assert rust.spell_size(text) == (
        "(sizes.N + 1) * (sizes.N / 2 + (if sizes.N < 9 { (if sizes.N != 3 { 1 } else "
        "{ 2 * sizes.N }) } else { 2 })) / 4"
    )
    assert csharp.spell_size("4 * (N < 9 ? 1 : N)") == "4UL * (sizes.N < 9UL ? 1UL : sizes.N)"


def test_what_is_left_out_of_a_step_leaves_its_wait_to_the_next() -> None:
    """All kernels of a step up to the first that has groups at every size wait for the step
    before: any of them may be the first to run."""
    function = programs.read_text(programs.LOOP, X=programs.tensor("FLOAT32", "T", "C"))
    program = compile_by(Steps(joins=False), function, "hlsl")
    (repeat,) = program.repeats
    alone = tuple(
        dataclasses.replace(kernel, after=()) if repeat.first <= number <= repeat.last else kernel
        for number, kernel in enumerate(program.kernels)
    )
    for host in LANGUAGES:
        names = Names(program, LANGUAGES[host].spelling)
        made = dataclasses.replace(program, kernels=alone)
        step = next(p for p in describe_program(made, names, {})["parts"] if p.steps)
        kernels = [program.kernels[launch.kernel] for launch in step.launches]
        assert all(kernel.dispatch.is_chosen for kernel in kernels)
        assert all(launch.waits for launch in step.launches)
        fixed = dataclasses.replace(kernels[0], dispatch=Dispatch(1, 1, 1), after=())
        made = dataclasses.replace(program, kernels=(fixed, *alone[1:]))
        step = next(p for p in describe_program(made, names, {})["parts"] if p.steps)
        assert [launch.waits for launch in step.launches[:2]] == [True, False]
