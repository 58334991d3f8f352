"""The pytest plugin, in projects of their own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dmlc.testing.replay import read_failure

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

CUBE = """operator CUBE {
    tensors {
        | Tensor | Kind   | Ranks  | Types |
        | src    | Input  | 1 to 4 | f32   |
        | dst    | Output | 1 to 4 | f32   |
    }
    constraints { src and dst must have the same DataType, DimensionCount, and Sizes. }
    compute { dst = src * src * src }
    example "small numbers" {
        src        = [1, 2, -3]
        expect dst = [1, 8, -27]
    }
}
"""
WRONG = """
operator CUBE_GRAD {
    forward CUBE
    tensors {
        | Tensor | Kind   | Ranks  | Types |
        | src    | Input  | 1 to 4 | f32   |
        | d_dst  | Input  | 1 to 4 | f32   |
        | d_src  | Output | 1 to 4 | f32   |
    }
    constraints { src, d_dst, and d_src must have the same DataType, DimensionCount, and Sizes. }
    compute { d_src = 2 * src * src * d_dst }
    example "of one" {
        src          = [1, 2]
        d_dst        = [1, 1]
        expect d_src = [3, 12]
    }
}
"""
WRONG_LINE = (CUBE + WRONG).splitlines().index('    example "of one" {') + 1
RUN = ("--dmlc-device=reference", "--dmlc-cases=12")


class Project:
    """A folder that pytest runs in: in this process, which has imported dmlc, or `apart`."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def run(self, *arguments: str, apart: bool = False) -> tuple[int, str]:
        """The exit status and what is printed."""
        # Where dmlc is installed its entry point brings the plugin.
        given = ("-p", "dmlc.testing.plugin", "-p", "no:cacheprovider", *arguments)
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        done = run(*given)
        return int(done.ret), f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Project(pytester)


def test_there_is_an_item_for_each_example_and_each_group(project: Project) -> None:
    project.write("cube.dml", CUBE)
    devices = ("--dmlc-device=reference", "--dmlc-device=opencl")
    status, said = project.run("-q", "--collect-only", *devices)
    assert status == 0
    assert [line for line in said.splitlines() if "::" in line] == [
        "cube.dml::CUBE::small numbers",
        "cube.dml::CUBE::generated[reference]",
        "cube.dml::CUBE::generated[opencl]",
    ]


def test_a_project_passes(project: Project) -> None:
    project.write("ops/cube.dml", CUBE)
    project.write("test_other.py", "def test_other() -> None: ...\n")
    status, said = project.run("-q", "-W", "error", *RUN)
    assert status == 0, said
    assert "3 passed" in said
    assert not (project.folder / "dmlc-failures").exists()


