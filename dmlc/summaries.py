"""Summaries of the built-in operators, stored in `library/index.json`, so that listing the library
does not parse it. `python docs/build.py` writes the index. An entry for a changed file is
ignored."""

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
"""Folder of the built-in operators, with a folder per family."""
INDEX = FOLDER / "index.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Summary of an operator for `dmlc ops`."""

    types: tuple[str, ...]
    """Data types that its tensors may have at the newest feature level."""
    ranks: tuple[int, ...]
    forward: str | None
    """Operator it is the gradient of."""
    differentiable: bool
    """Whether it has both floating-point inputs and floating-point outputs."""
    tensors: tuple[str, ...]
    """Names of its tensors at the newest feature level."""
    attributes: tuple[str, ...]


def list_files() -> dict[str, Path]:
    """Files of the built-in operators by qualified name, sorted, without reading them."""
    found = {
        f"{path.parent.name}.{path.stem}": path
        for path in FOLDER.glob("*/*.dml")
        if path.stem[:1].isupper()
    }
    return dict(sorted(found.items()))


def summarize(definition: OperatorDefinition) -> Summary:
    """Summary of an operator's definition."""
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
    """Summaries of the files that are unchanged since the index was written."""
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
    """Text of an index of some built-in operators, with a line for each."""
    files = list_files()
    lines = [_write_entry(d.name, files[d.name], summarize(d)) for d in definitions]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _write_entry(name: str, path: Path, summary: Summary) -> str:
    entry: Mapping[str, object] = {"file": _digest(path), **dataclasses.asdict(summary)}
    return f"{json.dumps(name)}: {json.dumps(entry)}"


def _digest(path: Path) -> str:
    """Digest of a file's content."""
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
