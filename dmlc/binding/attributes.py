"""Attribute values: conversion from a caller's form to compile-time constants.

Enums are given by name or by value, numbers are range-checked (a FLOAT is rounded to float32, a
NUMBER is kept as it is), arrays have their length checked, and defaults are evaluated.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import numbers
from collections.abc import Container, Iterable, Mapping, Sized

import numpy as np

from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.values import Constant, EnumValue, OpenSize, is_number, round_float, show
from dmlc.language.attribute_types import Holds, What
from dmlc.language.definitions import AttributeDefinition, OperatorDefinition, mistake
from dmlc.parameters import expect_items
from dmlc.scalars import DataType, as_data_type
from dmlc.source import ArgumentError, Diagnostic, DmlcError, Note, unknown_name

MOST_ENTRIES = 1024
"""Largest length of an array attribute, and of an array of tensors. A formula reads each entry at
bind time, so such an array holds settings, not data."""


class OpenValue(enum.Enum):
    """Marker given in place of an attribute's value: the value is an argument of the kernels."""

    OPEN = "open"


OPEN = OpenValue.OPEN


def list_opened(
    definition: OperatorDefinition, given: Mapping[str, object], diagnostics: list[Diagnostic]
) -> tuple[str, ...]:
    """Names of the attributes that are given as `OPEN`, in table order; adds a diagnostic for each
    whose value must be known at bind time."""
    found: list[str] = []
    for attribute in definition.attributes:
        if given.get(attribute.name) is not OPEN:
            continue
        found.append(attribute.name)
        if not attribute.type.opens or attribute.is_array:
            message = f"attribute '{attribute.name}' is no FLOAT: no other is left open"
            diagnostics.append(_declared(attribute, Diagnostic(message, code="E0809")))
        elif definition.gradient is not None:
            message = (
                f"attribute '{attribute.name}' is one of a gradient that is derived: it is not "
                "left open"
            )
            diagnostics.append(_declared(attribute, Diagnostic(message, code="E0809")))
    return tuple(found)


def given_attributes(
    definition: OperatorDefinition, given: Mapping[str, object], diagnostics: list[Diagnostic]
) -> dict[str, Constant]:
    """Values of the attributes given, converted; adds a diagnostic for each that is refused."""
    names = [a.name for a in definition.attributes]
    found: dict[str, Constant] = {}
    for name, value in given.items():
        attribute = definition.attribute(name)
        if attribute is not None and value is OPEN:
            continue
        if attribute is None:
            diagnostics.append(unknown_name("attribute", name, names))
            continue
        try:
            found[name] = convert(attribute, value)
        except DmlcError as error:
            diagnostics += error.diagnostics
    return found


def complete_attributes(
    binding: Binding, refused: Iterable[str], diagnostics: list[Diagnostic]
) -> dict[str, Constant]:
    """Value of every attribute in table order: the one given, or else its default, which may depend
    on the tensors and on attributes above it. An array length that follows from a given array needs
    neither. Attributes in `refused` are not reported again."""
    found: dict[str, Constant] = {}
    skipped = set(refused)
    evaluator = Evaluator(dataclasses.replace(binding, attributes=found))
    for attribute in binding.operator.attributes:
        name = attribute.name
        if name in skipped or _waits_for_array(binding, attribute, skipped):
            continue
        try:
            length = _length_given(binding, name)
            if name in binding.attributes:
                value = binding.attributes[name]
            elif attribute.default is None and length is not None:
                value = length
            elif attribute.default is None:
                message = f"attribute '{name}' is not given, and has no default"
                cure = Note(
                    f"give it: --attr {name}=..., or attributes={{'{name}': ...}} in Python"
                )
                raise DmlcError(mistake(attribute, message, cure, code="E0804"))
            else:
                given = evaluator.constant(attribute.default, any_member(attribute))
                value = convert(attribute, given)
            check_length(attribute, value, evaluator)
            found[name] = value
        except DmlcError as error:
            diagnostics += error.diagnostics
    return found


