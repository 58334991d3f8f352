"""Pytest plugin: collects `.dml` files, so that plain `pytest` tests a project's operators.

Pytest imports this module at every start if dmlc is installed, so it imports nothing else of dmlc:
`items`, which collects and runs, is imported when there is a file to collect.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dmlc.testing import items

_FILES = ("*.dml",)
_KEPT = "case.npz"
"""File beside the operator of a kept failure, which is no operator of the project."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "dmlc_files",
        "patterns of files whose operators are tested; none collects no files",
        type="args",
        default=list(_FILES),
    )
    group = parser.getgroup("dmlc", "operators in .dml files")
    group.addoption(
        "--dmlc-device", action="append", metavar="DEVICE", dest="dmlc_devices",
        help="test operators on this device: opencl (the default), vulkan, d3d12 or wgpu, also "
        "with :<index or part of a name>, or reference; may repeat",
    )  # fmt: skip
    group.addoption(
        "--dmlc-cases", type=int, metavar="N",
        help="cases to draw of each operator, besides its examples; 0 for none",
    )  # fmt: skip
    group.addoption(
        "--dmlc-seed", type=int, default=0, metavar="N",
        help="what cases are drawn from: the same seed draws the same cases (default: 0)",
    )  # fmt: skip
    group.addoption(
        "--dmlc-failures", default="dmlc-failures", metavar="DIR",
        help="keep each failure in a folder of its own in DIR (default: dmlc-failures)",
    )  # fmt: skip


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> items.DmlFile | None:
    if file_path.suffix != ".dml":
        return None
    patterns: list[str] = parent.config.getini("dmlc_files")
    if not any(file_path.match(pattern) for pattern in patterns):
        return None
    if (file_path.parent / _KEPT).is_file():
        return None
    module: Any = importlib.import_module("dmlc.testing.items")
    made: items.DmlFile = module.DmlFile.from_parent(parent, path=file_path)
    return made
