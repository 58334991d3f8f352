"""The Python side of the explorer: requests of the page as JSON, and answers as JSON.

The page runs this module in Pyodide, in a Web Worker; the tests run it in CPython. It compiles as
`dmlc compile` does, from the same words: `--tensor`, `--attr` and `--dim` are read by the same
functions. It plans a run by WebGPU as `dmlc.runtime.wgpu` does; the page makes the buffers, and
sends back the bytes that the kernels stored.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

import dmlc
from dmlc.binding.tensors import TensorDesc
from dmlc.catalog import load
from dmlc.cli.arguments import Bindings
from dmlc.codegen.target import Target
from dmlc.codegen.targets import TARGETS, find_target
from dmlc.diagnostics import explain as explain_code
from dmlc.editor import complete, hover
from dmlc.editor.documents import Document, Session
from dmlc.editor.positions import Encoding
from dmlc.ir import Function
from dmlc.ir.specialize import specialize
from dmlc.kernel.target import PROFILES
from dmlc.language.builtins import FACTS, FUNCTIONS, REDUCTIONS
from dmlc.oracle import find_expected, find_work, shorten
from dmlc.picture import draw
from dmlc.pipeline import compile as compile_function
from dmlc.pipeline import explain
from dmlc.program import Program, Role
from dmlc.runtime.arrays import as_bytes, constant_array, is_loaded, tensor_bytes
from dmlc.runtime.copied import Window, list_launches
from dmlc.runtime.placement import Placement, place, read_call
from dmlc.runtime.wgpu.device import DeviceType, Limits, WgpuDevice
from dmlc.runtime.wgpu.plan import buffer_bytes, check_program, plan_windows
from dmlc.scalars import Array, data_type_names
from dmlc.shader_model import SHADER_MODELS
from dmlc.sizes import evaluate_size
from dmlc.source import Diagnostic, DmlcError, Span, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict
from dmlc.testing.fill import draw_values

ROOT = Path(__file__).resolve().parents[2]
NAME = "operator.dml"
"""The name of the file that the page's text is, in messages and on the command line."""
Request = Mapping[str, Any]
Answer = dict[str, Any]

OPEN_SIZE = 37
"""What a run takes for a size that is left open: small, and no multiple of any group's size."""
COUNT = 4099
"""What a run takes for the number of elements where that alone is open."""
MOST_ELEMENTS = 1 << 24
"""The most that a tensor may have in a run, stages between kernels included."""
MOST_WORK = 1 << 29
"""The most instructions that the reference evaluates, over all points."""
_SHOWN = 8
"""How many values of each result are shown."""

EXAMPLES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("ReLU, gradient (DirectML)", "examples/relu_grad.dml", {}),
    ("Hard swish", "examples/hard_swish.dml", {}),
    ("Hard swish, derived gradient", "examples/hard_swish_grad.dml", {}),
    ("GELU", "examples/gelu.dml", {}),
    ("SwiGLU", "examples/swiglu.dml", {"tensors": "src=FLOAT32[64,512]"}),
    ("RMS normalization", "examples/rms_norm.dml",
     {"tensors": "src=FLOAT32[256,1024] gamma=FLOAT32[1024]"}),
    ("Rows of any number: RMS normalization", "examples/rms_norm.dml",
     {"tensors": "src=FLOAT32[rows,1024] gamma=FLOAT32[1024]"}),
    ("Mean over windows", "examples/window_mean.dml",
     {"tensors": "src=FLOAT32[16,1000]", "attributes": "reach=0,2"}),
    ("Bicubic interpolation", "examples/bicubic.dml",
     {"tensors": "src=FLOAT32[32,32]", "attributes": "Scales=2,2"}),
    ("A graph: backward pass of a residual block", "examples/graphs/residual_block_backward.dml",
     {"dims": "N=2 C=8 H=14 W=14"}),
    ("A graph: gradient of softmax and cross entropy",
     "examples/graphs/softmax_cross_entropy_backward.dml", {"dims": "N=32 K=100"}),
    ("Mistakes, and what is said of them", "examples/mistakes.dml", {}),
)  # fmt: skip
"""A title, a file of the repository, and what it is bound with."""


def answer(request: str) -> str:
    """The answer to a request, both JSON. A request has a `kind` of `KINDS`; an answer has either
    its fields, or the `diagnostics` of what is wrong."""
    asked: Request = json.loads(request)
    try:
        found = KINDS[asked["kind"]](asked)
    except click.ClickException as error:
        found = _refusal(error.format_message())
    except DmlcError as error:
        found = {"diagnostics": _describe_all(error.diagnostics, asked.get("text", ""))}
    return json.dumps(found)