def any_member(attribute: AttributeDefinition) -> EnumValue | DataType | None:
    """Value that selects the enum, or the data types, in which bare names are looked up; None for
    an attribute that is neither."""
    enum = attribute.enum
    if attribute.type.what is What.TYPE:
        return DataType.FLOAT32
    return None if enum is None else EnumValue(enum, next(iter(enum.members), ""))


def _waits_for_array(
    binding: Binding, attribute: AttributeDefinition, refused: Container[str]
) -> bool:
    """Whether an attribute is missing only because it is the length of an array that is refused or
    missing; that array is reported instead."""
    if attribute.name in binding.attributes or attribute.default is not None:
        return False
    arrays = binding.operator.arrays_of_length(attribute.name)
    missing = all(a.name not in binding.attributes and a.default is None for a in arrays)
    return bool(arrays) and (missing or any(a.name in refused for a in arrays))


def _length_given(binding: Binding, name: str) -> int | None:
    """Length of the given array whose declared length is that attribute; None without one."""
    arrays = (binding.attributes.get(a.name) for a in binding.operator.arrays_of_length(name))
    return next((len(a) for a in arrays if isinstance(a, tuple)), None)


def check_length(attribute: AttributeDefinition, value: Constant, evaluator: Evaluator) -> None:
    if attribute.length is None or not isinstance(value, tuple):
        return
    length = evaluator.constant(attribute.length)
    if length != len(value):
        message = f"attribute '{attribute.name}' needs {show(length)} values, but has {len(value)}"
        raise DmlcError(mistake(attribute, message, code="E0804"))


def convert(attribute: AttributeDefinition, given: object) -> Constant:
    """Converts a caller's value (plain Python, NumPy, or already converted) to the attribute's
    type."""
    if not attribute.is_array:
        return _convert_one(attribute, given)
    try:
        items = expect_items(attribute.name, given, "")
    except ArgumentError:
        raise _wrong(attribute, given, "a list of values") from None
    # An iterable without a length may be infinite.
    taken = list(itertools.islice(items, MOST_ENTRIES + 1))
    if len(taken) > MOST_ENTRIES:
        count = f"{len(given):,}" if isinstance(given, Sized) else f"more than {MOST_ENTRIES:,}"
        message = f"attribute '{attribute.name}' has {count} values; {MOST_ENTRIES:,} at most"
        raise DmlcError(
            mistake(attribute, message, Note("give longer data as a tensor"), code="E0804")
        )
    return tuple(_convert_one(attribute, item) for item in taken)


def _plain(given: object) -> object:
    """Converts a NumPy scalar to Python's own type; returns anything else unchanged."""
    if isinstance(given, bool):
        return given
    if issubclass(type(given), np.bool_):
        return bool(given)
    if isinstance(given, numbers.Integral):
        return int(given)
    if not isinstance(given, numbers.Real):
        return given
    try:
        return float(given)
    except OverflowError:
        # A fraction beyond every float.
        return math.copysign(math.inf, given)


def _convert_one(attribute: AttributeDefinition, given: object) -> Constant:
    value = _plain(given)
    if isinstance(value, OpenSize):
        message = (
            f"attribute '{attribute.name}' is the size '{value}' by itself, which is left open: "
            "give the attribute, or the size a number"
        )
        raise DmlcError(_declared(attribute, Diagnostic(message, code="E0809")))
    match attribute.type.what:
        case What.ENUM:
            return convert_enum(attribute, value)
        case What.STRING:
            if not isinstance(value, str):
                raise _wrong(attribute, given, attribute.type.must_be)
            if attribute.values is not None and value not in attribute.values:
                unknown = unknown_name("value", value, attribute.values, code="E0804")
                raise DmlcError(_declared(attribute, unknown))
            return value
        case What.TYPE:
            return _convert_type(attribute, given)
        case What.BOOL:
            if not isinstance(value, bool | int):
                raise _wrong(attribute, value, attribute.type.must_be)
            made: Constant = bool(value)
        case What.NUMBER | What.UNKNOWN:
            made = _convert_number(attribute, value)
    _check_values(attribute, made)
    return made


