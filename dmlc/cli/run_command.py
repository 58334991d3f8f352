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
              help="Compare with the reference and say PASS or FAIL; exit with 1 where a result is "
              "not near enough.",
              )  # fmt: skip
@click.option("--check-memory", "checked", is_flag=True,
              help="Look for stray stores, reads out of bounds and races; exit with 1 where there "
              "are any.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write what was done as JSON.")
def command(
    call: RunOptions,
    directory: str | None,
    verified: bool,
    checked: bool,
    as_json: bool,
) -> int:
    """Run an operator or a graph on arrays.

    OPERATOR is a name of the library, FILE[:NAME], or FILE.ir with a function. Types and sizes are
    those of the arrays; --tensor says them for outputs where they cannot be inferred, --dim for
    symbols of a graph that no input has. Where --tensor leaves sizes open, as X=FLOAT32[N,64] does,
    the kernels are those that serve all sizes, and take theirs from the arrays. The weights that
    dmlc import-onnx wrote beside FILE.ir are read from there. bfloat16, which
    .npy files have no name for, is read from two plain bytes an element, or from 16-bit integers
    with --tensor NAME=BFLOAT16; it is written as plain bytes. Without -o the values of each result
    are summed up: the smallest, the largest and the mean of what is finite, and the first ones.
    """
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
