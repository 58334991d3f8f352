"""What a person, CI and pre-commit run are the same targets."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import dmlc
from dmlc.program import VERSION

ROOT = Path(__file__).resolve().parent.parent
TARGETS = [
    "help", "setup", "demo", "test", "test-all", "roots", "d3d12", "coverage", "fuzz", "mutants",
    "operators", "directml", "onnx", "onnx-export", "test-peers", "mlir", "lint", "format", "types",
    "golden", "corpus", "bench", "models", "docs", "site", "explorer", "vscode", "clean",
]  # fmt: skip


def test_help_lists_the_targets() -> None:
    done = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )  # fmt: skip
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["make", target] for target in TARGETS]
    assert all(len(line) == 3 for line in lines)


def test_ci_and_pre_commit_run_targets() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    used = re.findall(r"^make (.+)$", script.read_text("utf-8"), re.MULTILINE)
    words = [word for word in " ".join(used).split() if not word.startswith("-")]
    assert words == ["test", "test-peers", "lint", "types", "site"]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    entries = re.findall(r"entry: make (\S+)", hooks)
    assert entries
    assert set(entries) <= set(TARGETS)


def test_the_wheel_takes_the_data_folders_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"grammar": "dmlc/grammar", "templates": "dmlc/templates"}
    assert all((ROOT / name).is_dir() for name in included)


def test_there_is_one_version() -> None:
    assert dmlc.__version__ == VERSION