def describe(_: Request | None = None) -> Answer:
    """What the page offers: examples, targets, profiles, and the words that it colours."""
    return {
        "version": dmlc.__version__,
        "file": NAME,
        "targets": [{"name": t.name, "title": t.language.title} for t in TARGETS],
        "profiles": [p.name for p in PROFILES],
        "shader_models": list(SHADER_MODELS),
        "examples": [
            {"title": title, "text": (ROOT / path).read_text("utf-8"), **options}
            for title, path, options in EXAMPLES
        ],
        "words": {
            "types": list(data_type_names()),
            "functions": [*REDUCTIONS, *FUNCTIONS],
            "facts": list(FACTS),
        },
    }


# Compiling ------------------------------------------------------------------------------------


def check(request: Request) -> Answer:
    """What is wrong with `text`, or may well be, and the operators and graphs that it has."""
    module = load(_write(request["text"]))
    subjects = [*module.graphs.values(), *module.operators.values()]
    own = [s for s in subjects if s.definition.syntax.span.source.text == request["text"]]
    return {
        "diagnostics": _describe_all(module.diagnostics, request["text"]),
        "subjects": [s.definition.short_name for s in own],
    }


def compile(request: Request) -> Answer:
    """The files that `dmlc compile` writes for a `subject` of `text`, for each target. `tensors`,
    `attributes` and `dims` are as on the command line, with blanks between; `profile` and
    `shader_model` may be empty for what is usual. A target that cannot express it says so."""
    function, text = _bind(request), request["text"]
    found: dict[str, Answer] = {}
    warnings: dict[Diagnostic, None] = {}
    for target in TARGETS:
        try:
            program = _compile(function, target.name, request)
        except DmlcError as error:
            found[target.name] = {"refused": str(error)}
            continue
        warnings |= dict.fromkeys(program.warnings)
        files = {name: source.decode() for name, source in program.list_files().items()}
        found[target.name] = {"files": files, "command": _show_command(request, target)}
    return {"programs": found, "diagnostics": _describe_all(tuple(warnings), text)}


def report(request: Request) -> Answer:
    """What fusion made of a subject: a picture as SVG, and the same as text."""
    made = explain(_bind(request), TARGETS[0].name, request.get("profile") or None)
    return {"svg": draw(made, "svg"), "text": draw(made, "text")}


def _write(text: str) -> Path:
    path = _folder() / NAME
    path.write_text(text, "utf-8")
    return path


_folders: list[Path] = []


def _folder() -> Path:
    if not _folders:
        _folders.append(Path(tempfile.mkdtemp(prefix="explorer-")))
    return _folders[0]


def _bind(request: Request) -> Function:
    path = _write(request["text"])
    options = (tuple(_split(request.get(name, ""))) for name in ("tensors", "attributes", "dims"))
    return Bindings(*options, folders=()).bind(f"{path}:{request['subject']}")


def _compile(function: Function, target: str, request: Request) -> Program:
    model = request.get("shader_model") or None
    return compile_function(
        function,
        target,
        request.get("profile") or None,
        shader_model=model if find_target(target).shader_models else None,
    )


def _split(text: str) -> list[str]:
    """Options with blanks between; brackets may have blanks inside."""
    return re.findall(r"(?:\[[^\]]*\]?|\{[^}]*\}?|[^\s\[{])+", text)


def _show_command(request: Request, target: Target) -> str:
    """The command that writes the same files."""
    words = ["dmlc", "compile", f"{NAME}:{request['subject']}", "--target", target.name]
    options = (("tensors", "--tensor"), ("attributes", "--attr"), ("dims", "--dim"))
    for name, option in options:
        for each in _split(request.get(name, "")):
            words += [option, re.sub(r"\s", "", each)]
    if request.get("profile"):
        words += ["--profile", request["profile"]]
    model = request.get("shader_model", "")
    if target.shader_models and model not in ("", SHADER_MODELS[0]):
        words += ["--shader-model", model]
    return shlex.join([*words, "-o", "out"])


# Diagnostics ----------------------------------------------------------------------------------


def _refusal(message: str) -> Answer:
    return {"diagnostics": [_describe(Diagnostic(message), "")]}


def _describe_all(found: tuple[Diagnostic, ...], text: str) -> list[Answer]:
    return [_describe(diagnostic, text) for diagnostic in found]


def _describe(found: Diagnostic, text: str) -> Answer:
    """A diagnostic as the page shows it; places count UTF-16 code units, as JavaScript does."""
    return {
        "message": found.message,
        "severity": "warning" if found.warning else "error",
        "code": found.code,
        "place": _place(found.span, text),
        "notes": [{"message": n.message, "place": _place(n.span, text)} for n in found.notes],
    }


