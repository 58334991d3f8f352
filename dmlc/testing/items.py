"""What pytest collects of a `.dml` file: an item for each example of each operator, and one for the
cases that are drawn of an operator on a device.

A file with mistakes is an error of collection, which shows them. A failure is reported as
`dmlc test` reports it, without a traceback, and kept in a folder that runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmlc.binding import Operator
from dmlc.catalog import load
from dmlc.devices import DEFAULT
from dmlc.known_answers import find_trusted
from dmlc.language import syntax
from dmlc.source import DmlcError, Source
from dmlc.testing.harness import CASES, OperatorTest, Settings
from dmlc.testing.outcome import Outcome, Status
from dmlc.testing.report import Report


class DmlFile(pytest.File):
    """A file and its operators, without those that it imports."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            operators = load(self.path).operators.values()
        except DmlcError as error:
            raise self.CollectError(str(error)) from None
        devices: list[str] = self.config.getoption("dmlc_devices") or [DEFAULT]
        cases: int | None = self.config.getoption("dmlc_cases")
        for operator in operators:
            if not self._defines(operator):
                continue
            names: dict[str, int] = {}
            for example in operator.definition.examples:
                names[example.title] = names.get(example.title, 0) + 1
                number = names[example.title]
                title = example.title if number == 1 else f"{example.title} ({number})"
                yield ExampleItem.from_parent(
                    self, name=f"{operator.definition.short_name}::{title}", operator=operator,
                    devices=devices, example=example,
                )  # fmt: skip
            for device in devices if cases != 0 else ():
                yield DrawnItem.from_parent(
                    self, name=f"{operator.definition.short_name}::generated[{device}]",
                    operator=operator, devices=[device],
                )  # fmt: skip

    def _defines(self, operator: Operator) -> bool:
        source: Source = operator.definition.syntax.name.span.source
        return Path(source.name).resolve() == self.path.resolve()


class Failed(Exception):
    """Cases that failed: what pytest shows is the report, and no traceback."""


class DmlItem(pytest.Item):
    """Some cases of an operator."""

    def __init__(self, *, operator: Operator, devices: list[str], **given: Any) -> None:
        super().__init__(**given)
        self.operator = operator
        self.devices = devices

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
        for outcome in self.run_cases(OperatorTest(self.operator, settings)):
            report.add(outcome)
        if report.failures:
            raise Failed(f"{report.render_failures()}\n\n{report.render_verdict()}")
        if all(outcome.status is Status.UNSUPPORTED for outcome in report.outcomes):
            reason = report.render_unsupported().strip()
            pytest.skip(f"nothing of it can be run: {reason or 'there are no cases'}")

    def run_cases(self, test: OperatorTest) -> Iterator[Outcome]:
        """What came of the item's cases."""
        raise NotImplementedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failed | DmlcError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.line - 1, self.name

    @property
    def line(self) -> int:
        """The line of the file that pytest names."""
        return self.operator.definition.syntax.name.span.line


class ExampleItem(DmlItem):
    """An example, with each choice of data types that holds its numbers, on each device."""

    def __init__(self, *, example: syntax.Example, **given: Any) -> None:
        super().__init__(**given)
        self.example = example

    def run_cases(self, test: OperatorTest) -> Iterator[Outcome]:
        return test.run_example(self.example)

    @property
    def line(self) -> int:
        return self.example.span.line


class DrawnItem(DmlItem):
    """Calls drawn from an operator's tables and constraints, on one device."""

    def run_cases(self, test: OperatorTest) -> Iterator[Outcome]:
        return test.run_drawn()
