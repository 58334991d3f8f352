"""Bundles: which wheels they have, and what their scripts do. Nothing here needs a network."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dmlc.qualify import bundle
from dmlc.qualify.bundle import find_sources, run_pip, write_bundle
from dmlc.resources import resource_path
from dmlc.source import DmlcError, UnavailableError

HERE = "{}.{}".format(*sys.version_info[:2])


def make_wheel(
    name: str, version: str, requires: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """The name and the content of a wheel."""
    folder = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in ("vulkan", "wgpu", "d3d12", "fast"))
    contents = {
        **(files or {}),
        f"{folder}/METADATA":
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}{extras}",
        f"{folder}/WHEEL":
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    contents[f"{folder}/RECORD"] = "".join(f"{n},,\n" for n in (*contents, f"{folder}/RECORD"))
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", stored.getvalue()


class Pip:
    """A pip that has packages of its own."""

    def __init__(self, own: tuple[str, bytes], others: Mapping[str, tuple[str, bytes]]) -> None:
        self.own, self.others = own, others
        self.calls: list[list[str]] = []

    def __call__(self, arguments: Sequence[str]) -> None:
        self.calls.append([*arguments])
        option = "--wheel-dir" if arguments[0] == "wheel" else "--dest"
        folder = Path(arguments[arguments.index(option) + 1])
        asked = [word for word in arguments if word.partition(">")[0] in self.others]
        wheels = [self.own] if arguments[0] == "wheel" else [
            self.others[word.partition(">")[0]] for word in asked
        ]  # fmt: skip
        for name, content in wheels:
            (folder / name).write_bytes(content)


OWN = make_wheel("dmlc", "1.0", [
    "Alpha_One>=1", 'colour; sys_platform == "win32"', 'old; python_version < "3.12"',
    'loader>=2; extra == "vulkan"', 'direct; extra == "d3d12" and sys_platform == "win32"',
    'never; extra == "other"',
])  # fmt: skip
OTHERS = {
    "Alpha_One": make_wheel("alpha_one", "1.5", ["beta[fast]", "loader"]),
    "colour": make_wheel("colour", "1"),
    "old": make_wheel("old", "1"),
    "loader": make_wheel("loader", "2.1"),
    "direct": make_wheel("direct", "1"),
    "beta": make_wheel("beta", "1", ['gamma; extra == "fast"', 'slow; extra == "slow"']),
    "gamma": make_wheel("gamma", "3", ["Alpha.One"]),
}


@pytest.mark.parametrize(
    ("platform", "version", "named"),
    [
        ("linux", "3.11", {"alpha_one", "beta", "dmlc", "gamma", "loader", "old"}),
        ("linux", "3.12", {"alpha_one", "beta", "dmlc", "gamma", "loader"}),
        ("windows", "3.12",
         {"alpha_one", "beta", "colour", "direct", "dmlc", "gamma", "loader"}),
    ],
)  # fmt: skip
def test_wheels_are_those_of_the_other_machine(
    platform: str, version: str, named: set[str], tmp_path: Path
) -> None:
    pip, folder = Pip(OWN, OTHERS), tmp_path / "bundle"
    written = write_bundle(folder, platform, version, ["--device", "x"], pip, tmp_path)
    assert {path.name.partition("-")[0] for path in (folder / "wheels").iterdir()} == named
    assert {*written} == {path for path in folder.rglob("*") if path.is_file()}
    built, *downloads = pip.calls
    assert built[:2] == ["wheel", "--no-deps"]
    assert built[-1] == str(tmp_path)
    tag = {"linux": "manylinux_2_28_x86_64", "windows": "win_amd64"}[platform]
    for call in downloads:
        assert call[:2] == ["download", "--no-deps"]
        assert call[call.index("--python-version") + 1] == version
        assert tag in call
    asked = [word for call in downloads for word in call if "_One" in word]
    assert asked == ["Alpha_One>=1"]
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    assert settings["python"] == version
    assert settings["arguments"] == ["--device", "x"]
    assert f'"python{version}" ' in (folder / "qualify.sh").read_text("utf-8")
    script = (folder / "qualify.cmd").read_bytes()
    assert f'py -{version} -I "%~dp0qualify.py" %*\r\n'.encode() in script
    assert script.count(b"\n") == script.count(b"\r\n")


def test_wheels_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    others = OTHERS | {"gamma": make_wheel("gamma", "3", ["Alpha.One<1.2"])}
    folder = tmp_path / "bundle"
    with pytest.raises(DmlcError, match=r"Alpha\.One 1\.5 was downloaded first, and another"):
        write_bundle(folder, "linux", "3.12", [], Pip(OWN, others), tmp_path)
    assert not folder.exists()


def test_a_folder_that_holds_something_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    pip = Pip(OWN, OTHERS)
    for folder in (tmp_path, tmp_path / "kept.txt"):
        with pytest.raises(DmlcError, match="is there already, and a bundle is a folder of its"):
            write_bundle(folder, "linux", "3.12", [], pip, tmp_path)
    assert pip.calls == []


@pytest.mark.parametrize("name", ["n" * 300, "file/bundle"])
def test_a_folder_that_cannot_be_made(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DmlcError, match="cannot write"):
        write_bundle(tmp_path / name, "linux", "3.12", [], Pip(OWN, OTHERS), tmp_path)


def test_what_pip_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What lies in the working directory is not run in pip's place.
    (tmp_path / "pip.py").write_text("raise SystemExit('this was run')")
    monkeypatch.chdir(tmp_path)
    run_pip(["--version"])
    with pytest.raises(UnavailableError) as caught:
        run_pip(["download", "--no-index", "--no-deps", "--dest", str(tmp_path), "no-such-thing"])
    message = caught.value.diagnostics[0].message
    assert message.startswith("pip cannot download what the bundle needs: ERROR: ")
    assert "no-such-thing" in message
    assert "network" in caught.value.diagnostics[0].notes[0].message


def test_sources_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_sources() == resource_path("pyproject.toml").parent
    monkeypatch.setattr(bundle, "resource_path", lambda name: tmp_path / name)
    with pytest.raises(UnavailableError, match="this dmlc is installed without them"):
        find_sources()


# Scripts ---------------------------------------------------------------------------------------

ECHO = """import json, os, sys
if os.environ.get("PYTHONPATH"):
    assert os.environ["PYTHONPATH"] not in sys.path
