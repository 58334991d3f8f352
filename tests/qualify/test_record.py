"""The JSON form of a record, and what is refused as none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dmlc import ir
from dmlc.qualify.record import (
    Answers,
    Qualification,
    parse_record,
    read_record,
    record_schema,
    write_record,
)
from dmlc.source import DmlcError
from tests.qualify.records import FAILURE, MACHINE, REASON, TESTS, fail, make_record

RECORDS = (
    make_record(),
    make_record(answers=Answers(("sqrt(A) is 1",), "", 1.0), tests=fail(FAILURE)),
    make_record(tests=dataclasses.replace(TESTS, allowed=30, unsupported=(REASON,))),
)


@pytest.mark.parametrize("record", RECORDS, ids=("right", "wrong", "short"))
def test_reading_undoes_writing(record: Qualification) -> None:
    text = write_record(record)
    assert parse_record(text) == record
    jsonschema.validate(json.loads(text), record_schema())


def test_it_says_what_it_is() -> None:
    content = json.loads(write_record(make_record()))
    assert (content["form"], content["version"]) == ("dmlc qualification", "1.0")


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda c: c.pop("form"), "expected 'dmlc qualification' for 'form', found None"),
    (lambda c: c.update(form="poem"), "expected 'dmlc qualification' for 'form', found 'poem'"),
    (lambda c: c.update(version="0.9"),
     "expected version '1.0' of the JSON form of a qualification, found '0.9'"),
    (lambda c: c.update(version="2.0"),
     "this is version 2.0 of the JSON form of a qualification, in which the same may mean "
     "something else: this dmlc reads versions up to 1"),
    (lambda c: c.update(tests=[]), "the qualification, its tests: expected an object, found []"),
    (lambda c: c.pop("machine"), "the qualification: 'machine' is missing"),
    (lambda c: c["tests"].update(cases="6"), "expected an integer for 'cases', found '6'"),
    (lambda c: c["tests"].update(allowed=1.5), "expected an integer for 'allowed', found 1.5"),
    (lambda c: c["speeds"]["kernels"][0].update(ratio="fast"),
     "speed 'transpose': expected a float for 'ratio', found 'fast'"),
    (lambda c: c["speeds"]["kernels"][0].update(ratio=True),
     "speed 'transpose': expected a float for 'ratio', found True"),
    (lambda c: c["verdict"].update(status="fine"), "expected one of 'qualified'"),
    (lambda c: c.update(poem=""), "the qualification: unknown field 'poem'"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_what_is_no_record_is_refused(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    content = json.loads(write_record(make_record()))
    change(content)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DmlcError) as caught:
        read_record(path)
    message = caught.value.diagnostics[0].message
    assert message.startswith(f"'{path}' is no file that this dmlc's `qualify` wrote: ")
    assert said in message


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, '"dmlc"', "{}", '{"form": "\\u001b[2J"}', "\0\xff"]
)
def test_broken_files_are_refused_in_plain_characters(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DmlcError) as caught:
        read_record(path)
    assert "\x1b" not in str(caught.value)


def test_a_function_of_the_ir_is_no_record() -> None:
    function = ir.parse("func @f(%x: f32[2]) -> (%y) {\n  %y: f32[i0 < 2] = %x[i0]\n}")
    with pytest.raises(DmlcError, match="expected 'dmlc qualification' for 'form', found None"):
        parse_record(ir.to_json(function))


def test_a_newer_minor_version_may_have_more_fields() -> None:
    content = json.loads(write_record(make_record()))
    content |= {"version": "1.1", "mood": "good"}
    assert parse_record(json.dumps(content)) == make_record()


def test_whole_numbers_are_floats_as_well() -> None:
    content = json.loads(write_record(make_record()))
    content["speeds"]["kernels"][0]["ratio"] = 2
    assert parse_record(json.dumps(content)) == make_record()
    content["speeds"]["kernels"][0]["ratio"] = 10**400
    with pytest.raises(DmlcError, match="for 'ratio'"):
        parse_record(json.dumps(content))


def test_texts_come_without_what_steers_a_terminal() -> None:
    machine = dataclasses.replace(MACHINE, name="Card\x1b[31m\u202e\r\n\tred")
    assert parse_record(write_record(make_record(machine))).machine.name == "Card�[31m��\n\tred"
    content = json.loads(write_record(make_record()))
    content["machine"]["name"] = "Card\x1b[31m"
    assert parse_record(json.dumps(content)).machine.name == "Card�[31m"
