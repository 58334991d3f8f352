"""A wheel of this dmlc, and new environments that have it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from docs import build


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, without this session's PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments, cwd=cwd)


def build_wheel(folder: Path) -> Path:
    pip("wheel", "--no-deps", "-w", folder, build.ROOT, cwd=folder)
    (found,) = folder.glob("dmlc-*.whl")
    return found


def make_environment(new: Path, base: Path, wheel: Path) -> tuple[Path, Path]:
    """The Python of a new environment that has the wheel, and its packages. What the wheel needs is
    that of another environment, without a copy."""
    venv.create(new, with_pip=False, symlinks=True)
    inside = Path("lib") / Path(sysconfig.get_path("purelib")).parent.name / "site-packages"
    (new / inside / "base.pth").write_text(f"{base / inside}\n")
    python = new / "bin/python"
    pip("--python", python, "install", "--no-deps", "--ignore-installed", wheel, cwd=new)
    return python, new / inside
