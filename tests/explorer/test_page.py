"""What the page and its module say to each other, and what the archive for the browser holds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.explorer import build, compiler
from tests.explorer.test_compiler import DEVICE, RELU, ask, ask_first

HERE = build.HERE
MAIN, GPU, EDITOR, HTML = (
    (HERE / name).read_text("utf-8") for name in ("main.js", "gpu.js", "editor.js", "index.html")
)


def test_the_scripts_use_the_elements_that_the_page_has() -> None:
    ids = re.findall(r'\bid="(\w+)"', HTML)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'element\("(\w+)"\)', MAIN))
    assert used <= set(ids)
    assert {"editor", "viewer", "problems", "outcome"} <= used


def test_the_page_asks_what_the_module_answers() -> None:
    asked = set(re.findall(r'\bask\("(\w+)"', MAIN))
    assert asked == set(compiler.KINDS) - {"describe"}


def test_the_options_of_the_page_are_those_that_the_module_reads() -> None:
    (listed,) = re.findall(r"const OPTIONS = (\[.*\]);", MAIN)
    fields: list[str] = json.loads(listed)
    source = (HERE / "compiler.py").read_text("utf-8")
    assert all(f'"{name}"' in source for name in fields)
    assert all(set(options) <= set(fields) for _, _, options in compiler.EXAMPLES)
    assert all(f'id="{name}"' in HTML for name in fields)


def fields_of(text: str, name: str) -> set[str]:
    """The fields of a variable that a script reads."""
    return set(re.findall(rf"(?<!\")\b{name}\.([a-z_]+)\b", text))


def test_the_page_reads_fields_that_there_are() -> None:
    about = {*compiler.describe(), "numpy", "documentation"}
    assert fields_of(MAIN, "about") <= about
    assert fields_of(EDITOR, "words") <= set(compiler.describe()["words"])
    plan = ask_first("plan", RELU, device=DEVICE)
    assert fields_of(GPU, "plan") <= set(plan)
    assert fields_of(GPU, "kernel") <= set(plan["kernels"][0])
    assert fields_of(GPU, "launch") <= set(plan["launches"][0])
    taken = set(re.findall(r'limits\["(\w+)"\]', (HERE / "compiler.py").read_text("utf-8")))
    assert taken <= set(re.findall(r'"(max\w+)"', GPU))


def test_the_page_tells_what_a_result_is() -> None:
    (parameters,) = re.findall(r"function showResult\(box, \{ (.*) \}\)", MAIN)
    ask_first("plan", RELU, device=DEVICE)
    (result,) = ask("judge", results={})["results"]
    assert set(parameters.split(", ")) == set(result)


def test_every_target_has_its_colours() -> None:
    (modes,) = re.findall(r"const MODES = \{ (.*) \};", EDITOR)
    assert {m.partition(":")[0] for m in modes.split(", ")} == {
        t["name"] for t in compiler.describe()["targets"]
    }


def test_npm_installs_what_the_build_uses() -> None:
    package = json.loads((HERE / "package.json").read_text("utf-8"))
    lock = json.loads((HERE / "package-lock.json").read_text("utf-8"))
    assert lock["packages"][""]["dependencies"] == package["dependencies"]
    assert lock["packages"][""]["devDependencies"] == package["devDependencies"]
    scripts = [p.read_text("utf-8") for p in HERE.glob("*.js")]
    imported = {name for text in scripts for name in re.findall(r'from "((?:@\w+/)?[\w-]+)', text)}
    known = {*package["dependencies"], *package["devDependencies"], "node"}
    assert imported <= known


# The archive ------------------------------------------------------------------------------------


def test_the_browser_gets_no_more_than_is_needed() -> None:
    modules, others = build.list_modules()
    assert others == {"ml_dtypes", "numpy", *build.INSTALLED} - {"markupsafe"}
    places = {name.split(".")[1] for name in modules if name.startswith("dmlc.")}
    assert not places & {"torch", "onnx", "mlir", "inspection", "interop", "qualify", "pages"}


_ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
sys.modules["ml_dtypes"] = None
from docs.explorer.compiler import answer
for request in json.load(sys.stdin):
    print(answer(json.dumps(request)))
"""


def test_the_archive_is_enough(tmp_path: Path) -> None:
    """Its files, as sources, with NumPy and without any other package."""
    for name, source in build.list_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tmp_path / name)
        compiled = Path(cache_from_source(source))
        if source.suffix == ".py" and compiled.exists():  # It saves compiling each module again.
            place = Path(cache_from_source(tmp_path / name))
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, place)
    packages = Path(np.__file__).parents[1]
    for path in packages.glob("numpy*"):  # With the libraries that wheels have beside it.
        (tmp_path / path.name).symlink_to(path)
    kinds = ("compile", "report", "plan")
    fields: dict[str, Any] = {"subject": "ACTIVATION_RELU_GRAD", "device": DEVICE}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _ALONE, str(tmp_path)],
        input=json.dumps([{"kind": kind} | fields | RELU for kind in kinds]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [ask_first(kind, RELU, device=DEVICE) for kind in kinds]


def test_numpy_is_the_one_of_the_lock_file(tmp_path: Path) -> None:
    lock = {"packages": {"numpy": {"file_name": "numpy.whl", "sha256": "0" * 64}}}
    (tmp_path / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")
    (tmp_path / "other.whl").write_bytes(b"another")
    with pytest.raises(SystemExit, match=r"is not the numpy\.whl of Pyodide's lock file"):
        build.find_numpy(tmp_path, tmp_path / "other.whl")
