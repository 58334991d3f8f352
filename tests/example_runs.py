"""Every example of an operator, run on a device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from dmlc.binding import Operator
from dmlc.testing.examples import read_cases
from dmlc.testing.outcome import Outcome, check_example


def run_examples(operator: Operator, device: str = "opencl") -> Iterator[Outcome]:
    """Outcomes of the examples, with every permitted choice of data types that represents their
    numbers."""
    definition = operator.definition
    for example in (*definition.examples, *definition.differences):
        for case in read_cases(operator, example):
            with warnings.catch_warnings():
                # Warnings about slow kernels are no errors.
                warnings.simplefilter("ignore", UserWarning)
                outcome = check_example(case, device)
            yield outcome
