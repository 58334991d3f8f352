"""What the command line spells in its own way: subjects, tensors, attributes and array files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import numpy as np

import dmlc
from dmlc.binding import Operator
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.source import DmlcError, unknown_name

F = TypeVar("F", bound=Callable[..., Any])


def bindings(function: F) -> F:
    """The options `--tensor` and `--attr` of a command."""
    made = click.option(
        "--attr", "attributes", multiple=True, metavar="NAME=VALUE",
        help="An attribute: Epsilon=1e-5, Scales=2,2, InterpolationMode=LINEAR. May repeat.",
    )(function)  # fmt: skip
    return click.option(
        "--tensor", "tensors", multiple=True, metavar="NAME=TYPE[SIZES]",
        help="A tensor's type, sizes and strides: X=FLOAT32[2,3], X=FLOAT32[2,3]{1,2}, X=FLOAT16. "
        "May repeat.",
    )(made)  # fmt: skip


# Subjects -------------------------------------------------------------------------------------


def find_operator(text: str) -> Operator:
    """The operator that `OP` or `FILE[:NAME]` means."""
    path, _, name = text.rpartition(":")
    if text.endswith(".dml") or Path(text).is_file():
        path, name = text, ""
    elif not path.endswith(".dml"):
        return dmlc.operator(text)
    operators = dmlc.load(path).operators
    if name:
        found = {q: o for q, o in operators.items() if name in (q, q.rpartition(".")[2])}
        if not found:
            raise DmlcError(unknown_name(f"operator of '{path}'", name, operators))
        return next(iter(found.values()))
    if len(operators) == 1:
        return next(iter(operators.values()))
    if not operators:
        raise DmlcError(f"'{path}' defines no operator")
    raise DmlcError(
        f"'{path}' defines {len(operators)} operators: say which, as in '{path}:"
        f"{next(iter(operators))}'",
        notes=[f"it has {', '.join(list(operators)[:12])}"],
    )


# Bindings -------------------------------------------------------------------------------------

_TENSOR = re.compile(
    r"(?P<type>[A-Za-z]\w*)(?:\[(?P<sizes>[^\]\[{}]*)\](?:\{(?P<strides>[^\]\[{}]*)\})?)?"
)


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise click.BadParameter(f"expected NAME=VALUE, found '{text}'", param_hint=f"'{option}'")
    return name.strip(), value.strip()


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = _split(option, text)
        if name in found:
            raise click.BadParameter(f"'{name}' is given twice", param_hint=f"'{option}'")
        found[name] = value
    return found


def read_tensors(texts: Iterable[str]) -> dict[str, dmlc.TensorDesc]:
    """The tensor descriptions of `--tensor`."""
    return {name: _tensor(name, value) for name, value in _pairs("--tensor", texts).items()}


def _tensor(name: str, text: str) -> dmlc.TensorDesc:
    match = _TENSOR.fullmatch(text.replace(" ", ""))
    if match is None:
        raise click.BadParameter(
            f"'{text}' describes no tensor: expected a type, with sizes and strides if you like, "
            f"such as {name}=FLOAT32[2,3]{{3,1}}",
            param_hint="'--tensor'",
        )
    sizes, strides = (_integers(match.group(group)) for group in ("sizes", "strides"))
    return dmlc.TensorDesc(match.group("type"), sizes, strides)


def _integers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [p for p in text.split(",") if p]
    if not parts or not all(re.fullmatch(r"\d{1,18}", p) for p in parts):
        raise click.BadParameter(
            f"expected whole numbers separated by commas, found '{text}'", param_hint="'--tensor'"
        )
    return tuple(int(p) for p in parts)


def read_attributes(texts: Iterable[str]) -> dict[str, object]:
    """The attributes of `--attr`: numbers, true and false, lists, and names."""
    return {name: _attribute(value) for name, value in _pairs("--attr", texts).items()}


def _attribute(text: str) -> object:
    if text.startswith("[") and text.endswith("]"):
        return [_value(part) for part in text[1:-1].split(",") if part.strip()]
    return [_value(part) for part in text.split(",")] if "," in text else _value(text)


def _value(text: str) -> object:
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word


# Arrays ---------------------------------------------------------------------------------------


def read_arrays(texts: Iterable[str], tensors: Mapping[str, dmlc.TensorDesc]) -> dict[str, Array]:
    """The arrays of `--input NAME=FILE.npy`.

    NumPy's format does not know bfloat16 and stores it as two plain bytes: such a file, or one of
    16-bit integers, is read as bfloat16 where `--tensor NAME=BFLOAT16` says so (plain bytes need
    no saying).
    """
    return {
        name: read_array(path, tensors[name].data_type if name in tensors else None)
        for name, path in _pairs("--input", texts).items()
    }


def read_array(path: str, dtype: DataType | None) -> Array:
    """One `.npy` file. Pickled objects are never read."""
    try:
        with open(path, "rb") as file:
            array = cast(Array, np.load(file, allow_pickle=False))
    except OSError as error:
        raise DmlcError(f"cannot read '{path}': {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError) as error:
        reason = "it holds Python objects" if "pickle" in str(error) else str(error).split("\n")[0]
        raise DmlcError(
            f"'{path}' is no .npy file that can be read: {reason or 'it is cut short'}",
            notes=["write one with numpy.save('x.npy', array)"],
        ) from error
    if not isinstance(cast(object, array), np.ndarray):
        raise DmlcError(f"'{path}' is an archive of arrays: give one .npy file per tensor")
    bfloat16 = DataType.BFLOAT16.dtype
    plain = array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None
    words = array.dtype.kind in "iu" and array.dtype.itemsize == 2
    if plain or (words and dtype is DataType.BFLOAT16):
        array = array.view(bfloat16)
    found = data_type_of(array.dtype) if array.dtype.names is None else None
    if found is None:
        raise DmlcError(f"'{path}' holds {array.dtype}, which is no tensor's data type")
    return array if array.dtype.isnative else array.astype(found.dtype)
