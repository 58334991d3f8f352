"""`dmlc compile`: sources and a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

import dmlc
from dmlc import interop
from dmlc.binding.values import Constant
from dmlc.binding.values import show as write_constant
from dmlc.cli.arguments import (
    Bindings,
    binding_options,
    matrix_option,
    profile_option,
    read_widths,
    schedule_option,
    show_commands,
    show_warnings,
    table_options,
)
from dmlc.cli.completion import complete_operator
from dmlc.cli.messages import show
from dmlc.codegen.matrix_forms import has_matrices
from dmlc.codegen.targets import TARGETS, find_target
from dmlc.files import write_files
from dmlc.loops.sections import list_targets
from dmlc.matrices import WITHOUT
from dmlc.program import FLOAT_WIDTHS, Program, describe_programs, write_programs
from dmlc.runtime.interface import find_compiler
from dmlc.shader_model import DRAFTS, SHADER_MODELS
from dmlc.source import DmlcError, Source

if TYPE_CHECKING:
    from dmlc.interop.export import Export

_ALL = [target for target in TARGETS if target.is_general]


@click.command(
    "compile",
    epilog="Example: dmlc compile directml.ACTIVATION_RELU_GRAD --target all -o out",
)
@click.argument("operator", shell_complete=complete_operator)
@binding_options
@click.option("--target", type=click.Choice([*(t.name for t in TARGETS), "all"]), default="all",
              show_default=True,
              help=f"The output language; all: {' and '.join(t.name for t in _ALL)}, which express "
              "every operator.")  # fmt: skip
@profile_option
@click.option("--shader-model", type=click.Choice([*SHADER_MODELS, *DRAFTS]),
              default=SHADER_MODELS[0], show_default=True,
              help="Shader model of HLSL. 6.0 requires no 16-bit types: buffers of FLOAT16 and "
              "BFLOAT16 have two elements per word. 6.10 is source text only, with "
              "dx::linalg for matrix instructions: no DXC on PyPI compiles it.")  # fmt: skip
@click.option("--float-controls", metavar="WIDTHS", default=",".join(map(str, FLOAT_WIDTHS)),
              show_default=True, callback=read_widths,
              help="Widths of floats for which .spv files require NaN, infinities and the signs of "
              "zeros (SignedZeroInfNanPreserve), or none. A device accepts the widths that "
              "dmlc devices lists for it.")  # fmt: skip
@matrix_option
@schedule_option
@table_options
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write the files into this folder. Without it, print the sources.")  # fmt: skip
@click.option("--host", type=click.Choice(["cpp", "rust", "csharp"]),
              help="Also write host code. cpp: NAME.hpp for Direct3D 12, which needs d3d12.h "
              "alone; it makes the root signatures, which HLSL then leaves out. rust, csharp: "
              "NAME.rs or NAME.cs for Vulkan, and a file that all programs share; they need no "
              "package. "
              "Without -o, print it in place of the sources.")  # fmt: skip
@click.option("--dxdispatch", is_flag=True,
              help="Also write a DxDispatch model, as dmlc export does. Needs sizes and -o.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the manifest.")
def command(
    operator: str,
    bindings: Bindings,
    target: str,
    profile: str | None,
    shader_model: str,
    float_controls: tuple[int, ...],
    matrix_instructions: list[str],
    schedule: Source | None,
    gpu_class: str | None,
    schedules: Source | None,
    directory: str | None,
    host: str | None,
    dxdispatch: bool,
    as_json: bool,
) -> None:
    """Compile an operator or a graph to HLSL, OpenCL or WGSL sources with a manifest.

    OPERATOR is a name of the library, or FILE[:NAME]. Element-wise operators need no sizes: their
    kernels take the element count when they run. Names in place of sizes, as in
    --tensor X=FLOAT32[N,64], leave these open: one kernel serves them all. So do symbols of a graph
    that no --dim states. With DXC at hand, HLSL is compiled to .dxil and
    .spv as well.
    """
    if dxdispatch and (directory is None or target not in ("hlsl", "all")):
        raise click.UsageError("--dxdispatch needs -o DIR and the target hlsl")
    targets = _ALL if target == "all" else [find_target(target)]
    if matrix_instructions and not any(has_matrices(t.name) for t in targets):
        raise click.UsageError(
            f"--matrix-instruction needs another target than {target}: {WITHOUT[target]}"
        )
    if host is not None and not any(host in t.hosts for t in targets):
        needed = " or ".join(t.name for t in TARGETS if host in t.hosts)
        raise click.UsageError(f"--host {host} needs the target {needed}")
    if shader_model in DRAFTS and (host is not None or dxdispatch):
        option = "--dxdispatch" if dxdispatch else f"--host {host}"
        raise click.UsageError(f"{option} needs another shader model: {DRAFTS[shader_model]}")
    if dxdispatch and schedule is not None:
        raise click.UsageError("--dxdispatch writes kernels of its own, and takes no --schedule")
    meant = [t.name for t in targets]
    if schedule is not None:
        # One file may have schedules for some of several targets.
        meant = [t for t in meant if t in list_targets(schedule, meant)] or meant
    function = bindings.bind(operator)
    programs = [
        dmlc.compile(
            function,
            target=found.name,
            profile=profile,
            shader_model=shader_model if found.shader_models else None,
            float_controls=float_controls if found.shader_models else None,
            root_signature=host != "cpp",  # That host code makes its own.
            schedule=schedule if found.name in meant else None,
            matrix_instructions=matrix_instructions if has_matrices(found.name) else (),
            gpu_class=gpu_class,
            schedules=schedules,
        )
        for found in targets
    ]
    show_warnings(warning for program in programs for warning in program.warnings)
    if directory is not None:
        _show_literals(operator, bindings)
    export: Export | None = None
    if dxdispatch:
        subject = bindings.find(operator)
        described, given, dims = bindings.read(subject)
        proof = interop.proof.prove(subject, described, given, dims=dims)
        export = interop.export.export_proof(proof, interop.export.DXDISPATCH, shader_model)
    compiled: dict[str, bytes] = {}
    for found, program in zip(targets, programs, strict=True):
        if directory is not None and found.compiler:
            compiled |= find_compiler(found.compiler).compile_files(program)
    headers = _write_headers(programs, host, compiled) if host is not None else {}
    if directory is not None:
        compiled |= {name: text.encode() for name, text in headers.items()}
        paths = write_programs(programs, directory, compiled)
        if export is not None:
            paths += write_files(Path(directory) / "dxdispatch", export.files)
            show_commands("on Windows, in the folder dxdispatch", export.commands)
        for path in paths:
            (show if as_json else click.echo)(str(path))
    elif headers and not as_json:
        click.echo("\n".join(headers.values()), nl=False)
    elif not as_json:
        click.echo("\n".join(k.source for p in programs for k in p.kernels), nl=False)
    if as_json:
        click.echo(json.dumps(describe_programs(programs, compiled), indent=2))


def _show_literals(text: str, bindings: Bindings) -> None:
    """Shows the attributes whose values are constants in kernels, and which of these may be
    inputs."""
    subject = None if text.endswith(".ir") else bindings.find(text)
    if not isinstance(subject, dmlc.Operator):
        return
    described, given, _ = bindings.read(subject)
    held = subject.resolve(described, given).attributes
    literals = {name: value for name, value in held.items() if given.get(name) is not dmlc.OPEN}
    if not literals:
        return

    def can_be_open(name: str) -> bool:
        try:
            subject.bind(described, {**given, name: dmlc.OPEN})
        except DmlcError:
            return False
        return True

    shown = ", ".join(f"{name} = {_write_value(value)}" for name, value in literals.items())
    opened = [f"--open {name}" for name in literals if can_be_open(name)]
    cure = f"; {', '.join(opened)} leaves it open until they run" if opened else ""
    if len(opened) > 1:
        cure = f"; {', '.join(opened)} leave these open until they run"
    show(f"note: attributes that are literals in the kernels: {shown}{cure}")


def _write_value(value: Constant) -> str:
    """Attribute's value in the digits of FLOAT32."""
    return f"{value:.7g}" if isinstance(value, float) else write_constant(value)


def _write_headers(
    programs: Iterable[Program], host: str, compiled: Mapping[str, bytes]
) -> dict[str, str]:
    """Host code of the programs that can have it, by file name; `compiled` has the machine code of
    their kernels, if available."""
    hosted = [p for p in programs if host in find_target(p.target).hosts]
    if host == "cpp":
        cpp = interop.cpp_header
        return {cpp.header_name(p): cpp.write_header(p, compiled) for p in hosted}
    written = (interop.vulkan_hosts.write_hosts(p, host, compiled) for p in hosted)
    return {name: text for each in written for name, text in each.items()}
