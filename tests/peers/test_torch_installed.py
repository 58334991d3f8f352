"""A wheel of dmlc in a new environment, beside the oldest and the newest PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from docs import build
from tests.test_documents import NEED_TORCH

SCRIPT = Path(__file__).with_name("installed.py")
EXTRAS = tomllib.loads((build.ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
ENVIRONMENTS = {"peers": Path(sys.prefix), "newest": Path(sys.prefix) / "newest"}
"""By the extra that names its PyTorch, the environment that `make test-peers` installs it into."""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, without this session's PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "-w", folder, build.ROOT, cwd=folder)
    (found,) = folder.glob("dmlc-*.whl")
    return found


def find_pin(extra: str) -> str:
    """The version of PyTorch that an extra names."""
    (pin,) = (each for each in EXTRAS[extra] if each.startswith("torch=="))
    return pin.removeprefix("torch==")


def test_the_oldest_version_is_the_one_that_is_declared() -> None:
    assert find_pin("peers").startswith(EXTRAS["torch"][0].removeprefix("torch>="))
    assert find_pin("newest") != find_pin("peers")


@pytest.mark.parametrize("extra", ENVIRONMENTS)
def test_pytorch_finds_an_installed_dmlc(extra: str, wheel: Path, tmp_path: Path) -> None:
    """By its name, whatever was imported before; and the page's first lines hold."""
    base = ENVIRONMENTS[extra]
    assert (base / "bin/python").exists(), f"{base} is missing: run `make test-peers`"
    new = tmp_path / "new"
    venv.create(new, with_pip=False, symlinks=True)
    # PyTorch is too large to be copied. What is in the new environment itself comes first.
    inside = Path("lib") / Path(sysconfig.get_path("purelib")).parent.name / "site-packages"
    (new / inside / "base.pth").write_text(f"{base / inside}\n")
    python = new / "bin/python"
    pip("--python", python, "install", "--no-deps", "--ignore-installed", wheel, cwd=tmp_path)
    pip("--python", python, "install", "dmlc[torch]", cwd=tmp_path)
    page = build.ROOT / NEED_TORCH[0]
    printed = run(python, SCRIPT, page, cwd=tmp_path)
    assert printed.splitlines() == [f"{find_pin(extra)} {new / inside / 'dmlc'}"], printed