def _convert_number(attribute: AttributeDefinition, value: object) -> Constant:
    """Converts a number to the element type of the attribute."""
    holds = attribute.type.holds
    if holds is Holds.FLOAT:
        return _convert_float(attribute, value)
    if holds is Holds.EITHER and isinstance(value, float):
        return value
    return _convert_integer(attribute, value)


def convert_enum(attribute: AttributeDefinition, value: object) -> EnumValue:
    """Member of an attribute's enum, from its name, its number or a member. Raises `DmlcError` for
    an unknown one."""
    enum = attribute.enum
    if enum is None:
        raise DmlcError(f"attribute '{attribute.name}' has no enum", code="E0804")
    if isinstance(value, EnumValue) and value.enum.name == enum.name:
        return value
    if isinstance(value, str):
        member = enum.find(value)
        if member is None:
            unknown = unknown_name(f"member of {enum.name}", value, enum.members, code="E0804")
            raise DmlcError(_declared(attribute, unknown))
        return EnumValue(enum, member)
    if isinstance(value, int) and not isinstance(value, bool):
        for member, number in enum.members.items():
            if number == value:
                return EnumValue(enum, member)
    members = ", ".join(f"{m} = {v}" for m, v in enum.members.items())
    raise _wrong(attribute, value, f"a {enum.name} ({members})")


def _convert_type(attribute: AttributeDefinition, given: object) -> DataType:
    try:
        return as_data_type(f"attribute '{attribute.name}'", given)
    except DmlcError as error:
        raise DmlcError([_declared(attribute, d) for d in error.diagnostics]) from None


def _convert_float(attribute: AttributeDefinition, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(attribute, value, attribute.type.must_be)
    number = float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf
    to = attribute.type.rounds_to
    rounded = round_float(number, to)
    if math.isinf(rounded) and not (isinstance(value, float) and math.isinf(value)):
        largest = float(np.finfo(to.dtype).max)
        raise _wrong(attribute, value, f"a {attribute.type.name} of at most {largest:.9g}")
    return rounded


def _convert_integer(attribute: AttributeDefinition, value: object) -> int:
    (low, high), what = attribute.type.limits, attribute.type.must_be
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _wrong(attribute, value, what)
    if not low <= number <= high:
        raise _wrong(
            attribute,
            value,
            f"at most {high}" if number > high else what if low == 0 else f"at least {low}",
        )
    return number


def _check_values(attribute: AttributeDefinition, value: Constant) -> None:
    """Checks a number or a boolean against the plain literals in the table's `Values` column."""
    if attribute.values is None:
        return
    listed = [_literal(text) for text in attribute.values]
    if any(item is None for item in listed) or value in listed:
        return
    if is_number(value) and any(is_number(i) and _close(i, value) for i in listed if i is not None):
        return
    raise _wrong(attribute, value, f"one of {', '.join(attribute.values)}")


def _close(listed: Constant, value: Constant) -> bool:
    return isinstance(listed, float) and round_float(listed, DataType.FLOAT32) == value


def _literal(text: str) -> Constant | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _declared(attribute: AttributeDefinition, diagnostic: Diagnostic) -> Diagnostic:
    """Diagnostic with a note at the attribute's declaration."""
    note = Note(f"attribute '{attribute.name}' is declared here", attribute.span)
    return dataclasses.replace(diagnostic, notes=(*diagnostic.notes, note))


def _wrong(attribute: AttributeDefinition, value: object, expected: str) -> DmlcError:
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    message = f"attribute '{attribute.name}' must be {expected}, but is {shown}"
    return DmlcError(mistake(attribute, message, code="E0804"))
