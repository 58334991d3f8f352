"""Reference pages that are written from the program: its commands, the IR's JSON form, and that of
what `dmlc qualify` finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from dmlc import cli, compiler, ir
from dmlc.qualify.record import record_schema

WIDTH = 100
"""Columns of the help texts, whatever the terminal."""


def list_commands() -> str:
    """The page of all commands, as `--help` has them."""
    context = click.Context(
        cli.group, info_name="dmlc", terminal_width=WIDTH, **cli.group.context_settings
    )
    lines = ["# Commands", "", "Every command explains itself with `--help`. This page has "
             "the same texts. It is written by `make docs`.", "",
             "A command takes operators in three forms: a name of the "
             "[library](operators/index.md), such as `directml.GEMM`; `FILE.dml`, where that has "
             "one operator or graph; and `FILE.dml:NAME`.", "",
             "Results go to standard output, and everything else to standard error.", "",
             "| exit status | means |", "| --- | --- |", "| 0 | done |",
             "| 1 | the input is at fault, or a check failed |", "| 2 | wrong usage |",
             "| 3 | a device or a tool is missing |", "",
             "| command | does |", "| --- | --- |",
             *(f"| [`{name}`](#dmlc-{name}) | {says} |" for name, says in cli.COMMANDS.items()),
             ""]  # fmt: skip
    for name in cli.COMMANDS:
        command = cli.group.get_command(context, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        lines += [f"## dmlc {name}", "", "<!-- shown: the help text -->", "```text",
                  command.get_help(below), "```", ""]  # fmt: skip
    return "\n".join(lines)


def describe_json() -> str:
    """The page of the IR's JSON form, from its schemas."""
    lines = ["# The JSON form of the IR", "",
             "`dmlc ir --json` and `ir.to_json` write a function as JSON, and `ir.from_json` reads "
             "it. [The tensor IR](ir.md#json-and-what-its-version-promises) says what its version "
             "promises. This page lists every object and every field. It is written by `make docs` "
             "from the JSON Schemas that the package brings, which `ir.function_schema()`, "
             "`compiler.fusion_schema()` and `compiler.kernel_schema()` give. A validator can use "
             "these.", "",
             "Values of a stage's body are a list. Each refers to the ones before it by their "
             "place in the list.", ""]  # fmt: skip
    parts = (
        ("Function", ir.function_schema(), "What `ir.to_json` writes."),
        ("Fusion", compiler.fusion_schema(), "What `compiler.fusion_to_json` writes: a function, "
         "and its kernels."),
        ("Kernel", compiler.kernel_schema(), "What `compiler.kernel_to_json` writes."),
    )  # fmt: skip
    places = {"Function": (parts[0][1], "function")}
    for title, schema, says in parts:
        new = {
            name: below for name, below in schema["$defs"].items()
            if name not in places or (title == "Kernel" and places[name][0] != below)
        }  # fmt: skip
        places |= {name: (below, f"{title}-{name}".lower()) for name, below in new.items()}
        anchors = {name: anchor for name, (_, anchor) in places.items()}
        lines += [f"## {title}", "", says, "", *_describe(schema, anchors)]
        for name, below in new.items():
            lines += [f"### {title}: {name}", "", *_describe(below, anchors)]
    return "\n".join(lines)


def describe_qualification() -> str:
    """The page of the JSON form of what `dmlc qualify` finds, from its schema."""
    schema = record_schema()
    anchors = {name: name.lower() for name in schema["$defs"]}
    lines = ["# The JSON form of a qualification", "",
             "[`dmlc qualify`](../how-to/qualify.md) writes what it finds of a device as "
             "`qualification.json`. This page lists every object and every field. It is written "
             "by `make docs`. The version grows by the rules of "
             "[the IR's JSON form](ir.md#json-and-what-its-version-promises): a minor one adds "
             "fields, which a reader may pass over.", "", *_describe(schema, anchors)]  # fmt: skip
    for name, below in schema["$defs"].items():
        lines += [f"## {name}", "", *_describe(below, anchors)]
    return "\n".join(lines)


def _describe(schema: dict[str, Any], anchors: dict[str, str]) -> Iterator[str]:
    """An object's text, and a row for each of its fields. `anchors` are where objects stand."""
    if "description" in schema:
        yield from (" ".join(schema["description"].split()), "")
    if "properties" not in schema:
        yield from (f"{_name_type(schema, anchors)}.", "")
        return
    yield from ("| field | holds | |", "| --- | --- | --- |")
    for name, field in schema["properties"].items():
        must = "" if name in schema.get("required", ()) else "may be left out"
        yield f"| `{name}` | {_name_type(field, anchors)} | {must} |"
    yield ""


def _name_type(schema: dict[str, Any], anchors: dict[str, str]) -> str:
    """What a field holds, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchors[name]})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return _name_choices(schema["enum"])
    for joint in ("anyOf", "oneOf"):
        if joint in schema:
            return " or ".join(_name_type(choice, anchors) for choice in schema[joint])
    kind = schema.get("type", "any value")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_name_type(item, anchors) for item in schema['prefixItems'])}]"
        inner = _name_type(schema.get("items", {}), anchors)
        return f"a list of ({inner})" if " or " in inner else f"a list of {inner}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _name_choices(choices: list[Any]) -> str:
    """The values of an enumeration, or where the tables have them."""
    if set(choices) == {t.name for t in ir.DataType}:
        return "a [type](ir.md#types)"
    if set(choices) >= set(ir.OPERATIONS):
        rest = [choice for choice in choices if choice not in ir.OPERATIONS]
        others = f", or {_name_choices(rest)}" if rest else ""
        return f"an [operation](ir.md#operations){others}"
    return ", ".join(f"`{json.dumps(value)}`" for value in choices)
