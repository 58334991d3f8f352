"""`dmlc import`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dmlc import pages
from tests.cli.conftest import Dmlc

PAGES = Path(__file__).resolve().parents[1] / "data" / "pages"


def test_pages_are_written_and_check(dmlc: Dmlc) -> None:
    found = dmlc("import", PAGES / "activation_relu_grad.md", PAGES / "Elu.rst", "-o", "made")
    assert found.status == 0
    assert found.out.split() == ["made/ACTIVATION_RELU_GRAD.dml", "made/Elu.dml"]
    first, second, *commands = found.err.splitlines()
    assert first.startswith("activation_relu_grad.md: 52 of 52 lines understood: 18 in the desc")
    assert second.startswith("Elu.rst: 43 of 43 lines understood: ")
    assert commands[1].split() == ["dmlc", "check", "made/ACTIVATION_RELU_GRAD.dml", "made/Elu.dml"]
    checked = dmlc(*commands[1].split()[1:])
    assert (checked.status, checked.err) == (0, "")
    assert dmlc("fmt", "--check", "made/Elu.dml").status == 0


def test_without_a_folder_it_is_printed(dmlc: Dmlc) -> None:
    found = dmlc("import", PAGES / "gemm.md")
    assert found.status == 0
    assert found.out.startswith("// From the page gemm.md, by dmlc import.\nmodule directml\n")
    Path("gemm.dml").write_text(found.out, "utf-8")
    checked = dmlc("check", "gemm.dml")
    assert checked.status == 0
    assert "warning: operator 'directml.GEMM' has no formula: it cannot be compiled" in checked.err
    for command in ("compile", "test"):
        refused = dmlc(command, "gemm.dml")
        assert refused.status == 1
        assert "error: operator 'directml.GEMM' has no formula" in refused.err
        assert "note: write it as 'compute { ... }', or derive it with" in refused.err


def test_one_page_that_fails_leaves_the_others(dmlc: Dmlc) -> None:
    Path("other.md").write_text("# Something else\n", "utf-8")
    found = dmlc("import", "other.md", PAGES / "Elu.md", "missing.md", "-o", "made")
    assert found.status == 1
    assert found.out.split() == ["made/Elu.dml"]
    assert "error: 'other.md' is about no operator" in found.err
    assert "error: cannot read 'missing.md'" in found.err


def test_two_pages_of_one_operator_do_not_overwrite_each_other(dmlc: Dmlc) -> None:
    found = dmlc("import", PAGES / "Elu.md", PAGES / "Elu.rst", "-o", "made")
    assert found.status == 1
    assert "Elu.md' both describe Elu" in found.err
    assert found.out.split() == ["made/Elu.dml"]


def test_a_missing_package_is_status_3(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(pages), "import_page", raising=False)
    for name in [n for n in sys.modules if n.startswith(("dmlc.pages.", "docutils"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "docutils", None)
    found = dmlc("import", PAGES / "Elu.md")
    assert found.status == 3
    assert "pip install 'dmlc[import]'" in found.err
