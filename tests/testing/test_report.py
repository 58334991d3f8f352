"""What a run says: the table, the blocks of failures, JUnit's XML and JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dmlc
from dmlc.testing.harness import OperatorTest, Settings
from dmlc.testing.jobs import Done, Target, run_targets
from dmlc.testing.outcome import Outcome, Status
from dmlc.testing.report import Report, render_failure, write_junit

WRONG = Path(__file__).resolve().parent.parent / "data" / "testing" / "wrong.dml"
SETTINGS = Settings(("reference",), 0, 3, None, 0)

SUITE = {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp",
         "hostname", "id", "package", "file", "log", "url", "version"}  # fmt: skip
"""What Jenkins' schema, junit-10.xsd, gives a suite; the first four must be there."""
CASE = {"name", "time", "classname", "group"}


def make_report() -> Report:
    report = Report(SETTINGS.devices, SETTINGS.seed)
    for name in ("DOUBLE", "CUBE"):
        test = OperatorTest(dmlc.load(WRONG).operators[name], SETTINGS)
        outcomes = tuple(outcome.without_arrays() for outcome in test.run())
        report.add(Done(name, outcomes, test.summarize()))
    odd = Outcome("DOUBLE", report.outcomes[0].kind, "bell \a", Status.UNSUPPORTED, "vulkan",
                  message="no \0 & <b>")  # fmt: skip
    report.add(
        Done("odd", (odd,), OperatorTest(dmlc.operator("onednn.ReLU"), SETTINGS).summarize())
    )
    return report


def test_the_table_counts_every_operator() -> None:
    header, *rows = [line.split() for line in make_report().render_table().splitlines()]
    assert header[:5] == ["operator", "cases", "passed", "failed", "unsupported"]
    assert [row[0] for row in rows] == ["DOUBLE", "CUBE", "odd", "all"]
    counts = [[int(cell) for cell in row[1:5]] for row in rows]
    assert all(cases == sum(others) for cases, *others in counts)
    assert header[5:7] == ["weak", "loose"]
    assert counts[-1] == [sum(row[k] for row in counts[:-1]) for k in range(4)]
    assert [row[2] for row in counts] == [1, 0, 0, 1]


def test_a_failure_says_what_where_and_with_which_numbers() -> None:
    (failure,) = make_report().failures
    line = WRONG.read_text().splitlines().index("        expect y = [2, 5]") + 1
    assert render_failure(failure).splitlines() == [
        "FAIL DOUBLE on reference: the example, or the formula, is wrong",
        f"  at {WRONG}:{line}",
        "  example: with a wrong number",
        "  with x=FLOAT32[2] y=FLOAT32[2]",
        "    x = [1.0, 2.0]",
        "  y: 1 of 2 elements differ, by 1 at most (0.2 relative, 2097152 ulp); at [1] it is 4 "
        "where 5 is expected: it may be off by 9.54e-07 at most",
    ]


WIDE = """operator WIDE {
    tensors {
        | Tensor | Kind   | Ranks | Types |
        | x      | Input  | 1     | f32   |
        | y      | Output | 1     | f32   |
    }
    constraints { x and y must have the same Sizes. }
    compute { y = x + 1 }
    example "held to nothing" { x = [1] expect y = [2] within 1e9 }
}"""


def test_weak_cases_are_said_with_the_smallest_that_runs_again(tmp_path: Path) -> None:
    """In the table, behind it, and for machines."""
    settings = Settings(("reference",), 0, 3, tmp_path, 0)
    report = Report(settings.devices, settings.seed)
    for text in (WIDE, WIDE.replace("1e9", "0.5").replace("WIDE", "NARROW")):
        test = OperatorTest(*dmlc.parse(text).operators.values(), settings)
        (example,) = test.operator.definition.examples
        outcomes = tuple(o.without_arrays() for o in test.run_example(example))
        report.add(Done(test.operator.name, outcomes, test.summarize()))
    header, wide, _, _ = [line.split() for line in report.render_table().splitlines()]
    cells = dict(zip(" ".join(header).replace("told apart", "told").split(), wide, strict=False))
    assert (cells["weak"], cells["loose"]) == ("1", "100%")
    (kept,) = {
        done.summary.weakest.folder
        for done in report.operators.values()
        if done.summary.weakest is not None
    }
    said = report.render_weak().splitlines()
    assert said[0].startswith("  WIDE, ")
    assert "the bound is larger than the result at 1 of 1 inexact elements of 'y'" in said[0]
    assert said[-1] == f"    again: dmlc test --replay {kept}"
    found = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert [(o["loose"], o["inexact"]) for o in found["operators"]] == [(1, 1), (0, 1)]
    assert [o["weakest"] and o["weakest"]["folder"] for o in found["operators"]] == [
        str(kept), None
    ]  # fmt: skip
    (weak,) = found["weak"]
    assert (weak["loose"], weak["inexact"]) == (1, 1)
    outputs = list(ElementTree.fromstring(write_junit([report])).iter("system-out"))
    assert [output.text for output in outputs] == [f"weak: {weak['weakness']}"]


def test_failures_that_look_alike_are_counted() -> None:
    report = make_report()
    (failure,) = report.failures
    done = report.operators[failure.operator]
    report.add(dataclasses.replace(done, outcomes=(*done.outcomes, failure, failure)))
    assert report.render_failures().endswith("\n  and 2 cases more like it, on reference")
    assert report.render_verdict().startswith("FAIL: 3 of ")


def test_what_cannot_be_expressed_is_named_once() -> None:
    assert make_report().render_unsupported() == "  1 on vulkan: no \0 & <b>"


def test_junit_is_what_continuous_integration_reads() -> None:
    report = make_report()
    root = ElementTree.fromstring(write_junit([report]))
    assert root.tag == "testsuites"
    suites = list(root)
    assert [suite.tag for suite in suites] == ["testsuite"] * 3
    seen: set[tuple[str, str]] = set()
    for suite in suites:
        assert {"name", "tests", "failures", "errors"} <= set(suite.attrib) <= SUITE
        cases = list(suite)
        assert int(suite.attrib["tests"]) == len(cases)
        for tag, attribute in (("failure", "failures"), ("skipped", "skipped")):
            assert sum(c.find(tag) is not None for c in cases) == int(suite.attrib[attribute])
        for case in cases:
            assert case.tag == "testcase"
            assert set(case.attrib) <= CASE
            float(case.attrib["time"])
            seen.add((case.attrib["classname"], case.attrib["name"]))
            for child in case:
                assert child.tag in ("failure", "skipped", "system-out")
                assert set(child.attrib) <= {"message", "type"}
    assert len(seen) == len(report.outcomes)
    (failure,) = root.iter("failure")
    assert failure.text == render_failure(report.failures[0])
    assert failure.attrib["type"] == "the example, or the formula, is wrong"
    (skipped,) = root.iter("skipped")
    assert skipped.attrib["message"] == "no \ufffd & <b>"


def test_json_has_all_that_the_table_has() -> None:
    report = make_report()
    found = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert found["passed"] is False
    assert found["devices"] == ["reference"]
    double = found["operators"][0]
    assert (double["name"], double["failed"]) == ("DOUBLE", 1)
    assert double["cases"] == double["passed"] + 1
    assert {row["kind"] for row in double["coverage"]} >= {"data type", "constraint"}
    (failure,) = found["failures"]
    assert failure["file"] == str(WRONG)
    assert failure["call"] == "x=FLOAT32[2] y=FLOAT32[2]"


@pytest.mark.parametrize("jobs", [1, 2])
def test_several_processes_find_what_one_finds(jobs: int) -> None:
    """In the order of the operators."""
    targets = [Target(name, str(WRONG)) for name in ("DOUBLE", "CUBE")]
    done = list(run_targets(targets, SETTINGS, jobs))
    assert [d.name for d in done] == ["DOUBLE", "CUBE"]
    found = [(o.title, o.call, o.status, o.place) for d in done for o in d.outcomes]
    alone = make_report().outcomes[:-1]
    assert found == [(o.title, o.call, o.status, o.place) for o in alone]
