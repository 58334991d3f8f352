"""Python functions as candidate implementations of an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.files import read_bounded
from dmlc.runtime.fences import as_bits
from dmlc.runtime.floats import KEEPING, FloatPromises
from dmlc.scalars import Array
from dmlc.source import DmlcError, counted
from dmlc.testing.candidate import Runs
from dmlc.testing.case import Call, Case
from dmlc.testing.expressions import OutsideError, list_names, list_values, read_formula

_MOST_BYTES = 1 << 20
"""Largest size of a file in bytes."""


class Function:
    """Python function as an implementation of an operator.

    It is called with the inputs as arrays in table order, None for absent ones, and with the
    attributes that it has parameters for, by name. It returns an array per output, or a mapping of
    them by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        operator: Operator,
        where: str = "",
        convert: Callable[[Array], Any] | None = None,
        title: str = "",
        restore: Callable[[Any], Any] = np.asarray,
    ) -> None:
        """`convert` turns an array into the function's argument, such as a tensor of PyTorch, and
        `restore` turns its result into an array."""
        self.operator = operator
        self.kept: Mapping[str, str] = {}
        self._function = function
        self._convert = convert
        self._restore = restore
        self._title = title or getattr(function, "__name__", type(function).__name__)
        self._where = read_formula(where, "where") if where else None
        if self._where is not None:
            self._where.check("where", list_names(operator))
        self._known = _list_parameters(function)

    @property
    def name(self) -> str:
        return f"{self._title} (Python)"

    @property
    def floats(self) -> FloatPromises:
        return KEEPING

    def describe(self) -> list[str]:
        rows = [row.name for row in self.operator.definition.newest.tensors if not row.output]
        lines = [f"{self._title}({', '.join(rows)})"]
        return [*lines, *([f"  where {self._where.text}"] if self._where else [])]

    @property
    def fixed(self) -> Mapping[str, Any]:
        return {} if self._where is None else self._where.fixed

    def fit(self, call: Call) -> dict[str, TensorDesc]:
        return dict(call.tensors)

    def adapt(self, call: Call) -> Call:
        if self._where is not None and not self._where.evaluate(list_values(call)):
            raise OutsideError(f"it takes calls where {self._where.text}")
        # Results are arrays of its own, packed or not.
        outputs = {n: TensorDesc(d.data_type, d.sizes) for n, d in call.outputs.items()}
        return Call(call.operator, {**call.tensors, **outputs}, call.attributes)

    def run(self, case: Case) -> Runs:
        before = {n: np.array(a, copy=True) for n, a in case.inputs.items()}
        first = self.run_once(case)
        changed = [n for n, a in case.inputs.items() if np.any(as_bits(a) != as_bits(before[n]))]
        stray = tuple(f"it changes its input {name}" for name in changed)
        for name in changed:
            case.inputs[name][...] = before[name]
        return Runs({"": first, "a second run": self.run_once(case)}, stray)

    def run_once(self, case: Case) -> dict[str, Array]:
        """Outputs of one call, by name."""
        rows = self.operator.definition.newest.tensors
        given: list[Any] = []
        for row in (r for r in rows if not r.output):
            if row.array:
                found = [a for n, a in case.inputs.items() if n.partition("[")[0] == row.name]
                given.append([self._take(array) for array in found])
            else:
                array = case.inputs.get(row.name)
                given.append(None if array is None else self._take(array))
        while given and given[-1] is None:
            given.pop()
        values = {
            n: v for n, v in list_values(case.call).items() if n in case.call.binding.attributes
        }
        chosen = {n: v for n, v in values.items() if n in self._known}
        with np.errstate(all="ignore"):
            returned = self._function(*given, **chosen)
        return self._read(case, returned)

    def _take(self, array: Array) -> Any:
        return array if self._convert is None else self._convert(array)

    def _read(self, case: Case, returned: Any) -> dict[str, Array]:
        outputs = case.call.outputs
        if isinstance(returned, Mapping):
            named = cast("Mapping[str, Any]", returned)
        else:
            several = isinstance(returned, tuple | list)
            items = list(cast("Sequence[Any]", returned)) if several else [returned]
            if len(items) != len(outputs):
                raise DmlcError(
                    f"{self._title} returns {counted(len(items), 'result')}, and "
                    f"{self.operator.name} has {', '.join(outputs)}"
                )
            named = dict(zip(outputs, items, strict=True))
        found: dict[str, Array] = {}
        for name, desc in outputs.items():
            if name not in named:
                raise DmlcError(f"{self._title} returns no {name}")
            array = np.asarray(self._restore(named[name]))
            sizes = desc.shape
            if array.shape != sizes or array.dtype != desc.data_type.dtype:
                raise DmlcError(
                    f"{name} is {array.dtype}{list(array.shape)} of {self._title}, and must be "
                    f"{desc.data_type.name}{list(sizes)}"
                )
            found[name] = array
        return found

    def count_group(self) -> int | None:
        return None

    def count_items(self, call: Call) -> int | None:
        return None


def read_function(path: Path, entry: str, operator: Operator, where: str) -> Function:
    """Function of that name in a Python file; without a name, the only one. The file runs as it is
    imported. Raises `DmlcError` if there is none."""
    made: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    text = read_bounded(path, _MOST_BYTES)
    try:
        exec(compile(text, str(path), "exec"), made)
    except Exception as error:
        raise DmlcError(f"'{path}' does not run: {type(error).__name__}: {error}") from error
    own = {
        name: value
        for name, value in made.items()
        if inspect.isfunction(value) and value.__module__ == path.stem and not name.startswith("_")
    }
    if entry not in own and (entry or len(own) != 1):
        said = f"defines no function '{entry}'" if entry else f"defines {len(own)} functions"
        known = ", ".join(own) or "none"
        raise DmlcError(f"'{path}' {said}", notes=[f"--entry names one; there: {known}"])
    name = entry or next(iter(own))
    found = Function(own[name], operator, where, title=f"{path.name}:{name}")
    found.kept = {"path": str(path.resolve()), "entry": name, **({"where": where} if where else {})}
    return found


def _list_parameters(function: Callable[..., Any]) -> set[str]:
    """Names of a function's parameters."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return set()
    return {
        name
        for name, p in parameters.items()
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }
