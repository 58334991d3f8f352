"""Pytest items of a `.dml` file: one for each example of each operator, and one for the random
cases of an operator on each device.

A file with errors is an error of collection, which shows them. A failure is reported as `dmlc test`
reports it, without a traceback, and kept in a folder that can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dmlc.binding import Operator
from dmlc.catalog import load
from dmlc.devices import DEFAULT
from dmlc.known_answers import find_trusted
from dmlc.language import syntax
from dmlc.source import DmlcError, Source
from dmlc.testing.harness import CASES, OperatorTest, Settings
from dmlc.testing.jobs import Done
from dmlc.testing.outcome import Status
from dmlc.testing.report import Report

_Node = TypeVar("_Node", bound=pytest.Item | pytest.Collector)


class DmlFile(pytest.File):
    """File with its operators, without those that it imports."""

    def collect(self) -> Iterator[DmlOperator]:
        try:
            operators = load(self.path).operators.values()
        except DmlcError as error:
            raise self.CollectError(str(error)) from None
        for operator in operators:
            if self._defines(operator):
                name = operator.definition.short_name
                yield _make(DmlOperator, self, name=name, operator=operator)

    def _defines(self, operator: Operator) -> bool:
        source: Source = operator.definition.syntax.name.span.source
        return Path(source.name).resolve() == self.path.resolve()


class DmlOperator(pytest.Collector):
    """An operator of a file."""

    def __init__(self, *, operator: Operator, **given: Any) -> None:
        super().__init__(**given)
        self.operator = operator

    def collect(self) -> Iterator[DmlItem]:
        devices: list[str] = self.config.option.dmlc_devices or [DEFAULT]
        titles: dict[str, int] = {}
        definition = self.operator.definition
        for example in (*definition.examples, *definition.differences):
            count = titles[example.title] = titles.get(example.title, 0) + 1
            name = example.title if count == 1 else f"{example.title} ({count})"
            yield _make(
                DmlItem, self, name=name, operator=self.operator, devices=devices, example=example
            )
        for device in devices if self.config.option.dmlc_cases != 0 else ():
            name = f"generated[{device}]"
            yield _make(DmlItem, self, name=name, operator=self.operator, devices=[device])


def _make(kind: type[_Node], parent: pytest.Collector, **given: object) -> _Node:
    """Node made in pytest's way."""
    maker: Any = kind
    made: _Node = maker.from_parent(parent, **given)
    return made


class Failed(Exception):
    """Raised for cases that failed: pytest shows the report, and no traceback."""


class DmlItem(pytest.Item):
    """Item of an example, with each choice of data types that represents its numbers, on each
    device; without an example, of an operator's random calls."""

    def __init__(
        self,
        *,
        operator: Operator,
        devices: list[str],
        example: syntax.Example | None = None,
        **given: Any,
    ) -> None:
        base: Any = super()
        base.__init__(**given)
        self.operator = operator
        self.devices = devices
        self.example = example

    def runtest(self) -> None:
        options = self.config.option
        for device in self.devices:
            find_trusted(device)
        cases = CASES if options.dmlc_cases is None else options.dmlc_cases
        folder = Path(options.dmlc_failures)
        settings = Settings(
            tuple(self.devices),
            options.dmlc_seed,
            cases,
            folder if folder.is_absolute() else self.config.invocation_params.dir / folder,
        )
        report = Report(settings.devices, settings.seed)
        test = OperatorTest(self.operator, settings)
        ran = test.run_drawn() if self.example is None else test.run_example(self.example)
        outcomes = tuple(outcome.without_arrays() for outcome in ran)
        report.add(Done(self.operator.name, outcomes, test.summarize()))
        if report.failures:
            raise Failed(f"{report.render_failures()}\n\n{report.render_verdict()}")
        if all(outcome.status is Status.UNSUPPORTED for outcome in report.outcomes):
            reason = report.render_unsupported().strip()
            pytest.skip(f"nothing of it can be run: {reason or 'there are no cases'}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failed | DmlcError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        syntax = self.operator.definition.syntax
        line = (self.example or syntax.name).span.line
        return self.path, line - 1, f"{self.operator.definition.short_name}::{self.name}"