def test_a_failure_says_where_and_with_what(project: Project) -> None:
    project.write("cube.dml", CUBE + WRONG)
    status, said = project.run("-ra", *RUN)
    assert status == 1
    assert "2 failed, 2 passed" in said
    assert "Traceback" not in said
    assert "items.py" not in said
    for line in (
        "FAIL CUBE_GRAD on reference: the example, or the formula, is wrong",
        "  d_src: 2 of 2 elements differ, by 4 at most",
        "FAIL CUBE_GRAD: the gradient is not that of its forward operator",
        "  d_src: the gradient with respect to 'src' at [",
        "FAILED cube.dml::CUBE_GRAD::of one - FAIL CUBE_GRAD on reference",
        "FAILED cube.dml::CUBE_GRAD::generated[reference] - FAIL CUBE_GRAD:",
    ):
        assert line in said, said
    folders = sorted((project.folder / "dmlc-failures").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert f"again: dmlc test --replay {folder}" in said
        assert read_failure(folder).run().status == "failed"
    # What is kept of failures is not collected in its turn.
    _, said = project.run("-q", "--collect-only", *RUN)
    found = [line for line in said.splitlines() if "::" in line]
    assert len(found) == 4
    assert all(line.startswith("cube.dml::") for line in found)


def test_names_choose_what_runs(project: Project) -> None:
    project.write("cube.dml", CUBE + WRONG)
    status, said = project.run("-q", *RUN, "-k", "small or (generated and not GRAD)")
    assert status == 0, said
    assert "2 passed, 2 deselected" in said
    status, said = project.run("-q", *RUN, "cube.dml::CUBE::small numbers")
    assert status == 0, said
    assert "1 passed" in said


def test_the_first_failure_may_end_the_run(project: Project) -> None:
    project.write("cube.dml", WRONG.replace("forward CUBE", "") + CUBE)
    status, said = project.run("-x", "-q", *RUN)
    assert status == 1
    assert "1 failed" in said
    assert "passed" not in said


def test_a_run_in_parts(project: Project) -> None:
    project.write("cube.dml", CUBE + WRONG)
    status, said = project.run("-n", "2", "-q", *RUN, apart=True)
    assert status == 1
    assert "2 failed, 2 passed" in said
    assert "the gradient is not that of its forward operator" in said


def test_no_cases_leave_the_examples(project: Project) -> None:
    project.write("cube.dml", CUBE)
    status, said = project.run("-q", "--dmlc-device=reference", "--dmlc-cases=0")
    assert status == 0, said
    assert "1 passed" in said


def test_a_file_with_mistakes_is_shown(project: Project) -> None:
    project.write("cube.dml", CUBE.replace("src * src * src", "src * sorc"))
    status, said = project.run(*RUN)
    assert status == 2
    assert "ERROR collecting cube.dml" in said
    assert "cube.dml:8:27: error: unknown name 'sorc'" in said
    assert "did you mean 'src'?" in said
    assert "Traceback" not in said


def test_a_missing_device_is_said(project: Project) -> None:
    project.write("cube.dml", CUBE)
    status, said = project.run("--dmlc-device=opencl:no-such-device", "--dmlc-cases=3")
    assert status == 1
    assert "no-such-device" in said
    assert "Traceback" not in said


def test_what_a_file_imports_is_not_tested_twice(project: Project) -> None:
    project.write("cube.dml", "module m\n" + CUBE)
    project.write("other.dml", 'import "cube.dml"\n' + CUBE.replace("CUBE", "POWER"))
    _, said = project.run("-q", "--collect-only", *RUN)
    found = [line for line in said.splitlines() if "::" in line]
    assert found == [
        "cube.dml::CUBE::small numbers",
        "cube.dml::CUBE::generated[reference]",
        "other.dml::POWER::small numbers",
        "other.dml::POWER::generated[reference]",
    ]


def test_the_ini_file_says_which_files(project: Project) -> None:
    project.write("ops/cube.dml", CUBE)
    project.write("drafts/cube.dml", "operator {")
    project.write("pytest.ini", "[pytest]\ndmlc_files = ops/*.dml\n")
    status, said = project.run("-q", *RUN)
    assert status == 0, said
    assert "2 passed" in said
    project.write("pytest.ini", "[pytest]\ndmlc_files =\n")
    status, said = project.run("-q", *RUN)
    assert status == 5, said
    assert "no tests ran" in said


def test_other_projects_import_nothing_of_dmlc(project: Project) -> None:
    project.write(
        "test_other.py",
        """
import sys


def test_other() -> None:
    found = [name for name in sys.modules if name.partition(".")[0] == "dmlc"]
    used = ["lazy", "source", "testing", "testing.plugin"]
    assert sorted(found) == ["dmlc", *(f"dmlc.{name}" for name in used)]
""",
    )
    status, said = project.run("-q", apart=True)
    assert status == 0, said


def test_the_entry_point_is_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"dmlc.testing.plugin": "dmlc.testing.plugin"}


def test_the_data_of_these_tests_are_not_collected(project: Project) -> None:
    assert list((ROOT / "tests").rglob("*.dml"))
    where = ("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    status, said = project.run("-q", "--collect-only", *where, str(ROOT / "tests" / "data"))
    assert status == 5, said
    relu = ROOT / "dmlc/library/onednn/ReLU.dml"
    status, said = project.run("-q", "--collect-only", *where, str(relu))
    assert status == 0, said
    assert "ReLU.dml::ReLU::generated[opencl]" in said


def test_no_template_looks_like_a_module() -> None:
    """In an editable installation pytest takes the Python files that are installed for what it is
    to rewrite, and these would be all."""
    assert not list((ROOT / "templates").glob("*.py"))
