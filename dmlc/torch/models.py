"""Judgement of folders in KernelBench's layout: a file with a module `Model`, and others with a
module `ModelNew` that should compute the same.

`Model` is compared with the operator of dmlc that it implements, and so is each `ModelNew`: a
candidate is judged by the operator's tables, not by random numbers of one shape."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from dmlc.catalog import operator as find_operator
from dmlc.files import read_bounded
from dmlc.parameters import expect_path
from dmlc.source import DmlcError, UnsupportedError, counted
from dmlc.testing.function import Function
from dmlc.testing.harness import CASES
from dmlc.testing.judging import Judgement, judge
from dmlc.torch.tensors import view_array

if TYPE_CHECKING:
    from dmlc.binding import Operator
    from dmlc.scalars import Array

REFERENCE, CANDIDATE = "Model", "ModelNew"
_MOST_BYTES = 1 << 20
_SEED = 42
"""What PyTorch's random numbers begin with where a module is made."""


def judge_models(
    place: str | Path,
    operator: str | Operator,
    *,
    where: str = "",
    device: str = "cpu",
    cases: int = CASES,
    seed: int = 0,
    failures: Path | None = None,
) -> list[Judgement]:
    """Judges the modules of a folder, `Model` first and then each `ModelNew`, or those of one file.

    A module is constructed with the arguments of `get_init_inputs` in its file, or in the file with
    `Model`, and called with the operator's inputs as tensors on a PyTorch device, in the order of
    the operator's table. `where` is a condition on the calls, as in `dmlc test --where`, since a
    module's arguments fix attributes. Files are imported, and thereby run: judge only those that
    you trust. Raises `DmlcError` if there is no such module, and `UnsupportedError` for one with
    parameters of its own, which an operator has as inputs."""
    found = find_operator(operator) if isinstance(operator, str) else operator
    path = expect_path("place", place)
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    classes = {file: list_classes(file) for file in files}
    references = [file for file, names in classes.items() if REFERENCE in names]
    candidates = [file for file, names in classes.items() if CANDIDATE in names]
    if len(references) > 1 or not references + candidates:
        many = counted(len(references), "file")
        raise DmlcError(
            f"'{path}' has {many} with a class {REFERENCE}, and {len(candidates)} with a class "
            f"{CANDIDATE}",
            notes=[f"one file has {REFERENCE}, and each other a {CANDIDATE} of its own"],
        )
    modules = {file: _load(file) for file in dict.fromkeys([*references, *candidates])}
    usual = modules[references[0]] if references else None
    chosen = [(file, REFERENCE) for file in references]
    chosen += [(file, CANDIDATE) for file in candidates]
    judged: list[Judgement] = []
    for file, name in chosen:
        made = _make(modules[file], name, usual, device)
        title = f"{name} of {file.name}"
        function = Function(made, found, where, _taker(device), title, _give)
        judged.append(judge(function, found, cases=cases, seed=seed, failures=failures))
    return judged


def list_classes(path: Path) -> list[str]:
    """Classes that a Python file defines, without running it."""
    text = read_bounded(path, _MOST_BYTES)
    try:
        tree = ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:
        raise DmlcError(f"'{path}' is no Python: {error}") from None
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _load(path: Path) -> Any:
    """File as a Python module."""
    name = f"dmlc_judged_{path.stem}"
    described = importlib.util.spec_from_file_location(name, path)
    if described is None or described.loader is None:
        raise DmlcError(f"'{path}' cannot be imported")
    module = importlib.util.module_from_spec(described)
    # What pickles or compiles its own code looks itself up.
    sys.modules[name] = module
    try:
        described.loader.exec_module(module)
    except Exception as error:
        raise DmlcError(f"'{path}' cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _make(module: Any, name: str, usual: Any, device: str) -> Any:
    """Module of PyTorch, constructed as its file says."""
    give = getattr(module, "get_init_inputs", getattr(usual, "get_init_inputs", list))
    # PyTorch does not say what this takes.
    cast("Any", torch).manual_seed(_SEED)
    made = getattr(module, name)(*give())
    if any(True for _ in made.parameters()):
        own = ", ".join(title for title, _ in made.named_parameters())
        raise UnsupportedError(
            f"{name} has parameters of its own: {own}",
            notes=["an operator has these as inputs: write a module that takes them"],
        )
    return made.to(device).eval()


def _taker(device: str) -> Any:
    def take(array: Array) -> torch.Tensor:
        """Array as a tensor over the same memory, or copied to a device with its own."""
        if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
            return torch.as_tensor(array.view("int16")).view(torch.bfloat16).to(device)
        return torch.as_tensor(array).to(device)

    return take


def _give(value: Any) -> Any:
    return view_array(value.detach().cpu()) if isinstance(value, torch.Tensor) else value
