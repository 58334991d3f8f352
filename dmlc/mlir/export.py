"""Export of a function of the tensor IR to MLIR: one `linalg.generic` for each stage.

The function is exported after the passes, without fusion, which is left to MLIR's compilers.
Tensors are values here, so strides are not exported.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.binding import Graph, Operator
from dmlc.binding.operator import Description
from dmlc.catalog import find_function
from dmlc.files import name_file
from dmlc.interop.export import Export
from dmlc.ir import Function, verify
from dmlc.ir.print import print_stage
from dmlc.ir.ranges import number_ranges, table_ranges
from dmlc.mlir.loadless import replace_loadless
from dmlc.mlir.region import FunctionSymbols, Region
from dmlc.mlir.sizes import Sizes
from dmlc.mlir.spelling import spell_tensor
from dmlc.mlir.stages import StageWriter
from dmlc.pipeline import rewrite
from dmlc.transform.unroll import unroll_loops

COMPILE_FLAGS = (
    "--iree-hal-target-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f64-to-f32=false",
)
"""Options of IREE's compiler for the CPU. By default it replaces FLOAT64 by FLOAT32."""


def export(
    subject: Function | Operator | Graph | str,
    tensors: Mapping[str, Description] | None = None,
    attributes: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
) -> str:
    """Text of an MLIR module with one function, `func.func` on tensors: a given function, or that
    of an operator, or its name, with these tensors and attributes, or of a graph with these tensors
    and symbols, as `bind` of both takes them. Open sizes become dynamic dimensions (`?`)."""
    bound = find_function(subject, tensors, attributes, dims, "subject")
    verify(bound)
    made = replace_loadless(rewrite(unroll_loops(bound, "MLIR")))
    verify(made)
    return _write(made)


def export_files(function: Function, subject: Operator | Graph) -> Export:
    """File of a function, and IREE's command that compiles it."""
    source, module = (name_file(function.name, suffix) for suffix in (".mlir", ".vmfb"))
    flags = " ".join(COMPILE_FLAGS)
    command = f"iree-compile {flags} {source} -o {module}"
    return Export({source: export(function).encode()}, (command,))


def _write(function: Function) -> str:
    names = FunctionSymbols(dict.fromkeys(function.tensors()))
    region = Region(names, prefix="size")
    for table in function.tables:
        names.add_table(function.name, table)
    reach = table_ranges(function.tables) | number_ranges(function.stages)
    sizes = Sizes(function, region)
    writer = StageWriter(region, sizes, function.tensors(), reach)
    for stage in function.stages:
        region.lines += ["", *(f"// {line}" for line in print_stage(stage))]
        writer.write(stage)
    parameters = ", ".join(
        f"%{p.name}: {spell_tensor(p.dtype, p.extents)}" for p in function.parameters
    )
    given = [stage for r in function.results if (stage := function.stage(r.name)) is not None]
    kinds = ", ".join(spell_tensor(stage.dtype, stage.extents) for stage in given)
    lines = [*names.list_constants(), *region.lines, ""]
    lines = lines[lines[0] == "" :]
    lines.append(f"return {', '.join(f'%{stage.name}' for stage in given)} : {kinds}")
    text = [
        *_describe(function),
        f"func.func @{function.name}({parameters}) -> ({kinds}) {{",
        *(f"  {line}" if line else "" for line in lines),
        "}",
        *_write_resources(names),
    ]
    return "\n".join(text) + "\n"


def _describe(function: Function) -> list[str]:
    """Description of the function's parameters and results: MLIR's types have no sign, and its
    results no names."""
    lines = [f"// {function.name}"]
    for role, tensors in (
        ("takes", function.parameters),
        ("gives", [s for r in function.results if (s := function.stage(r.name)) is not None]),
    ):
        for tensor in tensors:
            sizes = ", ".join(map(str, tensor.extents))
            lines.append(f"//   {role} %{tensor.name}: {tensor.dtype.name}[{sizes}]")
    return lines


def _write_resources(names: FunctionSymbols) -> list[str]:
    if not names.resources:
        return []
    entries = [f'      {name}: "0x{text}"' for name, text in names.resources.items()]
    return [
        "",
        "{-#",
        "  dialect_resources: {",
        "    builtin: {",
        *[f"{entry}," for entry in entries[:-1]],
        entries[-1],
        "    }",
        "  }",
        "#-}",
    ]
