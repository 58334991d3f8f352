"""The extension for VS Code agrees with the server, the language and the build.

`make vscode` packs it, and runs its own tests, which need Node.js.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import dmlc
from dmlc.codegen.targets import TARGETS
from dmlc.editor.server import CHECK, SOURCE
from dmlc.language.parse import SUFFIX

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "dmlc/editor/vscode"
SCRIPT = (FOLDER / "extension.js").read_text("utf-8")
PACKAGE: dict[str, Any] = json.loads((FOLDER / "package.json").read_text("utf-8"))
OFFERS = PACKAGE["contributes"]


def test_it_has_the_version_of_dmlc() -> None:
    assert PACKAGE["version"] == dmlc.__version__


def test_it_colours_what_the_server_reads() -> None:
    (language,) = OFFERS["languages"]
    (colours,) = OFFERS["grammars"]
    grammar = json.loads((ROOT / "grammar" / colours["path"]).read_text("utf-8"))
    assert language["extensions"] == [SUFFIX]
    assert colours["language"] == language["id"]
    assert colours["scopeName"] == grammar["scopeName"]
    assert f'documentSelector: [{{ language: "{language["id"]}" }}]' in SCRIPT
    settings = json.loads((FOLDER / language["configuration"]).read_text("utf-8"))
    assert settings["comments"] == {"lineComment": "//", "blockComment": ["/*", "*/"]}


def test_its_commands_are_those_that_it_registers() -> None:
    """It shows the kernels of every target, and asks for them as the server takes it."""
    table = re.search(r"const TARGETS = \{(.*?)\};", SCRIPT, re.DOTALL)
    assert table is not None
    shown = dict(re.findall(r'(\w+): \["(\w+)"', table[1]))
    assert sorted(shown.values()) == sorted(target.name for target in TARGETS)
    registered = {f"dmlc.show{name}" for name in shown}
    registered |= {f"dmlc.{name}" for name in re.findall(r'register\("(\w+)"', SCRIPT)}
    declared = {each["command"] for each in OFFERS["commands"]}
    assert declared == registered
    assert {item["command"] for menu in OFFERS["menus"].values() for item in menu} <= declared
    # VS Code has the server's commands too, by the same names as the server.
    assert not declared & {SOURCE, CHECK}
    assert {*re.findall(r'execute\("([\w.]+)"', SCRIPT)} == {SOURCE, CHECK}


def test_it_reads_the_settings_that_it_declares() -> None:
    read = {f"dmlc.{name}" for name in re.findall(r'settings\.get\("(\w+)"', SCRIPT)}
    assert {*OFFERS["configuration"]["properties"]} == read


def test_the_documentation_has_its_commands_and_settings() -> None:
    text = (ROOT / "docs/how-to/editor.md").read_text("utf-8")
    for command in OFFERS["commands"]:
        assert command["title"] in text
    for setting in OFFERS["configuration"]["properties"]:
        assert f"`{setting}`" in text
    for command in (SOURCE, CHECK):
        assert f"`{command}`" in text


def test_it_is_packed_by_itself() -> None:
    """The archive has no tests and no packages, and the wheel has none of it."""
    kept = (FOLDER / ".vscodeignore").read_text("utf-8").split()
    assert kept[0] == "**"
    assert {name.removeprefix("!") for name in kept[1:]} == {
        "package.json", "README.md", "LICENSE", "dmlc.tmLanguage.json", "language.json",
        "out/extension.js",
    }  # fmt: skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert str(FOLDER.relative_to(ROOT)) in wheel["exclude"]
    assert "dmlc/editor/vscode/. grammar/dmlc.tmLanguage.json" in (ROOT / "Makefile").read_text()
