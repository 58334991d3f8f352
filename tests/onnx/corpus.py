"""The corpus of the export: every example of the library with every data type that it permits.

`python -m tests.onnx.corpus` exports all of it, runs each model in ONNX's reference evaluator and
says what came of it: exported, right within the computed bounds, refused with the reason. It
leaves with 1 where a model is wrong or a function is refused: no function of the library is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import dmlc
from dmlc.binding import Operator, ir_name
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from dmlc.testing.case import Case, judge
from dmlc.testing.examples import read_cases


def list_cases(operator: Operator) -> Iterator[Case]:
    for example in operator.definition.examples:
        yield from read_cases(operator, example)


def run_model(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What ONNX's own evaluator gives for a model that its checker has passed."""
    onnx.checker.check_model(model, full_check=True)
    given = {i.name: np.ascontiguousarray(inputs[i.name]).reshape(inputs[i.name].shape)
             for i in model.graph.input}  # fmt: skip
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, given)
    names = [output.name for output in model.graph.output]
    return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}


def find_faults(case: Case) -> list[str]:
    """What is wrong with the results of a case's model; nothing where all are right. Raises
    `UnsupportedError` where there is no model."""
    call = case.call
    given = {ir_name(name): array for name, array in case.inputs.items()}
    found = run_model(dmlc.onnx.export(call.function), given)
    results = {name: found[ir_name(name)] for name in call.outputs}
    return [f"{n}: {v}" for n, v in judge(case, results).items() if not v.holds]


def main() -> int:
    counts: Counter[str] = Counter()
    for operator in dmlc.operators().values():
        for case in list_cases(operator):
            counts["functions"] += 1
            try:
                faults = find_faults(case)
            except UnsupportedError as error:
                counts["refused"] += 1
                print(f"refused: {case!r}\n    {error}")
                continue
            counts["exported"] += 1
            counts["wrong" if faults else "right"] += 1
            for fault in faults:
                print(f"wrong: {case!r}\n    {fault}")
    print(", ".join(f"{counts[kind]} {kind}" for kind in
                    ("functions", "exported", "right", "wrong", "refused")))  # fmt: skip
    return int(counts["right"] != counts["functions"])


if __name__ == "__main__":
    sys.exit(main())
