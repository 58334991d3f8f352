"""A wheel of dmlc in a new environment, beside the oldest and the newest PyTorch."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from docs import build
from tests.peers.installing import make_environment, pip, run
from tests.test_documents import NEED_TORCH

SCRIPT = Path(__file__).with_name("installed.py")
EXTRAS = tomllib.loads((build.ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
ENVIRONMENTS = {"peers": Path(sys.prefix), "newest": Path(sys.prefix) / "newest"}
"""By the extra that names its PyTorch, the environment that `make test-peers` installs it into."""


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
    # PyTorch is too large to be copied. What is in the new environment itself comes first.
    python, packages = make_environment(tmp_path / "new", base, wheel)
    pip("--python", python, "install", "dmlc[torch]", cwd=tmp_path)
    page = build.ROOT / NEED_TORCH[0]
    printed = run(python, SCRIPT, page, cwd=tmp_path)
    assert printed.splitlines() == [f"{find_pin(extra)} {packages / 'dmlc'}"], printed
