"""Proofs for machines that others have, written into folders: one entry for each kind of tool."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from dmlc.files import write_files
from dmlc.interop.dxdispatch import make_model
from dmlc.interop.offload import make_test
from dmlc.interop.proof import Proof
from dmlc.source import UnknownNameError, unknown_name
from dmlc.testing.case import Case

DXDISPATCH, OFFLOAD = "dxdispatch", "offload-test-suite"
FORMATS = (DXDISPATCH, OFFLOAD)


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """The files of a proof, and what to run beside them on the machine they are meant for."""

    files: Mapping[str, bytes]
    commands: tuple[str, ...]


def export_proof(
    proof: Proof, to: str, shader_model: str | None = None, contract: bool = False
) -> Export:
    """A proof as the files that a tool runs; `to` is one of `FORMATS`. Raises `DmlcError` where
    HLSL or the tool's files cannot express it."""
    match to:
        case "dxdispatch":
            model = make_model(proof, shader_model, contract)
            return Export(model.all_files(), tuple(model.list_commands()))
        case "offload-test-suite":
            name = f"{proof.function.name}.test"
            text = make_test(proof, shader_model, contract)
            return Export({name: text.encode()}, (f"llvm-lit {name}",))
        case _:
            raise UnknownNameError(unknown_name("format", to, FORMATS))


def export_case(case: Case, folder: str | Path, to: str = DXDISPATCH) -> list[Path]:
    """Writes a case of the harness into a folder, for a tool of `FORMATS`, and gives the paths.
    Raises as `export_proof` does."""
    return write_files(folder, export_proof(Proof.of_case(case), to).files)

