"""What only tests reach is no part of the package: each function and class of a module of `dmlc/`
is named by other code of it, by the docs, the examples or the benchmarks.

Names are compared, whoever has them: what is found here is certainly not reached.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_WORD = re.compile(r"[A-Za-z_]\w*")

KEPT = {
    "print_script": "writes what `parse_script` reads",
    "set_verify_each": "makes the tests check each pass",
}
"""What stays though tests alone reach it, and why."""


def list_definitions(tree: ast.Module) -> set[str]:
    """Functions and classes of a module, but those that a decorator or pytest finds."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.decorator_list
        and not node.name.startswith("pytest_")
    }


def list_named(node: ast.AST) -> Iterator[str]:
    """Names that code uses: in text too, but not in docstrings and lists of exports."""
    match node:
        case ast.Name(id=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.Attribute(attr=name):
            yield name
        case ast.Constant(value=str(text)):
            yield from _WORD.findall(text)
        case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from list_named(child)


@functools.cache
def find_unreached() -> frozenset[str]:
    defined: set[str] = set()
    named: set[str] = set()
    for folder in ("dmlc", "docs", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            named.update(list_named(tree))
            if folder == "dmlc":
                defined |= list_definitions(tree)
    for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "pyproject.toml"):
        named.update(_WORD.findall(path.read_text("utf-8")))
    return frozenset(defined - named)


def test_what_tests_alone_reach_is_no_part_of_the_package() -> None:
    assert find_unreached() - set(KEPT) == set()


def test_what_is_kept_is_not_reached_otherwise() -> None:
    assert set(KEPT) - find_unreached() == set()