def _place(span: Span | None, text: str) -> list[int] | None:
    """Where a span begins and ends; None for what is no place of the text."""
    if span is None or span.source.text != text:
        return None
    end = max(span.end, min(span.start + 1, len(text)))
    return [Encoding.UTF16.width(text[:offset]) for offset in (span.start, end)]


def explain_diagnostic(request: Request) -> Answer:
    """What `dmlc explain` says of the `code` of a diagnostic."""
    return {"text": explain_code(request["code"]).text}


# Help while typing ----------------------------------------------------------------------------


def suggest(request: Request) -> Answer:
    """What may be written at the place `at` of `text`, the most likely first."""
    document, offset = _open(request)
    found = complete.complete(document, offset)
    start = found[0].start if found else offset
    return {
        "from": Encoding.UTF16.width(request["text"][:start]),
        "options": [
            {"label": c.label, "detail": c.detail, "apply": c.text}
            for c in found
            if c.start == start
        ],
    }


def tell(request: Request) -> Answer:
    """What is known of the word at the place `at` of `text`; empty where that is nothing."""
    document, offset = _open(request)
    found = hover.hover(document, offset)
    if found is None:
        return {}
    text = request["text"]
    place = [Encoding.UTF16.width(text[:each]) for each in (found.start, found.end)]
    return {"title": found.title, "facts": list(found.facts), "code": list(found.code),
            "place": place}  # fmt: skip


def _open(request: Request) -> tuple[Document, int]:
    text = request["text"]
    document = Session().open(str(_folder() / NAME), text)
    units = text.encode("utf-16-le")[: 2 * request["at"]]
    return document, len(units.decode("utf-16-le", "ignore"))


# Runs by WebGPU -------------------------------------------------------------------------------


class _Run:
    """A run that the page is to do, and what its results are held to."""

    def __init__(self, request: Request) -> None:
        self.device = read_device(request["device"])
        self.function = _bind(request)
        counted = self.function.run_symbol()
        sizes = {s: COUNT if s == counted else OPEN_SIZE for s in self.function.symbols()}
        _refuse_long(specialize(self.function, sizes))
        self.program = _compile(self.function, "wgsl", request)
        check_program(self.program, self.device)
        random = np.random.default_rng(request.get("seed", 1))
        self.inputs: dict[str, Array] = {}
        for spec in self.program.inputs:
            shape = tuple(evaluate_size(e, sizes) for e in spec.extents)
            desc = TensorDesc(spec.dtype, shape, spec.strides)
            self.inputs[spec.name] = draw_values(desc, "random", random)
        outputs: dict[str, Any] = {}
        if not self.inputs:
            outputs = {o.name: tuple(evaluate_size(e, sizes) for e in o.extents)
                       for o in self.program.outputs}  # fmt: skip
        call = read_call([s.name for s in self.program.inputs], self.inputs, outputs)
        self.placement: Placement = place(self.program, call, gaps=False)
        self.windows = plan_windows(self.program, self.placement.sizes, self.device)
        for spec in self.program.inputs:
            self.placement.operands[spec.name].load()

    def plan(self) -> Answer:
        """The buffers to make, and the launches in order."""
        program = self.program
        homes = program.scratch_homes()
        sizes = {t.name: tensor_bytes(t, self.placement.sizes) for t in program.tensors}
        buffers = {
            name: buffer_bytes(sizes[name])
            for name in dict.fromkeys(homes.get(t.name, t.name) for t in program.tensors)
        }
        return {
            "kernels": [
                {
                    "name": kernel.name,
                    "entry_point": kernel.entry_point,
                    "source": kernel.source,
                    "written": [b.written for b in kernel.buffers],
                    "has_constants": bool(kernel.scalars),
                }
                for kernel in program.kernels
            ],
            "buffers": buffers,
            "uploads": {
                spec.name: _encode(as_bytes(self.memory_of(spec.name)))
                for spec in program.tensors
                if sizes[spec.name] and (is_loaded(spec) or spec.role is Role.CONSTANT)
            },
            "launches": [
                launch for window in self.windows for launch in self.list_launches(window, homes)
            ],
            "downloads": {o.name: sizes[o.name] for o in program.outputs if sizes[o.name]},
            "sizes": self.placement.sizes,
        }  # fmt: skip

    def memory_of(self, name: str) -> Array:
        spec = self.program.tensor(name)
        constant = spec.role is Role.CONSTANT
        return constant_array(spec) if constant else self.placement.operands[name].memory

    def list_launches(self, window: Window, homes: Mapping[str, str]) -> list[Answer]:
        return [
            {
                "kernel": launch.kernel,
                "buffers": [homes.get(b.tensor, b.tensor)
                            for b in self.program.kernels[launch.kernel].buffers],
                "groups": list(launch.groups),
                "constants": base64.b64encode(launch.constants).decode(),
            }
            for launch in list_launches(self.program, window.sizes)
        ]  # fmt: skip

    def judge(self, results: Mapping[str, str]) -> Answer:
        """Holds the bytes of each result to the reference."""
        for spec in self.program.outputs:
            operand = self.placement.operands[spec.name]
            if spec.name in results:
                memory = as_bytes(operand.memory)
                found = np.frombuffer(base64.b64decode(results[spec.name]), np.uint8)
                memory[:] = found[: memory.size]
            operand.store()
        expected = find_expected(self.function, self.inputs)
        allowed = bound_errors(self.function, self.inputs, self.device.floats)
        found = {o.name: self.placement.operands[o.name].array for o in self.program.outputs}
        return {
            "device": self.device.name,
            "sizes": self.placement.sizes,
            "results": [
                _judge_result(name, actual, expected[name], allowed[name])
                for name, actual in found.items()
            ],
        }