print(json.dumps(sys.argv[1:]))
sys.exit(1)
"""


def write_small(folder: Path, version: str = HERE, **files: str) -> Path:
    """A bundle whose dmlc prints what it is given, and finds a device that is not qualified."""
    own = make_wheel("dmlc", "1.0", [], {"dmlc/__init__.py": "", "dmlc/__main__.py": ECHO})
    arguments = ["*SOFTMAX*", "--device", "a 'b' $c"]
    write_bundle(folder, "linux", version, arguments, Pip(own, {}), folder)
    return folder


def test_the_script_runs_from_the_folder_alone(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "a bundle")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("json", "venv", "pip", "dmlc", "numpy"):
        (elsewhere / f"{name}.py").write_text("raise SystemExit('this was run')")
    (elsewhere / f"python{HERE}").symlink_to(sys.executable)
    environment = {**os.environ, "PATH": f"{elsewhere}:{os.environ['PATH']}",
                   "PYTHONPATH": str(elsewhere)}  # fmt: skip
    done = subprocess.run(
        [folder / "qualify.sh", "--seconds", "9"], cwd=elsewhere, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    first, said = done.stdout.splitlines()
    assert first == f"installing dmlc into {folder / 'environment'}"
    assert json.loads(said) == [
        "qualify", "-o", str(folder / "report"), "*SOFTMAX*", "--device", "a 'b' $c",
        "--seconds", "9",
    ]  # fmt: skip
    assert done.returncode == 1
    again = subprocess.run(
        [sys.executable, "-I", folder / "qualify.py"], capture_output=True, text=True, check=False
    )
    assert [again.returncode, len(again.stdout.splitlines())] == [1, 1]


def test_another_python_is_refused(tmp_path: Path) -> None:
    other = next(version for version in bundle.VERSIONS if version != HERE)
    folder = write_small(tmp_path / "bundle", other)
    done = subprocess.run(
        [sys.executable, "-I", folder / "qualify.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    said = f"the wheels in this folder are for Python {other}, and this is Python {HERE}"
    assert done.stderr == f"error: {said}\n"
    assert not (folder / "environment").exists()


@pytest.mark.parametrize("content", [None, b"", b"PK"])
def test_a_wheel_that_is_not_the_bundles_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """As where a copy broke off."""
    folder = write_small(tmp_path / "bundle")
    (wheel,) = (folder / "wheels").iterdir()
    wheel.unlink()
    if content is not None:
        wheel.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-I", folder / "qualify.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {wheel} is missing, or not the wheel that")
    assert not (folder / "environment").exists()
