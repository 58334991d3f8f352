"""A bare Debian in a folder, and commands that run in it as on a machine of its own.

A command runs in namespaces of its own (`unshare`). They end with it, and it with what has started
it (`setpriv`), however that ends: no mount and no process of a root outlives its command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

REPOSITORY = Path(__file__).resolve().parents[2]
CLONE = "/dmlc"
"""Where a root has the repository."""

_PACKAGES = ("ca-certificates", "make", "python3")
"""What a root has beside the essential packages: the README asks for `make` and Python."""
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_CARRIED = (Path("/etc/resolv.conf"), _CERTIFICATES, Path("/etc/pip.conf"), Path("/etc/xdg/pip"))
_SETTINGS = re.compile(r"PIP_\w+|(https?|ftp|no)_proxy", re.IGNORECASE)
"""The variables that say how this machine reaches its packages."""
_MOUNTS = """for place in sys dev; do mount --rbind "/$place" "$0/$place"; done
mount -t proc proc "$0/proc"
"""


class BareRoot:
    """A Debian in a folder. How it reaches its packages, it takes from this machine."""

    def __init__(self, folder: Path, release: str, packages: Sequence[str] = ()) -> None:
        """`packages` are those that it has besides."""
        self.folder = folder.resolve()
        self.release = release
        self._packages = (*_PACKAGES, *packages)

    def make(self) -> None:
        """Makes the root anew, with a clone of the present commit. Raises `CalledProcessError`."""
        if self.folder.exists():
            run(["rm", "-rf", "--one-file-system", str(self.folder)])
        self.folder.mkdir(parents=True)
        packages = f"--include={','.join(self._packages)}"
        command = ["debootstrap", "--variant=minbase", packages, self.release, str(self.folder)]
        run([*command, *_find_mirror()])
        run(["git", "clone", "-q", "--no-local", str(REPOSITORY), f"{self.folder}{CLONE}"])
        for path in filter(Path.exists, _CARRIED):
            there = self._inside(path)
            there.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, there, dirs_exist_ok=True)
            else:
                shutil.copyfile(path, there)
        options = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, text=True)
        fetching = [line for line in options.stdout.splitlines() if line.startswith("Acquire::")]
        self._inside(Path("/etc/apt/apt.conf.d/machine")).write_text("\n".join([*fetching, ""]))

    def _inside(self, path: Path) -> Path:
        return self.folder / path.relative_to("/")

    def run(self, command: str, log: TextIO, variables: Mapping[str, str] | None = None) -> int:
        """The exit status of a command of the shell that runs in the root, in the clone."""
        known = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        settings = {n: v for n, v in os.environ.items() if _SETTINGS.fullmatch(n)}
        known |= {"PIP_CERT": str(_CERTIFICATES)} | settings | dict(variables or {})
        steps = ["set -e", _MOUNTS]
        for folder in map(Path, settings.get("PIP_FIND_LINKS", "").split()):
            # Wheels that lie on this machine's disk.
            if folder.is_dir():
                self._inside(folder).mkdir(parents=True, exist_ok=True)
                place = shlex.quote(str(folder))
                steps.append(f'mount --bind {place} "$0"{place}')
        steps.append(f'exec chroot "$0" env -C {CLONE} -i "$@"')
        given = [f"{name}={value}" for name, value in known.items()]
        apart = ["setpriv", "--pdeathsig", "KILL"]
        apart += ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(
            [*apart, "sh", "-c", "\n".join(steps), str(self.folder), *given, "sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        return done.returncode

    def find_version(self, package: str) -> str:
        """The version of a Debian package in the root, without what Debian adds; empty for none."""
        query = ["dpkg-query", f"--root={self.folder}", "-W", "-f", "${Version}", package]
        done = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return re.split(r"[-+~]", done.stdout.strip())[0]


def run(command: list[str]) -> None:
    """Runs a command of this machine. What it says goes to standard error."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def _find_mirror() -> list[str]:
    """The archive of Debian that this machine's apt reads, as debootstrap's argument; none where it
    reads none, and debootstrap has its own."""
    query = ["apt-get", "indextargets", "--format", "$(SITE)", "Label: Debian"]
    done = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.split()[:1]
