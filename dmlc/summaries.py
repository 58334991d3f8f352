"""What lists say of the built-in operators, in a few words each, kept in `library/index.json`.

To list the library must not mean to parse it. `python docs/build.py` writes the index. An entry
counts only while its file is the one it was made from: of any other file there is none here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlc.language.definitions import OperatorDefinition

FOLDER = Path(__file__).resolve().parent / "library"
"""Where the built-in operators lie, in a folder per family."""
INDEX = FOLDER / "index.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """One operator, as `dmlc ops` shows it."""

    types: tuple[str, ...]
    """The data types that its tensors may have at the newest feature level."""
    ranks: tuple[int, ...]
    forward: str | None
    """The operator it is the gradient of."""
    differentiable: bool
    """Whether it is given floating-point numbers and gives some."""
    tensors: tuple[str, ...]
    """Its tensors, by name, at the newest feature level."""
    attributes: tuple[str, ...]


def list_files() -> dict[str, Path]:
    """The files of the built-in operators by qualified name, sorted. Reads none of them."""
    found = {
        f"{path.parent.name}.{path.stem}": path
        for path in FOLDER.glob("*/*.dml")
        if path.stem[:1].isupper()
    }
    return dict(sorted(found.items()))


def summarize(definition: OperatorDefinition) -> Summary:
    """The summary of an operator that has been read."""
    tensors = definition.newest.tensors
    types = [t.name for tensor in tensors for t in tensor.dtypes]
    if definition.combinations:
        types = [t.name for row in definition.combinations for some in row.types.values()
                 for t in some]  # fmt: skip
    ranks = sorted({rank for tensor in tensors for rank in tensor.ranks})
    return Summary(
        tuple(dict.fromkeys(types)),
        tuple(ranks),
        definition.forward,
        definition.is_differentiable,
        tuple(tensor.name for tensor in tensors),
        tuple(attribute.name for attribute in definition.attributes),
    )


def read_index() -> dict[str, Summary]:
    """The summaries of the files that are as they were when the index was written."""
    if not INDEX.is_file():
        return {}
    entries: dict[str, dict[str, Any]] = json.loads(INDEX.read_text("utf-8"))
    found: dict[str, Summary] = {}
    for name, path in list_files().items():
        entry = entries.get(name)
        if entry is not None and entry["file"] == _digest(path):
            found[name] = Summary(
                tuple(entry["types"]),
                tuple(entry["ranks"]),
                entry["forward"],
                entry["differentiable"],
                tuple(entry["tensors"]),
                tuple(entry["attributes"]),
            )
    return found


def write_index(definitions: Iterable[OperatorDefinition]) -> str:
    """The text of an index of some built-in operators, a line for each."""
    files = list_files()
    lines = [_write_entry(d.name, files[d.name], summarize(d)) for d in definitions]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _write_entry(name: str, path: Path, summary: Summary) -> str:
    entry: Mapping[str, object] = {"file": _digest(path), **dataclasses.asdict(summary)}
    return f"{json.dumps(name)}: {json.dumps(entry)}"


def _digest(path: Path) -> str:
    """What tells one version of a file from another."""
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
