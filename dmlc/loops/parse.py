"""Parsers of nests from text and JSON. Neither contains the phases, which belong to the
function."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, get_args

from dmlc.ir.records import Format, Records, Shape, Word, find_fields, name_class
from dmlc.kernel import nodes as k
from dmlc.loops import nodes
from dmlc.loops.nodes import PLAIN, Buffer, Call, Dim, Kind, Nest, Node, list_buffers, list_dims
from dmlc.loops.phases import Phase
from dmlc.loops.script import parse_script
from dmlc.loops.text import BODIES, Record, find_default, read_line, read_tree
from dmlc.matrices import Instruction, find_instruction
from dmlc.parameters import expect_text
from dmlc.source import DmlcError


@dataclasses.dataclass
class Dimension:
    """A dimension's definition in a document."""


@dataclasses.dataclass
class Array:
    """A buffer's definition in a document."""


FORM = Format("a nest's JSON form", (1, 0), "nest")
_CLASSES = {name_class(kind): kind for kind in (*get_args(Node), Dim, Buffer, Nest)}
_FIRST = {name: dataclasses.fields(kind)[kind is Nest].name for name, kind in _CLASSES.items()}
"""First field of a class, which is written without its name. Text does not contain phases."""
_HEADS = {"dim": "dimensions", "buffer": "arrays"}


def parse_nest(text: str, phases: Sequence[Phase]) -> Nest:
    """Nest from its text, for phases of the function. Raises `DmlcError`."""
    content: Record = {"dimensions": [], "arrays": [], "script": []}
    tree: list[str] = []
    for line in expect_text("text", text).splitlines():
        noun, _, rest = line.partition(" ")
        if not line.strip() or noun == "//":
            continue
        if noun == "call":
            content["script"].append(rest)
        elif noun in _HEADS:
            content[_HEADS[noun]].append(_read_head(line))
        elif noun == "nest":
            content |= _read_head(line)
        else:
            tree.append(line)
    content["body"] = read_tree(tree, _find_first, [kind.value for kind in Kind])
    return _make_records(phases).make(content, Nest)


def nest_to_json(nest: Nest) -> str:
    """Nest, without its phases, as JSON text, indented by two."""
    content = {
        **FORM.head(),
        "dimensions": [PLAIN.record(dim) for dim in list_dims(nest)],
        "arrays": [PLAIN.record(buffer) for buffer in list_buffers(nest)],
        **PLAIN.record(nest, ("phases",)),
    }
    return json.dumps(content, indent=2)


def nest_from_json(text: str, phases: Sequence[Phase]) -> Nest:
    """Nest from the text that `nest_to_json` wrote, for the same phases. Raises `DmlcError` for any
    other text."""
    return _make_records(phases).read(expect_text("text", text), Nest)


def _find_first(noun: str) -> str:
    if noun not in _FIRST:
        raise DmlcError(f"no node is called '{noun}': {', '.join(_FIRST)} are")
    return _FIRST[noun]


def _read_head(line: str) -> Record:
    return {name: value for name, value in read_line(line, _find_first).items() if name != "op"}


def _make_records(phases: Sequence[Phase]) -> Records:
    """Reader of one document, which defines its dimensions and buffers first."""
    known: dict[type, dict[str, Any]] = {Dim: {}, Buffer: {}}

    def list_shape(kind: type) -> Shape:
        def make(fields: Record, where: str) -> Any:
            made = kind(**{**empty, **fields})
            if kind in known and known[kind].setdefault(made.name, made) != made:
                raise DmlcError(f"{where}: there is another '{made.name}'")
            return made

        fields = find_fields(kind)
        empty = {name: () for name in BODIES if name in fields}
        optional = [f.name for f in dataclasses.fields(kind)
                    if f.name in empty or find_default(f) is not dataclasses.MISSING]  # fmt: skip
        return Shape(fields, make, optional=tuple(optional))

    about = list_shape(Nest)
    fields = {**about.fields, "dimensions": tuple[Dimension, ...], "arrays": tuple[Array, ...]}
    order = ("dimensions", "arrays", *(name for name in about.fields if name != "phases"))

    def make_nest(fields: Record, _: str) -> Nest:
        own: Record = {"body": ()}
        own |= {name: value for name, value in fields.items() if name in about.fields}
        return Nest(tuple(phases), **own)

    shapes = {kind: list_shape(kind) for kind in vars(nodes).values()
              if dataclasses.is_dataclass(kind) and isinstance(kind, type)}  # fmt: skip
    shapes |= {
        Dimension: shapes[Dim],
        Array: shapes[Buffer],
        Nest: Shape({name: fields[name] for name in order}, make_nest, optional=about.optional),
    }
    words = {
        Dim: Word(str, known[Dim].get, "a dimension"),
        Buffer: Word(str, known[Buffer].get, "a buffer"),
        k.Scalar: Word(str, k.Scalar, "the name of an argument"),
        Call: Word(str, _read_call, "a call of a primitive"),
        Instruction: Word(str, find_instruction, "a matrix instruction"),
    }
    nouns = {"node": get_args(Node)}
    return Records(shapes, words, nouns, defaultdict(lambda: "a list of another length"), FORM)


def _read_call(text: str) -> Call:
    (call,) = parse_script(text)
    return call
