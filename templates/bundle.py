"""Installs dmlc from the wheels beside this file, without a network, and qualifies a device.

qualify.sh and qualify.cmd start it. What it is given goes to `dmlc qualify`: --device vulkan, say.
The environment it makes is in the folder `environment`, and the report in the folder `report`.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main(arguments):
    with open(os.path.join(HERE, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    found = "{}.{}".format(*sys.version_info[:2])
    if found != settings["python"]:
        print(
            "error: the wheels in this folder are for Python {}, and this is Python {}".format(
                settings["python"], found
            ),
            file=sys.stderr,
        )
        return 3
    environment = os.path.join(HERE, "environment")
    folder = "Scripts" if os.name == "nt" else "bin"
    python = os.path.join(environment, folder, "python.exe" if os.name == "nt" else "python")
    ready = os.path.join(environment, "ready")
    if not os.path.exists(ready):
        print("installing dmlc into " + environment, flush=True)
        if subprocess.call([sys.executable, "-I", "-m", "venv", "--clear", environment]):
            print(
                "error: Python cannot make an environment: is its module venv installed "
                "(python3-venv on Debian)?",
                file=sys.stderr,
            )
            return 3
        wheels = os.path.join(HERE, "wheels")
        installed = subprocess.call(
            [
                python,
                "-I",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--no-cache-dir",
                "--disable-pip-version-check",
                "--find-links",
                wheels,
                "dmlc[{}]".format(",".join(settings["extras"])),
            ]
        )
        if installed:
            print("error: the wheels cannot be installed", file=sys.stderr)
            return 3
        with open(ready, "w", encoding="utf-8"):
            pass
    report = os.path.join(HERE, "report")
    return subprocess.call(
        [python, "-I", "-m", "dmlc", "qualify", "-o", report, *settings["arguments"], *arguments]
    )


sys.exit(main(sys.argv[1:]))
