"""The command as a whole: help, exit statuses, and how it leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from dmlc import __version__, cli
from dmlc.source import DmlcError, InternalError, UnavailableError
from tests.cli.conftest import Dmlc

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_help_names_every_command(dmlc: Dmlc) -> None:
    found = dmlc("--help")
    assert found.status == 0
    for name, line in cli.COMMANDS.items():
        assert f"  {name}" in found.out
        assert line in found.out
    assert "Example: dmlc compile" in found.out


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_help_of_a_command_shows_an_example(name: str, dmlc: Dmlc) -> None:
    found = dmlc(name, "--help")
    assert found.status == 0
    assert f"Example: dmlc {name} " in found.out
    assert found.err == ""


def test_version(dmlc: Dmlc) -> None:
    assert dmlc("--version").out == f"dmlc, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["ops", "--frobnicate"], "No such option"),
        (["check"], "Missing argument 'FILE...'"),
        (["ir"], "Missing argument 'OPERATOR'"),
        (["compile", "onednn.ReLU", "--target", "cuda"], "'cuda' is not one of"),
        (["compile", "onednn.ReLU", "--profile", "tpu"], "'tpu' is not one of"),
        (["ir", "onednn.ReLU", "--tensor", "src"], "expected NAME=VALUE, found 'src'"),
        (
            ["ir", "onednn.ReLU", "--kernel", "--after", "fuse"],
            "--kernel, --schedule, --program and --after",
        ),
        ([], "Usage: dmlc"),
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], message: str, dmlc: Dmlc) -> None:
    found = dmlc(*arguments)
    assert found.status == 2
    assert message in found.err
    assert found.out == ""


def raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (DmlcError("the input is at fault"), 1, "error: the input is at fault\n"),
        (UnavailableError("a tool is missing"), 3, "error: a tool is missing [E0902]\n"),
        (
            InternalError("a rule was broken"),
            1,
            "internal error: a rule was broken\nThis is a bug in dmlc: please report it.\n",
        ),
        (MemoryError("9 TiB"), 1, "error: there is not enough memory: 9 TiB\n"),
        (KeyboardInterrupt(), 130, "\nstopped\n"),
    ],
)
def test_errors_become_statuses(
    error: BaseException, status: int, message: str, dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.group, "get_command", lambda context, name: raising(error))
    found = dmlc("fail")
    assert found.status == status
    assert found.err == message
    assert found.out == ""


@pytest.mark.parametrize("command", ["show", "test", "inspect", "compile"])
def test_a_name_too_long_for_a_file(dmlc: Dmlc, command: str) -> None:
    found = dmlc(command, "x" * 10_000)
    assert found.status == 1
    assert found.err.startswith("error: ")


def test_a_working_directory_that_is_gone(dmlc: Dmlc, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    for arguments in (("check", "own.dml"), ("fmt", "own.dml"), ("test", "own.dml")):
        found = dmlc(*arguments)
        assert (found.status, found.out) == (1, "")
        assert "cannot read 'own.dml': no such file or directory" in found.err
    found = dmlc("compile", "directml.ACTIVATION_RELU", "--target", "opencl", "-o", "out")
    assert found.status == 1
    assert "cannot write 'out'" in found.err


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    log = tmp_path / "nowhere" / "log"
    done = subprocess.run(
        [sys.executable, "-m", "dmlc", "lsp", "--log", log], env=ENVIRONMENT, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    said = f"error: cannot write '{log}': no such file or directory [E0005]\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_main_leaves_with_the_status() -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["check", "missing.dml"])
    assert leaving.value.code == 1


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dmlc", "show", "onednn.NOTHING"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown operator 'onednn.NOTHING' [E0202]\n")


def test_a_reader_who_leaves_gets_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "dmlc", "show", "directml.GEMM"],
            stdout=closed, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT,
        )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 1


def test_help_loads_neither_numpy_nor_any_command() -> None:
    script = (
        "import sys; from dmlc import cli; cli.run(['--help']); "
        "print(sorted(m for m in sys.modules if m == 'numpy' or m.startswith(('dmlc.', 'lark'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert (
        done.stdout.splitlines()[-1]
        == "['dmlc.cli', 'dmlc.cli.messages', 'dmlc.cli.output', 'dmlc.cli.progress', "
        "'dmlc.collection', 'dmlc.progress', 'dmlc.source']"
    )


PRODUCT = ("directml.GEMM", "--tensor", "ATensor=FLOAT32[1,1,24,512]",
           "--tensor", "BTensor=FLOAT32[1,1,512,40]")  # fmt: skip


@pytest.mark.parametrize("own", [(), ("--target", "opencl", "--profile", "gpu")])
def test_what_ir_prints_of_schedules_compile_takes(own: tuple[str, ...], dmlc: Dmlc) -> None:
    printed = dmlc("ir", *PRODUCT, *own, "--schedule").out
    Path("own.txt").write_text(printed)
    assert printed.startswith(f"target opencl {'gpu' if own else 'cpu'}\n\nkernel OutputTensor\n")
    plain = dmlc("compile", *PRODUCT, *own)
    assert dmlc("compile", *PRODUCT, *own, "--schedule", "own.txt").out == plain.out
    shown = dmlc("ir", *PRODUCT, *own, "--program").out
    assert re.search(r"^ +group \S+ by 1 as tile: 0..\d+ of \w+(, i\d)+$", shown, re.MULTILINE)


def test_a_wrong_line_of_a_schedule_is_status_1(dmlc: Dmlc) -> None:
    Path("own.txt").write_text("kernel OutputTensor\n  rfactor j 64  // no such loop\n")
    found = dmlc("compile", *PRODUCT, "--target", "opencl", "--schedule", "own.txt")
    assert found.status == 1
    assert found.err.splitlines() == [
        "own.txt:2:3: error: rfactor j 64: matrix is not reduced along a loop 'j', but along k",
        "    2 |   rfactor j 64  // no such loop",
        "      |   ^^^^^^^^^^^^",
    ]
    assert dmlc("compile", *PRODUCT, "--schedule", "none.txt").status == 1
    dx = dmlc("compile", *PRODUCT, "--dxdispatch", "-o", "out", "--schedule", "own.txt")
    assert dx.status == 2


def test_a_schedule_for_one_target_leaves_others_be(dmlc: Dmlc) -> None:
    Path("own.txt").write_text("target opencl\nkernel OutputTensor\n  rfactor k 64\n")
    found = dmlc("compile", *PRODUCT, "-o", "out", "--schedule", "own.txt")
    assert found.status == 0
    assert "64 points" not in found.err
    plain = dmlc("compile", *PRODUCT, "--target", "hlsl").out
    own = "".join(path.read_text() for path in sorted(Path("out").glob("*.hlsl")))
    assert own == plain.replace("\n\n// GEMM", "\n// GEMM")
    assert "8 pieces\n" in Path("out/GEMM_1.cl").read_text()


def test_run_takes_a_schedule(dmlc: Dmlc) -> None:
    Path("own.txt").write_text("kernel OutputTensor\n  rfactor k 64\n")
    for name, sizes in (("a", (1, 1, 24, 512)), ("b", (1, 1, 512, 40))):
        np.save(f"{name}.npy", np.random.default_rng(0).standard_normal(sizes, np.float32))
    given = ("--input", "ATensor=a.npy", "--input", "BTensor=b.npy", "--schedule", "own.txt")
    found = dmlc("run", "directml.GEMM", *given, "--verify")
    assert found.status == 0, found.err
    assert "OutputTensor float32[1, 1, 24, 40]: PASS" in found.out
