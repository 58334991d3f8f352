"""The targets: one registry, and nothing that asks for one of them by name beside it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from dmlc.codegen.target import Target
from dmlc.codegen.targets import TARGETS, find_dialect, find_target
from dmlc.devices import DEFAULT, RUNTIMES
from dmlc.kernel.target import PROFILES
from dmlc.resources import resource_path
from dmlc.runtime.interface import find_compiler, find_runtime
from dmlc.source import UnknownNameError, UnsupportedError

PACKAGE = Path(__file__).parents[2] / "dmlc"
BY_NAME = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def test_the_registry() -> None:
    assert [t.name for t in TARGETS] == ["hlsl", "opencl", "wgsl"]
    assert len({t.language.suffix for t in TARGETS}) == len(TARGETS)
    assert [t.name for t in TARGETS if t.is_general] == ["hlsl", "opencl"]
    assert RUNTIMES == ("opencl", "vulkan", "d3d12", "strict", "wgpu")
    assert RUNTIMES[0] == DEFAULT


@BY_NAME
def test_a_target_is_whole(target: Target) -> None:
    assert find_target(target.name) is target
    assert set(target.profiles) <= {p.name for p in PROFILES}
    for dialect in target.dialects:
        assert dialect.language is target.language
        assert dialect.limits.target == target.name
        assert (resource_path("templates") / dialect.template).is_file()
        assert find_dialect(target.name, dialect.shader_model or None) is dialect
    for name in target.runtimes:
        runtime = find_runtime(name)
        assert all(callable(f) for f in (runtime.devices, runtime.find_device, runtime.load_on))
        assert bool(runtime.CHOICE) == (name == "opencl")
    if target.compiler:
        find_compiler(target.compiler).check_tools()


def test_what_is_not_there() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'wgsl'"):
        find_target("wgls")
    with pytest.raises(UnsupportedError, match="target 'wgsl' has no shader models"):
        find_dialect("wgsl", "6.0")
    with pytest.raises(UnknownNameError, match=r"unknown shader model '7\.0'"):
        find_dialect("hlsl", "7.0")


def test_nothing_asks_for_a_target_or_a_runtime_by_its_name() -> None:
    """What differs between them, their values say."""
    names = {t.name for t in TARGETS} | set(RUNTIMES)
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = (node.left, *node.comparators)
                texts = {s.value for s in sides if isinstance(s, ast.Constant)}
                found += [f"{path.name}:{node.lineno}" for t in texts if t in names]
    assert found == []


def test_the_packages_of_runtimes_are_those_of_targets() -> None:
    folders = {p.parent.name for p in (PACKAGE / "runtime").glob("*/__init__.py")}
    assert folders == set(RUNTIMES)
    for name in RUNTIMES:
        assert importlib.import_module(f"dmlc.runtime.{name}").__doc__
