"""Holds the package to its import order: a stage knows the stages before it and none after."""

from __future__ import annotations

import ast
import dataclasses
import functools
import graphlib
import operator
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmlc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dmlc"

ORDER = (
    "collection", "source", "lazy", "diagnostics", "parameters", "resources", "templates", "files",
    "processes", "progress", "sizes", "scalars", "index", "npy", "freedoms", "matrices", "language",
    "summaries", "library", "ir", "transform", "binding", "catalog", "building", "reference",
    "oracle", "kernel", "loops", "schedules", "lowering", "alike", "shader_model", "buffer_plan",
    "program", "manifest", "report", "codegen", "pipeline", "compiler", "picture", "runtime",
    "inspection", "devices", "known_answers", "api", "testing", "tuning", "listing", "interop",
    "datasheet", "qualify", "onnx", "cgc", "pages", "mlir", "torch", "editor", "cli", "__main__",
)  # fmt: skip
"""A module imports from its own place and from places before it."""

RUNTIME_MAY_IMPORT = (
    "source",
    "progress",
    "parameters",
    "resources",
    "files",
    "processes",
    "sizes",
    "scalars",
    "freedoms",
    "matrices",
    "shader_model",
    "program",
    "runtime",
)
"""The runtime works from programs alone: no IR, no language."""

OWNERS = {
    "click": ("dmlc.cli",),
    "docutils": ("dmlc.pages.rst",),
    "hypothesis": ("dmlc.testing.strategies",),
    "jinja2": ("dmlc.templates",),
    "lark": ("dmlc.language", "dmlc.pages"),
    "markdown_it": ("dmlc.pages.markdown",),
    "lsprotocol": ("dmlc.editor.server",),
    "ml_dtypes": ("dmlc.scalars",),
    "onnx": ("dmlc.cgc", "dmlc.onnx"),
    "packaging": ("dmlc.qualify.bundle",),
    "pygls": ("dmlc.editor.server",),
    "pyopencl": (
        "dmlc.runtime.opencl.builds", "dmlc.runtime.opencl.direct", "dmlc.runtime.opencl.driver",
        "dmlc.runtime.opencl.executable",
    ),
    "pytest": ("dmlc.testing.plugin", "dmlc.testing.items"),
    "torch": ("dmlc.torch",),
}  # fmt: skip
"""The third-party packages, and the modules that may import them. NumPy is at home wherever
values are: everywhere but in the places below."""

WITHOUT_NUMPY = (
    "source", "lazy", "diagnostics", "parameters", "resources", "templates", "files",
    "processes", "progress", "sizes", "language", "summaries", "library", "program",
)  # fmt: skip

LATE_IMPORTS = {
    ("dmlc.runtime.opencl.builds", "pyopencl"), ("dmlc.runtime.opencl.driver", "pyopencl"),
}  # fmt: skip
"""The imports that may stand in a function: of packages a machine can do without until they are
needed, in the modules that own them."""

VAGUE_NAMES = ("utils", "util", "helpers", "helper", "common", "misc")


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module, and how: inside a function, or for the type checker only."""

    module: str
    line: int
    late: bool
    types_only: bool


def place_of(module: str) -> str:
    """`dmlc.language.parse` is in the place `language`; `dmlc` itself in the place ``."""
    return module.split(".")[1] if "." in module else ""


@functools.cache
def read_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST, late: bool = False, types_only: bool = False) -> Iterator[Import]:
    """Every import below a node. `from dmlc import ir` imports the module `dmlc.ir`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, late, types_only)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                module = whole if is_module(whole) else node.module
                yield Import(module, node.lineno, late, types_only)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports_of(node, True, types_only)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports_of(node, late, True)
        else:
            yield from imports_of(node, late, types_only)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def problems(path: Path) -> Iterator[str]:
    """What is wrong with the imports of one module."""
    name = name_of(path)
    here = place_of(name)
    tree = read_tree(path)
    for item in imports_of(tree):
        where = f"{path.relative_to(ROOT)}:{item.line}"
        package = item.module.split(".")[0]
        if item.late and (name, package) not in LATE_IMPORTS:
            yield f"{where}: import of {item.module} inside a function"
        if package == "dmlc":
            yield from (f"{where}: {p}" for p in order_problems(name, here, item))
        elif package == "numpy":
            if here in WITHOUT_NUMPY:
                yield f"{where}: numpy has no place in {here}"
        elif package in OWNERS:
            if not any(name == o or name.startswith(f"{o}.") for o in OWNERS[package]):
                yield f"{where}: {package} belongs to {', '.join(OWNERS[package])}"
        elif package not in sys.stdlib_module_names:
            yield f"{where}: {package} is no declared dependency of any module"


