"""Failure, or weak case, as a folder that can be run again: the call, the data, and the operator
itself.

`case.json` has the call and its origin, `case.npz` the arrays, `operator.dml` the operator with its
dependencies (only the name of a library operator), `command.txt` the command that runs it again.
The arrays are stored as bytes with their types beside them, and nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import io
import json
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.catalog import load, operators
from dmlc.files import name_file, read_bounded, write_files
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition
from dmlc.language.format import format_declaration, format_enum, format_scalar_function
from dmlc.npy import read_npy
from dmlc.parameters import expect_path
from dmlc.processes import spell_command
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError
from dmlc.testing.case import Call, Case, lay_out, show_tensor
from dmlc.testing.outcome import CHECKS, CheckKind, Outcome
from dmlc.testing.power import Weakness, find_loose, find_weakness

_MOST_BYTES = 64 << 20
"""Largest file that is read, and largest total of its arrays, in bytes."""
_MOST_MEMORY = 1 << 30
"""Largest span of a tensor in bytes."""
_MOST_ARRAYS = 4096
_VERSION = 1
_WEAKNESSES: Mapping[CheckKind, Callable[[Case], Weakness | None]] = {
    CheckKind.EXAMPLE: find_loose,
    CheckKind.CALL: find_weakness,
}
"""Weakness tests by kind of case, as in the harness: an example may be for one branch of a
formula."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Kept failure."""

    case: Case
    kind: CheckKind
    device: str
    seed: int
    candidate: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Candidate in the form of `dmlc.testing.judging`; empty for dmlc's own kernels."""

    def run(self, device: str | None = None) -> Outcome:
        """Outcome now, on the device of the failure or another, and its weakness."""
        outcome = CHECKS[self.kind](self.case, device or self.device)
        find = _WEAKNESSES.get(self.kind)
        weakness = None if find is None or not outcome.verdicts else find(self.case)
        return dataclasses.replace(outcome, weakness=str(weakness or ""))


