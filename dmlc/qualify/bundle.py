"""Bundles for qualifying the devices of a machine without a network: a folder with wheels, and
scripts for Windows or for Linux that install them and run the command.

dmlc's wheel is built by pip from its sources. pip also downloads the dependencies, one package
after another: it would evaluate the conditions of dependencies for the machine it runs on, which is
not the one that the bundle is for.
"""

from __future__ import annotations

import dataclasses
import email
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmlc.files import write_files
from dmlc.processes import python_command
from dmlc.resources import read_resource, resource_path
from dmlc.source import DmlcError, UnavailableError

_NEWEST_GLIBC = 36
"""Newest minor version of glibc that wheels for Linux may need: that of Debian 12."""
_LAST_LINES = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """Machine that a bundle is for."""

    tags: tuple[str, ...]
    """Tags of wheels that it accepts."""
    facts: Mapping[str, str]
    """Facts about it that requirements depend on."""
    extras: tuple[str, ...]
    """Extras of dmlc for its runtimes."""


def _facts(os_name: str, sys_platform: str, system: str, machine: str) -> dict[str, str]:
    return {"os_name": os_name, "sys_platform": sys_platform, "platform_system": system,
            "platform_machine": machine}  # fmt: skip


PLATFORMS: Mapping[str, Platform] = {
    "linux": Platform(
        tuple(f"manylinux_2_{n}_x86_64" for n in range(_NEWEST_GLIBC, 4, -1))
        + tuple(f"manylinux{n}_x86_64" for n in (2014, 2010, 1)),
        _facts("posix", "linux", "Linux", "x86_64"),
        ("vulkan", "wgpu"),
    ),
    "windows": Platform(
        ("win_amd64",),
        _facts("nt", "win32", "Windows", "AMD64"),
        ("vulkan", "d3d12", "wgpu"),
    ),
}
"""Machines that bundles can be made for, all with x86-64 processors."""
VERSIONS = ("3.11", "3.12", "3.13")
"""Versions of Python that they may have."""

Run = Callable[[Sequence[str]], None]
"""Runs pip with arguments. Raises `UnavailableError` where it fails."""