def _refuse_long(function: Function) -> None:
    """Raises `UnsupportedError` for what a person would wait for: the reference is NumPy, in
    WebAssembly."""
    tensors = (*function.parameters, *function.stages)
    elements = max(math.prod(e for e in t.extents if isinstance(e, int)) for t in tensors)
    work = find_work(shorten(function))
    for have, most, what in (
        (elements, MOST_ELEMENTS, "elements in its largest tensor"),
        (work, MOST_WORK, "instructions to evaluate"),
    ):
        if have > most:
            raise UnsupportedError(
                f"the reference takes too long for this run: {have:,} {what}, and the most is "
                f"{most:,} in a browser",
                notes=["give smaller sizes; dmlc run has no such limit"],
            )


def _judge_result(name: str, actual: Array, expected: Array, allowed: Array) -> Answer:
    verdict = Verdict.of(actual, expected, allowed)
    first = 0
    if verdict.worst is not None and not verdict.holds:
        first = int(np.ravel_multi_index(verdict.worst, actual.shape))
    stretch = slice(first, first + _SHOWN)
    return {
        "name": name,
        "sizes": list(actual.shape),
        "within": verdict.holds,
        "said": str(verdict),
        "first": first,
        "actual": [str(v) for v in actual.ravel()[stretch]],
        "expected": [str(v) for v in expected.ravel()[stretch]],
    }


def _encode(memory: Array) -> str:
    """Bytes as whole words, in base 64."""
    return base64.b64encode(memory.tobytes() + bytes(-memory.size % 4)).decode()


def read_device(given: Request) -> WgpuDevice:
    """A browser's device as the runtime describes its own: `limits` are WebGPU's, by its names."""
    limits = given["limits"]
    return WgpuDevice(
        index=0,
        name=given["name"],
        type=DeviceType.OTHER,
        backend="a browser",
        driver=given["name"],
        limits=Limits(
            groups=limits["maxComputeWorkgroupsPerDimension"],
            group_size=limits["maxComputeInvocationsPerWorkgroup"],
            group_shared=limits["maxComputeWorkgroupStorageSize"],
            storage_buffers=limits["maxStorageBuffersPerShaderStage"],
            storage_range=limits["maxStorageBufferBindingSize"],
            uniform_range=limits["maxUniformBufferBindingSize"],
            buffer=limits["maxBufferSize"],
        ),
        float16="shader-f16" in given["features"],
    )


_runs: list[_Run] = []
"""The run that was planned last."""


def plan(request: Request) -> Answer:
    """A run of a subject on random numbers: what the page uploads, launches and reads back on the
    `device`. The numbers are drawn from `seed`; sizes that are open get `OPEN_SIZE`, and `COUNT`
    elements."""
    _runs[:] = [_Run(request)]
    return _runs[0].plan()


def judge(request: Request) -> Answer:
    """Whether the `results` of the run that was planned last, each in base 64, are right."""
    return _runs[0].judge(request["results"])


KINDS: Mapping[str, Callable[[Request], Answer]] = {
    "describe": describe,
    "check": check,
    "compile": compile,
    "report": report,
    "explain": explain_diagnostic,
    "suggest": suggest,
    "tell": tell,
    "plan": plan,
    "judge": judge,
}
"""What the page may ask."""
