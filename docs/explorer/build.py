"""Builds the explorer into a folder: `python docs/explorer/build.py TOOLS FOLDER`, which `make
explorer` runs. TOOLS is the folder that has `node_modules`, as `npm ci` makes it of package.json.

The page needs no server but one of files. All that it loads lies in the folder: Pyodide and the
editor from npm, NumPy as Pyodide builds it, and dmlc with the few packages that it imports, as
compiled bytecode in one archive. `--numpy WHEEL` has NumPy from a file. Otherwise it is taken out
of a package on PyPI that carries Pyodide's own wheel; in both cases its SHA-256 is that of
Pyodide's lock file.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMPILER = "docs.explorer.compiler"
"""The module that the page runs."""
PAGE = (HERE / "index.html", HERE / "style.css", ROOT / "docs/assets/logo.svg")
RUNTIME = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip",
           "pyodide-lock.json")  # fmt: skip
ARCHIVE = "dmlc.zip"
DATA = ("grammar", "templates")
"""Folders at the top of the repository that the compiler reads."""
SCRIPTS = ("main.js", "worker.js")
"""What is bundled, with the modules that it imports."""
SUFFIXES = (".dml", ".json", ".csv", ".md", ".txt")
"""The data files of the package that it may read."""
INSTALLED = ("click", "jinja2", "lark", "markupsafe")
"""The packages besides NumPy that it imports, all of them pure Python there."""
CARRIER = "gbdraw==0.14.2"
"""The package on PyPI that carries NumPy's wheel for `pyodide` of package.json."""


@functools.cache
def list_modules(start: str = COMPILER) -> tuple[dict[str, Path], set[str]]:
    """The modules of this repository that one imports, directly or not, by name, and the packages
    that are not of the standard library."""
    found: dict[str, Path] = {}
    others: set[str] = set()
    pending = [start]
    while pending:
        name = pending.pop()
        path = find_module(name)
        if name in found:
            continue
        if name.partition(".")[0] not in ("dmlc", "docs"):
            others.add(name.partition(".")[0])
        elif path is not None:
            found[name] = path
            pending += [name.rpartition(".")[0]] if "." in name else []
            pending += list_imports(path)
    return found, others - set(sys.stdlib_module_names) - {""}


def find_module(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def list_imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it is loaded, or may import later. What is there for the
    type checker alone is none: faces of packages name modules so that are imported when asked for.
    """
    pending: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        # No expression imports anything.
        pending += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))


def list_files() -> dict[str, Path]:
    """The files of the archive, by their names in it, as sources."""
    modules, _ = list_modules()
    found = {path.relative_to(ROOT).as_posix(): path for path in modules.values()}
    data = [p for folder in DATA for p in ROOT.glob(f"{folder}/*")]
    data += [p for p in ROOT.glob("dmlc/**/*") if p.suffix in SUFFIXES]
    data += ROOT.glob("examples/**/*.dml")
    found |= {p.relative_to(ROOT).as_posix(): p for p in data if p.is_file()}
    for package in INSTALLED:
        files = importlib.metadata.files(package) or []
        found |= {str(f): Path(str(f.locate())) for f in files if f.suffix == ".py"}
    return found


def write_archive(path: Path, files: dict[str, Path]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, source in sorted(files.items()):
            archive.write(source, name)


def find_numpy(runtime: Path, given: Path | None) -> Path:
    """NumPy's wheel, as the lock file of Pyodide has it."""
    lock = json.loads((runtime / "pyodide-lock.json").read_text("utf-8"))["packages"]["numpy"]
    name, digest = lock["file_name"], lock["sha256"]
    wheel: Path = given or Path(tempfile.mkdtemp(prefix="explorer-")) / name
    if given is None:
        fetch_numpy(wheel)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
        sys.exit(f"'{wheel}' is not the {name} of Pyodide's lock file")
    return wheel


def fetch_numpy(wanted: Path) -> None:
    """Takes the wheel out of the package that carries it."""
    folder = wanted.parent
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--only-binary=:all:", "-d", folder, CARRIER], check=True)
    for carrier in folder.glob("*.whl"):
        with zipfile.ZipFile(carrier) as archive:
            (inside,) = [n for n in archive.namelist() if n.endswith(f"/{wanted.name}")]
            wanted.write_bytes(archive.read(inside))


def describe_page(numpy: str) -> dict[str, Any]:
    """What the page reads before the compiler has started."""
    sys.path.insert(0, str(ROOT))
    from docs.explorer import compiler

    # A site that takes the page along says where its own first page is.
    return {**compiler.describe(), "numpy": numpy, "documentation": None}


def build(tools: Path, folder: Path, numpy: Path | None) -> None:
    """Writes the whole page into a folder."""
    runtime = tools / "node_modules/pyodide"
    for script in HERE.glob("*.js"):
        shutil.copy(script, tools)  # Modules are looked for where a script lies.
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyodide").mkdir(parents=True)
    for path in PAGE:
        shutil.copy(path, folder)
    for name in RUNTIME:
        shutil.copy(runtime / name, folder / "pyodide")
    wheel = find_numpy(runtime, numpy)
    shutil.copy(wheel, folder / "pyodide")
    about = describe_page(wheel.name)
    (folder / "about.json").write_text(json.dumps(about), "utf-8")
    write_archive(folder / ARCHIVE, list_files())
    subprocess.run(["node", "compile.js", folder / ARCHIVE], cwd=tools, check=True)
    esbuild = ["node_modules/.bin/esbuild", "--bundle", "--format=esm", "--minify"]
    esbuild += ["--external:./pyodide/pyodide.mjs", "--log-level=warning", f"--outdir={folder}"]
    subprocess.run([*esbuild, *SCRIPTS], cwd=tools, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tools", type=Path, metavar="TOOLS")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--numpy", type=Path, metavar="WHEEL")
    given = parser.parse_args()
    build(given.tools.resolve(), given.folder.resolve(), given.numpy)
    sizes = {p.name: p.stat().st_size for p in given.folder.rglob("*") if p.is_file()}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:7.2f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:7.2f} MB  in all")


if __name__ == "__main__":
    main()
