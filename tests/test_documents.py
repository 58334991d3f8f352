"""Holds the documentation and the examples to what the program does."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dmlc
from dmlc import cli
from dmlc.testing.outcome import Status
from docs import build, listings
from tests.example_runs import run_examples
from tests.library.run import DEVICES

pytest_plugins = ["pytester"]

ROOT = build.ROOT
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "benchmarks/README.md", *ROOT.glob("docs/**/*.md"),
     *ROOT.glob("examples/**/*.md")]
)  # fmt: skip
NEED_TORCH = ("docs/how-to/pytorch.md",)
"""The pages whose listings `tests/peers` runs."""
MARKS = ("file", "output", "commands", "write", "run", "prints", "prints like", "setup",
         "elsewhere", "shown", "tested", "part of", "editor")  # fmt: skip
"""What says of a listing how it is tested: `docs/listings.py` and `docs/build.py` have them."""
PACKAGES = ("cgc", "compiler", "ir", "mlir", "onnx", "testing")
"""The packages with public names. `dmlc.torch` has some too, and needs PyTorch."""
EXAMPLES = sorted(ROOT.glob("examples/*.dml"))
REDUCING = ("grid_sample.dml", "group_norm.dml", "rms_norm.dml")
"""Those with reductions, which run where the library's do."""
ONE = ("--jobs", "1", "--cases", "1")
LIMITS = {"test": ONE, "qualify": ONE}
"""Further options of commands: tests of operators take all of the machine, if they are not told,
and a case shows what the command does."""
MISTAKEN = {"mistakes.dml", "mistaken_graph.dml"}
"""The examples that show what a mistake gets."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_what_pages_take_from_the_program_is_current() -> None:
    stale = [name_of(p) for p, text in build.build().items() if p.read_text("utf-8") != text]
    assert stale == [], "run `make docs`"


def test_a_page_is_refreshed_below_its_marks() -> None:
    text = "<!-- file: examples/silu.dml -->\n```dml\nold\n```\nkept\n```\nkept too\n```\n"
    content = (ROOT / "examples/silu.dml").read_text("utf-8")
    assert build.refresh(text) == text.replace("old\n", content)
    with pytest.raises(ValueError, match="'ls' is no dmlc command"):
        build.refresh("<!-- output: ls -->\n```\n```\n")


@functools.cache
def read_prose(path: Path) -> str:
    """A page without its listings."""
    text = path.read_text("utf-8")
    return re.sub(r"^(`{3,}).*?^\1`*$", "", text, flags=re.DOTALL | re.MULTILINE)


def read_tested(path: Path) -> str:
    """A page, up to the codes of errors, whose examples the tests of the codes run."""
    return path.read_text("utf-8").partition("<!-- codes -->")[0]


@functools.cache
def list_anchors(path: Path) -> set[str]:
    """What links may name in a page: its headings, as both the site and code hosts spell them."""
    headings = re.findall(r"^#+ (.+)$", read_prose(path), re.MULTILINE)
    words = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", w).strip().lower()) for w in words}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", read_prose(path))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        page = path if not name else Path(os.path.normpath(path.parent / name))
        assert page.exists(), target
        assert not anchor or anchor in list_anchors(page), target


def test_the_navigation_has_every_page() -> None:
    config = yaml.safe_load((ROOT / "docs/site/mkdocs.yml").read_text("utf-8"))
    listed = list(list_targets(config["nav"]))
    folders = ("reference/operators", "explanation/graphs")
    pages = {
        page for page in (path.relative_to(ROOT / "docs").as_posix() for path in DOCUMENTS
                          if path.is_relative_to(ROOT / "docs"))
        if not page.startswith(folders) or page.endswith("/index.md")
    }  # fmt: skip
    assert len(listed) == len(set(listed))
    assert set(listed) == pages


def list_targets(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    for below in entry.values() if isinstance(entry, dict) else entry:
        yield from list_targets(below)


INNER = ("dmlc.ir", "dmlc.compiler")
"""What programs that embed the compiler use."""


@pytest.mark.parametrize("package", ["dmlc", *(f"dmlc.{name}" for name in PACKAGES)])
def test_the_reference_has_every_public_name(package: str) -> None:
    page = ROOT / f"docs/reference/python{'-ir' if package in INNER else ''}.md"
    shown = re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)
    module = importlib.import_module(package)
    for name in {*module.__all__} - {"__version__", *PACKAGES}:
        places = [
            importlib.import_module(path.rpartition(".")[0])
            for path in shown
            if path.endswith(f".{name}") and path.startswith(f"{package}.")
        ]
        assert any(getattr(place, name) is getattr(module, name) for place in places), name


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS if not {"operators", "graphs"} & {*p.parts}], ids=name_of
)
def test_every_listing_is_run(path: Path) -> None:
    page = read_tested(path)
    for listing in listings.list_listings(page):
        run = listing.kind in MARKS or listing.language == "dml" or ">>>" in listing.body
        assert run, f"line {listing.line}: say what runs this: see docs/listings.py"
    assert not listings.is_played(page) or name_of(path) in build.PAGES


@pytest.mark.parametrize(
    "path",
    [p for p in DOCUMENTS
     if "```dml" in p.read_text("utf-8") and not {"operators", "graphs"} & {*p.parts}],
    ids=name_of,
)  # fmt: skip
def test_modules_in_documents(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for listing in listings.list_listings(read_tested(path)):
        if listing.language != "dml" or listing.kind in MARKS:
            continue
        module = dmlc.parse(listing.body, f"{path.name}:{listing.line}")
        assert not module.diagnostics
        for operator in module.operators.values():
            for done in run_examples(operator, "reference"):
                assert done.status is Status.PASSED, done.message


def test_a_page_is_played(tmp_path: Path) -> None:
    page = (
        "<!-- write: in/a.txt -->\n```\ntwo\n```\n"
        "<!-- run: 3 -->\n```sh\ncat in/a.txt; exit 3\n```\n"
        "<!-- prints -->\n```\n```\n<!-- prints like -->\n````\nt... 7\n````\n"
        "<!-- run -->\n```\npython -c 'print(\"took 1.5 s\")'\n```\n"
        "<!-- prints like -->\n```\ntook 27 s\n```\nend\n"
    )
    shown = page.replace("-->\n```\n```", "-->\n```\ntwo\n```").replace("t... 7", "two")
    assert listings.play(page, tmp_path / "here") == shown
    with pytest.raises(listings.ListingError, match=r"line 6: exit status 3 of\ncat in"):
        listings.play(page.replace("run: 3", "run"), tmp_path / "there")


def test_a_page_is_a_script(tmp_path: Path) -> None:
    text = (ROOT / "docs/tutorial/index.md").read_text("utf-8")
    script = listings.write_script(text)
    assert "apt-get install" in script
    assert script.count("END OF FILE") == 2 * text.count("<!-- write: ")
    (tmp_path / "tutorial.sh").write_text(script, "utf-8")
    subprocess.run(["sh", "-n", tmp_path / "tutorial.sh"], check=True)


@pytest.mark.parametrize(
    "path",
    [p for p in DOCUMENTS if ">>>" in p.read_text("utf-8") and name_of(p) not in NEED_TORCH],
    ids=name_of,
)
def test_python_in_documents(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("softsign.dml").write_text((ROOT / "examples/softsign.dml").read_text("utf-8"), "utf-8")
    result = doctest.testfile(str(path), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def commands() -> list[str]:
    """The `dmlc` commands of the README's command-line section, joined and without comments."""
    text = (ROOT / "README.md").read_text("utf-8").partition("## From the command line")[2]
    block = text.split("```\n")[1].replace("\\\n", " ")
    return [line.partition(" #")[0].strip() for line in block.splitlines() if line.strip()]


