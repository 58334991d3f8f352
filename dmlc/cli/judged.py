"""Foreign kernels judged by `dmlc test --kernel`, and their reports."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import click

from dmlc.binding import Operator
from dmlc.files import read_bounded, write_files
from dmlc.testing.candidate import Options
from dmlc.testing.judging import Judgement, judge
from dmlc.testing.report import write_junit

_MODULE = re.compile(rb"^class (Model|ModelNew)\b", re.MULTILINE)
"""Class definition in a file with a PyTorch module, in KernelBench's naming."""
_MOST_BYTES = 1 << 20


def judge_files(
    kernel: str,
    operator: Operator,
    device: str | None,
    cases: int,
    seed: int,
    failures: Path,
    options: Options,
) -> list[Judgement]:
    """Judgements of the kernel in a file, or of each PyTorch module in a file or a folder."""
    path = Path(kernel)
    is_python = path.suffix == ".py"
    if path.is_dir() or (is_python and _MODULE.search(read_bounded(path, _MOST_BYTES))):
        if dataclasses.replace(options, where="") != Options():
            raise click.UsageError("modules of PyTorch take of these options --where alone")
        models = importlib.import_module("dmlc.torch.models")
        judged: list[Judgement] = models.judge_models(
            path, operator, device=device or "cpu", cases=cases, seed=seed, failures=failures,
            where=options.where,
        )  # fmt: skip
        return judged
    stated = dataclasses.asdict(options)
    run = {"device": device, "cases": cases, "seed": seed, "failures": failures}
    return [judge(path, operator, **run, **stated)]


def show_judged(judged: Sequence[Judgement], junit: str | None, as_json: bool) -> int:
    """Shows the judgements of candidates, and returns the exit status."""
    if junit is not None:
        path = Path(junit)
        text = write_junit([each.report for each in judged])
        write_files(path.parent, {path.name: text.encode()})
    if as_json:
        click.echo(json.dumps([each.to_json() for each in judged], indent=2))
    else:
        click.echo("\n\n".join(map(str, judged)))
    return 0 if all(each.passed for each in judged) else 1