def write_failure(
    folder: Path,
    outcome: Outcome,
    device: str,
    seed: int,
    candidate: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Keeps a failure in a new folder inside `folder`, and returns that. `candidate` describes a
    foreign kernel. Raises `DmlcError` if it cannot be written."""
    case = outcome.case
    if case is None:
        raise DmlcError(f"nothing was run of '{outcome.operator}' that could be kept")
    call, definition = case.call, case.call.operator.definition
    described: dict[str, Any] = {
        "version": _VERSION,
        "operator": definition.name,
        "library": _is_built_in(call.operator),
        "kind": outcome.kind.value,
        "title": case.title,
        "device": device,
        "seed": seed,
        "cause": None if outcome.cause is None else outcome.cause.value,
        "found": outcome.message,
        "place": outcome.place,
        "tensors": {name: show_tensor(desc) for name, desc in call.tensors.items()},
        "attributes": {name: _encode(value) for name, value in call.attributes.items()},
        "inputs": {name: str(desc.data_type.name) for name, desc in call.inputs.items()},
        "within": dict(case.within),
        **({"candidate": dict(candidate)} if candidate else {}),
    }
    digest = zlib.crc32(json.dumps(described, sort_keys=True).encode())
    path = folder / f"{as_file_name(definition.name)}-{as_file_name(outcome.kind)}-{digest:08x}"
    arrays = {f"input.{name}": _as_bytes(array) for name, array in case.inputs.items()}
    arrays |= {f"expected.{name}": array for name, array in case.expected.items()}
    arrays |= {f"instead.{name}": array for name, array in case.instead.items()}
    stored = io.BytesIO()
    save: Any = np.savez
    save(stored, allow_pickle=False, **arrays)
    files = {
        "case.json": (json.dumps(described, indent=2) + "\n").encode(),
        "case.npz": stored.getvalue(),
        "command.txt": f"{replay_command(path)}\n".encode(),
    }
    if not _is_built_in(call.operator):
        files["operator.dml"] = write_operator(definition).encode()
    write_files(path, files)
    return path


def replay_command(folder: Path) -> str:
    """Shell command that runs a failure again."""
    return spell_command("dmlc", "test", "--replay", folder)


def read_failure(folder: str | Path, others: Sequence[Operator] | None = None) -> Replay:
    """Failure in a folder; with `others`, of the operator of that name among them, which may have
    been corrected. Raises `DmlcError` if the folder holds none."""
    path = expect_path("folder", folder)
    found = _read_json(path / "case.json")
    name = _text(found, "operator", path)
    if others is not None:
        named = [other for other in others if other.name == name]
        if not named:
            known = ", ".join(other.name for other in others)
            raise DmlcError(f"the failure in '{path}' is of '{name}', and given is {known}")
        operator = named[0]
    else:
        operator = operators()[name] if found.get("library") is True else _load(path, name)
    tensors = _read_tensors(_texts(found, "tensors", path), operator, path)
    attributes = found.get("attributes")
    if not isinstance(attributes, dict):
        raise _damaged(path, "it says no attributes")
    values = {n: _decode(v, path) for n, v in cast("dict[str, object]", attributes).items()}
    call = Call(operator, tensors, values)
    arrays = _read_arrays(path / "case.npz")
    inputs: dict[str, Array] = {}
    for tensor, desc in call.inputs.items() if call.tensors else ():
        stored = arrays.get(f"input.{tensor}")
        if stored is None:
            continue
        inputs[tensor] = lay_out(_from_bytes(stored, desc, path), desc)
    expected, instead = (_choose(arrays, kind, call, path) for kind in ("expected.", "instead."))
    within = _read_within(found, path)
    kinds = [kind for kind in CHECKS if kind.value == found.get("kind")]
    if not kinds:
        raise _damaged(path, f"it is of no kind that is known: {found.get('kind')}")
    definition, title = operator.definition, _text(found, "title", path)
    shown = definition.differences if instead else definition.examples
    example = next((e for e in shown if expected and e.title == title), None)
    span = None if example is None else example.span
    difference = example if isinstance(example, syntax.Difference) else None
    case = Case(call, inputs, title, expected, within, span, difference=difference, instead=instead)
    seed = found.get("seed")
    candidate = _texts(found, "candidate", path) if "candidate" in found else {}
    number = seed if isinstance(seed, int) else 0
    return Replay(case, kinds[0], _text(found, "device", path), number, candidate)


def _is_built_in(operator: Operator) -> bool:
    built_in = operators()
    return operator.name in built_in and built_in[operator.name].definition is operator.definition


def as_file_name(text: str) -> str:
    """Text as part of a file name that every system permits."""
    return name_file(re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:80])


def _load(path: Path, name: str) -> Operator:
    found = load(path / "operator.dml").operators
    if name not in found:
        raise _damaged(path, f"its operator.dml does not define '{name}'")
    return found[name]


# Operators -------------------------------------------------------------------------------------


def write_operator(definition: OperatorDefinition) -> str:
    """Text of a file that defines an operator, with the enums, functions and operators that it
    needs."""
    needed = list(_list_needed(definition))
    module = definition.name.rpartition(".")[0]
    lines = [f"module {module}"] if module else []
    enums = {name: enum for each in needed for name, enum in each.enums.items()}
    functions = {name: f for each in needed for name, f in each.functions.items()}
    declared = {s.name.text for each in needed for s in each.compute or ()
                if isinstance(s, syntax.ScalarFunction)}  # fmt: skip
    lines += [format_enum(enum.name, enum.members) for enum in enums.values()]
    lines += [format_scalar_function(f) for name, f in functions.items() if name not in declared]
    lines += [format_declaration(each.syntax) for each in needed]
    return "\n".join(line.rstrip("\n") + "\n" for line in lines)


def _list_needed(definition: OperatorDefinition) -> Iterator[OperatorDefinition]:
    """Operators of its module that an operator needs: those it is the gradient of, then itself."""
    gradient = definition.gradient
    forward = definition.partner if gradient is None else gradient.forward
    if forward is not None and not _is_built_in(Operator(forward)):
        yield from _list_needed(forward)
    yield definition


# Values ----------------------------------------------------------------------------------------


def _encode(value: object) -> object:
    """Attribute's value in JSON, which has no infinities and no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in cast("list[object]", value)]
    if isinstance(value, DataType):
        return value.name
    if isinstance(value, np.generic):
        return _encode(cast("object", value.item()))
    return value


def _decode(value: object, path: Path) -> object:
    """Value, or list of values, that `_encode` has written."""
    if isinstance(value, list):
        return [_decode_one(item, path) for item in cast("list[object]", value)]
    return _decode_one(value, path)


def _decode_one(value: object, path: Path) -> object:
    if isinstance(value, dict):
        return _read_float(cast("dict[str, object]", value).get("float"), path)
    if isinstance(value, list):
        raise _damaged(path, "an attribute is a list of lists")
    return value


def _read_float(value: object, path: Path) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise _damaged(path, f"'{str(value)[:40]}' is no number") from None


def _read_within(found: Mapping[str, object], path: Path) -> dict[str, float]:
    """Tolerances of outputs, some of which may be written as text."""
    within = found.get("within", {})
    if not isinstance(within, dict):
        raise _damaged(path, "it does not say what outputs may differ by")
    given = cast("dict[str, object]", within)
    return {name: _read_float(value, path) for name, value in given.items()}


def _choose(arrays: Mapping[str, Array], kind: str, call: Call, path: Path) -> dict[str, Array]:
    """Arrays of a kind, by output."""
    found = {n.removeprefix(kind): array for n, array in arrays.items() if n.startswith(kind)}
    outputs = call.outputs
    for name, array in found.items():
        if (
            name not in outputs
            or outputs[name].sizes != array.shape
            or array.dtype.kind not in "biuf"
        ):
            raise _damaged(path, f"an array in case.npz is not one of an output '{name}'")
    return found


def _as_bytes(array: Array) -> Array:
    """Array's elements as bytes, since NumPy's files lack some types."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _from_bytes(stored: Array, desc: TensorDesc, path: Path) -> Array:
    sizes = desc.shape
    dtype = desc.data_type.dtype
    if stored.dtype != np.uint8 or stored.size != math.prod(sizes) * dtype.itemsize:
        raise _damaged(path, "an array in case.npz is not of the size that case.json says")
    return np.frombuffer(stored.tobytes(), dtype).reshape(sizes)


_NUMBERS = "((?:[0-9]{1,19}(?:,[0-9]{1,19})*)?)"
_TENSOR = re.compile(rf"(\w+)\[{_NUMBERS}\](?:\{{{_NUMBERS}\}})?", re.ASCII)


def _read_tensors(
    descriptions: Mapping[str, str], operator: Operator, path: Path
) -> dict[str, TensorDesc]:
    known = {tensor.name for tensor in operator.definition.newest.tensors}
    unknown = [name for name in descriptions if name.partition("[")[0] not in known]
    if unknown:
        raise _damaged(path, f"its operator has no tensor '{unknown[0]}'")
    return {name: _read_tensor(text, path) for name, text in descriptions.items()}


def _read_tensor(text: str, path: Path) -> TensorDesc:
    """Description of a text by `show_tensor`."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise _damaged(path, f"'{text[:80]}' describes no tensor")
    sizes, strides = (
        None if part is None else tuple(int(n) for n in part.split(",") if n)
        for part in match.group(2, 3)
    )
    desc = TensorDesc(match[1], sizes, strides)
    if desc.total_bytes > _MOST_MEMORY:
        raise _damaged(path, f"'{text}' reaches over more than {_MOST_MEMORY >> 30} GiB")
    return desc


def _damaged(path: Path, why: str) -> DmlcError:
    return DmlcError(f"'{path}' is no failure that can be run again: {why}")


def _read_json(path: Path) -> dict[str, object]:
    try:
        found = json.loads(read_bounded(path, _MOST_BYTES))
    except (ValueError, RecursionError):
        raise _damaged(path.parent, "its case.json is damaged") from None
    if not isinstance(found, dict) or cast("dict[str, object]", found).get("version") != _VERSION:
        raise _damaged(path.parent, "its case.json is of another version")
    return cast("dict[str, object]", found)


def _text(found: Mapping[str, object], key: str, path: Path) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise _damaged(path, f"it says no {key}")
    return value


def _texts(found: Mapping[str, object], key: str, path: Path) -> dict[str, str]:
    value = found.get(key)
    if not isinstance(value, dict):
        raise _damaged(path, f"it says no {key}")
    return {str(n): str(v) for n, v in cast("dict[object, object]", value).items()}


def _read_arrays(path: Path) -> dict[str, Array]:
    content = io.BytesIO(read_bounded(path, _MOST_BYTES))
    try:
        with zipfile.ZipFile(content) as stored:
            members = stored.infolist()
            if len(members) > _MOST_ARRAYS or sum(m.file_size for m in members) > _MOST_BYTES:
                raise _damaged(path.parent, f"its case.npz holds more than {_MOST_BYTES >> 20} MiB")
            return {
                member.filename.removesuffix(".npy"): read_npy(io.BytesIO(stored.read(member)))
                for member in members
            }
    except (
        ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError,
        zipfile.BadZipFile, zlib.error, lzma.LZMAError,
    ):  # fmt: skip
        raise _damaged(path.parent, "its case.npz is damaged") from None
