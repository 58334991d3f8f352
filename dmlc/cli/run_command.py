"""`dmlc run`: operator or graph on arrays."""

from __future__ import annotations

import json
from typing import Any

import click

import dmlc
from dmlc.cli.arrays import encode_array
from dmlc.cli.calls import RunOptions, call_options
from dmlc.cli.messages import show
from dmlc.cli.values import describe_values
from dmlc.devices import REFERENCE, RUNTIMES, find_promises
from dmlc.files import name_file, write_files
from dmlc.known_answers import explain_failure
from dmlc.runtime.floats import LEAST
from dmlc.source import counted
from dmlc.testing.compare import Verdict
from dmlc.testing.memory import check_run, name_tool
from dmlc.testing.verify import verify


@click.command(
    "run",
    epilog="Example: dmlc run directml.ACTIVATION_RELU_GRAD --input InputTensor=x.npy "
    "--input InputGradientTensor=dy.npy -o out --verify",
)
@call_options(
    f"{', '.join(RUNTIMES)}, each also with :<index or part of a name>, a simulated one with "
    f":<seed>; or {REFERENCE}."
)
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write each output to DIR/NAME.npy.")  # fmt: skip
@click.option("--verify", "verified", is_flag=True,
              help="Compare with the reference and print PASS or FAIL; exit with 1 if an error "
              "exceeds its bound.",
              )  # fmt: skip
@click.option("--check-memory", "checked", is_flag=True,
              help="Check for accesses out of bounds and races; exit with 1 if there are any.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write a report as JSON.")
def command(
    call: RunOptions,
    directory: str | None,
    verified: bool,
    checked: bool,
    as_json: bool,
) -> int:
    """Run an operator or a graph on arrays.

    OPERATOR is a name of the library, FILE[:NAME], or FILE.ir with a function. Types and sizes are
    those of the arrays; --tensor gives those of outputs that cannot be inferred, --dim the values
    of symbols that no input has. If --tensor leaves sizes open, as in X=FLOAT32[N,64], the kernels
    are those for all sizes. The weights that dmlc import-onnx wrote beside FILE.ir are read from
    there. .npy files have no name for bfloat16: it is read from elements of two plain bytes, or
    from 16-bit integers with --tensor NAME=BFLOAT16, and written as plain bytes. Without -o, a
    summary of each result is shown: the smallest, the largest and the mean finite value, and the
    first values."""
    results = dmlc.run(*call.arguments)
    problems = check_run(*call.arguments) if checked else []
    floats = find_promises(call.device) if verified else LEAST
    verdicts: dict[str, Verdict] = {}
    if verified:
        arrays, given, dims = call.arrays, call.attributes, call.dims
        verdicts = verify(call.subject, arrays, given, results, dims, floats)
    if directory is not None:
        files = {name_file(name, ".npy"): encode_array(a) for name, a in results.items()}
        write_files(directory, files)
    if as_json:
        said = _describe(results, verdicts)
        if checked:
            said |= {"memory": problems, "memory_tool": name_tool(call.device)}
        click.echo(json.dumps(said, indent=2))
    else:
        for name, array in results.items():
            said = ""
            if name in verdicts:
                said = f": {'PASS' if verdicts[name].holds else 'FAIL'}, {verdicts[name]}"
            click.echo(f"{name} {array.dtype}{list(array.shape)}{said}")
            for line in [] if directory is not None else describe_values(array):
                click.echo(f"  {line}")
        if checked:
            said = counted(len(problems), "problem") if problems else "nothing stray"
            click.echo("\n".join([f"memory, by {name_tool(call.device)}: {said}", *problems]))
        show(str(results.report))
    if all(verdict.holds for verdict in verdicts.values()):
        return 1 if problems else 0
    said = explain_failure(call.device)
    if said:
        show(said)
    return 1


def _describe(results: dmlc.Results, verdicts: dict[str, Verdict]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for name, array in results.items():
        outputs[name] = {"dtype": str(array.dtype), "sizes": list(array.shape)}
        if name in verdicts:
            verdict = verdicts[name]
            outputs[name]["verified"] = {
                "holds": verdict.holds,
                "different": verdict.different,
                "largest_difference": verdict.largest,
                "largest_relative": verdict.largest_relative,
                "largest_ulp": verdict.largest_ulp,
                "out_of_place": verdict.misplaced,
            }
    return {"outputs": outputs, "report": str(results.report)}
