"""Writes proofs into folders for machines of other people: one entry per kind of tool."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from dmlc.files import name_file, write_files
from dmlc.interop.dxdispatch import make_model
from dmlc.interop.offload import make_test
from dmlc.interop.proof import Proof
from dmlc.processes import spell_command
from dmlc.source import find_named
from dmlc.testing.case import Case

DXDISPATCH, OFFLOAD = "dxdispatch", "offload-test-suite"
DOMAIN = "dmlc"
"""The domain of operators for ONNX Runtime that are given no other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """Exported files, and the commands to run on the target machine."""

    files: Mapping[str, bytes]
    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the files cannot do, a sentence each."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProofFormat:
    """Input format of a kind of tool."""

    summary: str
    place: str
    """Where its commands are run."""
    write: Callable[[Proof, str | None], Export]
    """The files of a proof, for a shader model."""


def _write_model(proof: Proof, shader_model: str | None) -> Export:
    model = make_model(proof, shader_model)
    return Export(model.all_files(), tuple(model.list_commands()))


def _write_test(proof: Proof, shader_model: str | None) -> Export:
    name = name_file(proof.function.name, ".test")
    text = make_test(proof, shader_model)
    return Export({name: text.encode()}, (spell_command("llvm-lit", name),))


FORMATS: Mapping[str, ProofFormat] = MappingProxyType(
    {
        DXDISPATCH: ProofFormat(
            "a folder for DxDispatch, which runs Direct3D 12 shaders beside DirectML",
            "on Windows, in that folder",
            _write_model,
        ),
        OFFLOAD: ProofFormat(
            "a test file of LLVM's offload-test-suite, for Direct3D 12, Vulkan and Metal",
            "in the suite's build, with the file among its tests",
            _write_test,
        ),
    }
)
"""The formats of proofs, by name."""


def export_proof(proof: Proof, to: str, shader_model: str | None = None) -> Export:
    """Files of a proof for the tool `to`, one of `FORMATS`. Raises `DmlcError` if HLSL or the
    tool's files cannot express it."""
    return find_named("format", to, FORMATS).write(proof, shader_model)


def export_case(case: Case, folder: str | Path, to: str = DXDISPATCH) -> list[Path]:
    """Writes a case of the harness into a folder, for a tool of `FORMATS`, and returns the paths.
    Raises as `export_proof` does."""
    return write_files(folder, export_proof(Proof.of_case(case), to).files)