def run_pip(arguments: Sequence[str]) -> None:
    """Runs this Python's pip, isolated from the working directory. Raises `UnavailableError` with
    the end of its output if it fails."""
    command = python_command("pip", "--disable-pip-version-check", *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        lines = [line for line in lines if line.startswith("ERROR: ")] or lines[-_LAST_LINES:]
        raise UnavailableError(
            f"pip cannot {arguments[0]} what the bundle needs: "
            + " ".join(lines or [f"its exit status is {done.returncode}"]),
            notes=["a bundle is packed on a machine with a network, and pip in dmlc's environment"],
        )


def find_sources() -> Path:
    """Folder of dmlc's sources. Raises `UnavailableError` if dmlc is installed without them."""
    project = resource_path("pyproject.toml")
    if not project.is_file():
        raise UnavailableError(
            "a bundle has a wheel of dmlc, which is built from its sources, and this dmlc is "
            "installed without them",
            notes=["pip install -e . in a checkout installs it with them"],
        )
    return project.parent


def write_bundle(
    folder: Path,
    platform: str,
    version: str,
    arguments: Sequence[str],
    run: Run = run_pip,
    sources: Path | None = None,
) -> list[Path]:
    """Writes a bundle into a new folder, for a platform and a version of Python, and returns its
    files.

    Its scripts run `dmlc qualify` with these arguments, followed by their own. Raises `DmlcError`
    for a folder that is not empty, and `UnavailableError` without a network.
    """
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise DmlcError(
            f"'{folder}' is there already, and a bundle is a folder of its own",
            notes=["name a new folder, or remove this one"],
        )
    sources = find_sources() if sources is None else sources
    with tempfile.TemporaryDirectory() as made:
        wheels = Path(made)
        run(["wheel", "--no-deps", "--quiet", "--wheel-dir", made, str(sources)])
        _collect(wheels, PLATFORMS[platform], version, run)
        names = sorted(path.name for path in wheels.iterdir())
        try:
            (folder / "wheels").mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(wheels / name, folder / "wheels" / name)
        except OSError as error:
            raise DmlcError(
                f"cannot write '{folder}': {(error.strerror or str(error)).lower()}", code="E0005"
            ) from error
        digests = {name: _digest(wheels / name) for name in names}
    settings = {
        "python": version,
        "extras": PLATFORMS[platform].extras,
        "arguments": [*arguments],
        "wheels": digests,
    }
    written = write_files(
        folder,
        {
            "settings.json": (json.dumps(settings, indent=2) + "\n").encode(),
            # No name of a module: pytest rewrites the modules that it finds installed.
            "qualify.py": read_resource("templates/bundle.py.in").encode(),
            "qualify.sh": _read_script("sh", version).encode(),
            # Windows finds labels and lines of such a script by these line ends.
            "qualify.cmd": _read_script("cmd", version).replace("\n", "\r\n").encode(),
        },
    )
    (folder / "qualify.sh").chmod(0o755)
    return [*written, *(folder / "wheels" / name for name in names)]


def _digest(path: Path) -> str:
    """SHA-256, which the script checks before it installs anything."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_script(suffix: str, version: str) -> str:
    return read_resource(f"templates/bundle.{suffix}").replace("PYTHON_VERSION", version)


# Wheels ----------------------------------------------------------------------------------------


def _collect(wheels: Path, platform: Platform, version: str, run: Run) -> None:
    """Downloads the transitive dependencies of the one wheel in a folder."""
    requirement: Any = _load("packaging.requirements").Requirement
    facts = {
        **platform.facts, "python_version": version, "python_full_version": f"{version}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "implementation_version": f"{version}.0", "platform_release": "", "platform_version": "",
    }  # fmt: skip
    tags = [word for tag in platform.tags for word in ("--platform", tag)]
    (own,) = wheels.glob("*.whl")
    known: dict[str, Any] = {_spell(own): _read_metadata(own)}
    asked: list[Any] = []
    done: set[tuple[str, str]] = set()
    waiting = {(_spell(own), extra) for extra in ("", *platform.extras)}
    while waiting:
        new: list[Any] = []
        for name, extra in sorted(waiting - done):
            done.add((name, extra))
            for text in known[name].get_all("Requires-Dist") or ():
                each = requirement(text)
                if each.marker is None or each.marker.evaluate({**facts, "extra": extra}):
                    new.append(each)
        asked += new
        missing = {_plain(each.name): each for each in new if _plain(each.name) not in known}
        if missing:
            texts = [f"{each.name}{each.specifier}" for each in asked
                     if _plain(each.name) in missing]  # fmt: skip
            run(["download", "--no-deps", "--quiet", "--retries", "1", "--only-binary", ":all:",
                 "--implementation", "cp", "--python-version", version, *tags,
                 "--dest", str(wheels), *dict.fromkeys(texts)])  # fmt: skip
        known |= {_spell(path): _read_metadata(path) for path in wheels.glob("*.whl")}
        for name in missing.keys() - known.keys():
            raise DmlcError(f"pip downloaded no wheel of {name}")
        waiting = {(_plain(e.name), extra) for e in new for extra in ("", *e.extras)} - done
    _check(asked, known)


def _check(asked: Iterable[Any], known: Mapping[str, Any]) -> None:
    """Raises for wheels with conflicting versions."""
    for each in asked:
        version = known[_plain(each.name)]["Version"]
        if not each.specifier.contains(version, prereleases=True):
            raise DmlcError(
                f"{each.name} {version} was downloaded first, and another package needs {each}",
                notes=["no bundle is written that could not be installed"],
            )


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(
            "what packages depend on is read by the package packaging, which is not installed",
            notes=["pip install 'dmlc[bundle]' installs it"],
        ) from error


def _plain(name: str) -> str:
    """Normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _spell(wheel: Path) -> str:
    return _plain(wheel.name.partition("-")[0])


def _read_metadata(wheel: Path) -> Any:
    """Metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        return email.message_from_bytes(archive.read(name))