def order_problems(name: str, here: str, item: Import) -> Iterator[str]:
    there = place_of(item.module)
    if name == "dmlc":
        # The package's own face names everything, and imports it only when it is asked for.
        if not item.types_only:
            yield f"dmlc itself imports {item.module} at once"
    elif there == "":
        if ORDER.index(here) < ORDER.index("program"):
            yield f"{here} comes before the package's face"
    elif there not in ORDER:
        yield f"{item.module} has no place in the order"
    elif there == "compiler":
        yield f"{item.module} is for programs that embed dmlc: import from where it is defined"
    elif ORDER.index(there) > ORDER.index(here):
        yield f"{here} imports {item.module}, which comes after it"
    elif here == "runtime" and there not in RUNTIME_MAY_IMPORT:
        yield f"the runtime imports {item.module}, and works from programs alone"


def test_the_face_has_what_it_names() -> None:
    module = dmlc
    places: dict[str, str] = vars(dmlc)["_PLACES"]
    assert set(places) <= set(module.__all__)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    late = [n for n in ast.walk(tree) if isinstance(n, ast.If)]
    (typed,) = (n for n in late if ast.unparse(n.test) == "TYPE_CHECKING")
    said = {a.name: n.module for n in ast.walk(typed) if isinstance(n, ast.ImportFrom)
            for a in n.names}  # fmt: skip
    assert {name: home for name, home in said.items() if home != "dmlc"} == places
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert dir(module) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="module 'dmlc' has no attribute 'simplified'"):
        operator.attrgetter("simplified")(module)


def load(face: str) -> tuple[set[str], set[str]]:
    """The packages of other people, and the places of dmlc, that an import of one brings."""
    code = f"import sys, {face}; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    known = {*sys.stdlib_module_names, "dmlc", "__mp_main__"}
    others = {n.partition(".")[0] for n in names} - known
    return others, {place_of(n) for n in names if n.startswith("dmlc.")}


def test_the_ir_loads_numpy_and_its_types_alone() -> None:
    others, places = load("dmlc.ir")
    bare, _ = load("dmlc")
    assert others - bare == {"numpy", "ml_dtypes"}
    assert places == {"source", "lazy", "parameters", "sizes", "scalars", "index", "ir"}


def test_every_place_is_in_the_order() -> None:
    found = {place_of(name_of(path)) for path in modules()} - {""}
    assert found == set(ORDER)


def test_modules_keep_to_the_order() -> None:
    found = {str(path.relative_to(ROOT)): list(problems(path)) for path in modules()}
    assert {name: breaches for name, breaches in found.items() if breaches} == {}


def test_no_modules_import_each_other() -> None:
    """Imports for types count as well. The package's face alone names modules that import it."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        name = name_of(path)
        found = {find_module(item.module) for item in imports_of(read_tree(path))}
        graph[name] = found - {"", "dmlc", name} if name != "dmlc" else set()
    graphlib.TopologicalSorter(graph).prepare()


def find_module(name: str) -> str:
    """The module that a name is of, or is; an empty text for one of other people's."""
    while name and not is_module(name):
        name = name.rpartition(".")[0]
    return name if name.startswith("dmlc") else ""


def test_modules_say_what_they_are() -> None:
    trees = {path: read_tree(path) for path in modules()}
    assert [path for path in trees if path.stem in VAGUE_NAMES] == []
    assert [p for p, tree in trees.items() if tree.body and ast.get_docstring(tree) is None] == []


def write_module(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "example.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("place", "text", "problem"),
    [
        ("ir", "from dmlc.kernel import nodes", "ir imports dmlc.kernel.nodes, which comes after"),
        ("ir", "import dmlc.api", "ir imports dmlc.api, which comes after it"),
        ("ir", "from dmlc import pipeline", "ir imports dmlc.pipeline, which comes after it"),
        ("ir", "import dmlc", "ir comes before the package's face"),
        ("runtime", "from dmlc.ir import nodes", "works from programs alone"),
        ("codegen", "import lark", "lark belongs to dmlc.language, dmlc.pages"),
        ("language", "import numpy as np", "numpy has no place in language"),
        ("cli", "from dmlc.compiler import simplify", "dmlc.compiler is for programs that embed"),
        ("cli", "import requests", "requests is no declared dependency"),
        ("cli", "def f():\n    import json", "import of json inside a function"),
        ("cli", "class A:\n    def f(self):\n        import json", "import of json inside"),
    ],
)
def test_a_breach_is_found(
    place: str, text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "dmlc")
    path = write_module(tmp_path / "dmlc" / place, text)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for known in ("dmlc/pipeline", "dmlc/kernel", "dmlc/ir"):
        (tmp_path / known).mkdir(parents=True, exist_ok=True)
    (tmp_path / "dmlc/kernel/nodes").mkdir()
    (tmp_path / "dmlc/ir/nodes").mkdir()
    found = list(problems(path))
    assert len(found) == 1
    assert problem in found[0]