def test_the_section_has_every_command() -> None:
    assert {c.split()[1] for c in commands()} == set(cli.COMMANDS)


@pytest.mark.parametrize("command", commands())
def test_commands_in_the_readme(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array([-1, 0, 2], np.float32))
    np.save("dy.npy", np.array([5, 6, 7], np.float32))
    source = (ROOT / "examples/hard_swish_grad.dml").read_text("utf-8")
    Path("my_operators.dml").write_text(source, "utf-8")
    model = ROOT / "tests/data/onnx/residual_block_backward.onnx"
    Path("model.onnx").write_bytes(model.read_bytes())
    graph = ROOT / "tests/data/cgc/mlp.mlir"
    Path("graph.mlir").write_bytes(graph.read_bytes())
    page = ROOT / "tests/data/pages/activation_elu.md"
    Path(page.name).write_text(page.read_text("utf-8"), "utf-8")
    program, *arguments = shlex.split(command)
    assert program == "dmlc"
    # No release of Debian has a vkd3d yet that runs DXIL, and `dmlc devices` says so.
    monkeypatch.setattr("dmlc.runtime.d3d12.device.PLATFORM", "darwin")
    with open(os.devnull, encoding="utf-8") as nothing:
        # An editor that leaves at once, for the language server.
        monkeypatch.setattr(sys, "stdin", nothing)
        assert cli.run([*arguments, *LIMITS.get(arguments[0], ())]) == 0
    assert capsys.readouterr().err.count("error") == 0


def listed_commands() -> list[tuple[str, str]]:
    """The commands of other pages below `<!-- commands: FILE -->`, each with that file."""
    found: list[tuple[str, str]] = []
    for path in DOCUMENTS:
        pattern = r"<!-- commands: (\S+) -->\n```sh\n(.*?)```"
        for name, block in re.findall(pattern, path.read_text("utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(name, re.sub(r" +# .*", "", line)) for line in lines if line.strip()]
    return found


@pytest.mark.parametrize(("name", "command"), listed_commands())
def test_commands_in_pages(
    name: str, command: str, request: pytest.FixtureRequest, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    source = (ROOT / "examples" / name).read_text("utf-8")
    program, *arguments = shlex.split(command)
    if program == "pytest":
        # It forgets what is imported meanwhile, which packages such as ONNX's do not survive.
        pytester: pytest.Pytester = request.getfixturevalue("pytester")
        (pytester.path / name).write_text(source, "utf-8")
        given = ("-p", "dmlc.testing.plugin", "-p", "no:cacheprovider", *arguments)
        assert pytester.runpytest_inprocess(*given).ret == 0
        return
    assert program == "dmlc"
    monkeypatch.chdir(tmp_path)
    Path(Path(name).name).write_text(source, "utf-8")
    assert cli.run([*arguments, *LIMITS.get(arguments[0], ())]) == 0


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.name not in MISTAKEN], ids=name_of)
def test_example_files(path: Path) -> None:
    operators = dmlc.load(path).operators
    assert len(operators) > 0
    devices = DEVICES if path.name in REDUCING else ("opencl",)
    for operator, device in itertools.product(operators.values(), devices):
        for done in run_examples(operator, device):
            assert done.status is Status.PASSED, done.message


def test_the_mistaken_example_shows_several_mistakes() -> None:
    with pytest.raises(dmlc.DmlcError) as raised:
        dmlc.load(ROOT / "examples/mistakes.dml")
    assert len(raised.value.diagnostics) >= 4


def run_script(path: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / path, *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_own_operator() -> None:
    output = run_script("examples/own_operator.py")
    assert "channels last: (8, 32, 32, 3) float16" in output
    assert "the same after 100 launches: True" in output


def test_embedding() -> None:
    output = run_script("examples/embedding/run.py")
    assert "kernel: %total is a reduction (sum)" in output
    assert "void norm(const float *restrict t_x, float *restrict t_y, int64_t N, int64_" in output
    assert "op_sigmoid" not in output
    assert "as the reference: True" in output


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In this process, where its kernels build in a quarter of the time, and without the large
    # arrays, on which `make demo` takes a minute.
    arguments = [str(tmp_path), "--most", "40000"]
    assert runpy.run_path(str(ROOT / "examples/demo.py"))["main"](arguments) == 0
    output, problems = capsys.readouterr()
    assert problems == ""
    assert output.count("largest difference 0 (exact)") == 4
    assert "devices   opencl:0" in output
    for name in ("directml.ACTIVATION_RELU", "directml.ACTIVATION_RELU_GRAD", "onednn.ReLU",
                 "onednn.ReLUBackward"):  # fmt: skip
        assert f"\n{name}\n" in output
        short = name.partition(".")[2]
        written = {p.name for p in (tmp_path / name).iterdir()}
        assert written == {f"{short}.hlsl", f"{short}.cl", "manifest.json"}


FOLDERS = ("benchmarks", "dmlc", "docs", "examples", "grammar", "templates", "tests")
DMLC = ROOT / "dmlc"
ELSEWHERE = {"dmlc/devices", "dmlc/d3d12", "dmlc/grammar"}
"""Folders of the user's cache, and one of an installed dmlc."""


def list_texts() -> Iterator[tuple[Path, str]]:
    """Each written page without the targets of its links, and each docstring of dmlc."""
    for path in DOCUMENTS:
        if not {"operators", "graphs"} & {*path.parts}:
            yield path, re.sub(r"\]\([^)]*\)", "]", path.read_text("utf-8"))
    for path in ROOT.glob("dmlc/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield path, text
                case _:
                    pass


def test_named_files_and_folders_exist() -> None:
    modules = {path.name for path in ROOT.glob("dmlc/**/*.py")}
    whole = re.compile(rf"(?<![\w/.*-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*]")
    module = re.compile(r"`((?:\w+/)*\w+\.py)`")
    wrong: list[str] = []
    for path, text in list_texts():
        named = {name for name in whole.findall(text) if name not in ELSEWHERE}
        missing = {name for name in named if not any(ROOT.glob(name))}
        if path.is_relative_to(ROOT / "docs/explanation"):
            named = {*module.findall(text)} - modules
            missing |= {n for n in named if not any((at / n).exists() for at in (ROOT, DMLC))}
        wrong += [f"{name_of(path)}: {name}" for name in sorted(missing)]
    assert wrong == []
