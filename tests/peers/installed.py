"""What `test_torch_installed` runs where dmlc is installed from a wheel.

That is the first listing of a page, and a look of PyTorch's for the backend's name after steps in
several orders, each in a process of its own. It prints what failed, a line each, and then where
dmlc is and the version of PyTorch.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import os
import pkgutil
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.backends

ORDERS = (
    "compile",
    "import compile",
    "list import compile",
    "import list compile reload compile",
    "compile import reload compile",
    "import compile forget import compile list",
    "list compile forget compile",
)
"""The steps before and after each other."""


def take(step: str) -> None:
    match step:
        case "compile":
            torch.compile(torch.relu, backend="dmlc")
        case "import":
            importlib.import_module("dmlc.torch.backend")
        case "list":
            assert "dmlc" in torch.compiler.list_backends()
        case "reload":
            importlib.reload(importlib.import_module("dmlc.torch.backend"))
        case _:
            del sys.modules["dmlc.torch.backend"]


def hide_entry_points() -> None:
    """As in a checkout, which has none."""
    found: Any = lambda **_: importlib.metadata.EntryPoints()  # noqa: E731
    importlib.metadata.entry_points = found


def in_child(order: str, installed: bool) -> bool:
    """Whether the steps succeed in a process that has taken none of them."""
    child = os.fork()
    if child == 0:
        try:
            if not installed:
                hide_entry_points()
            for step in order.split():
                take(step)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def run_first_listing(page: str) -> bool:
    text = Path(page).read_text("utf-8")
    first = text[text.index("```python") :].split("```")[1]
    listing = doctest.DocTestParser().get_doctest(first, {}, page, page, 0)
    # What PyTorch compiles has to be forgotten before the names that it reads.
    result = doctest.DocTestRunner().run(listing, clear_globs=False)
    torch._dynamo.reset()
    return result.attempted > 0 and result.failed == 0


def main(page: str) -> None:
    # What takes long to import and registers no backend of dmlc's.
    for name in ("call", "groups", "partition", "decompositions"):
        importlib.import_module(f"dmlc.torch.{name}")
    for info in pkgutil.iter_modules(torch._dynamo.backends.__path__):
        importlib.import_module(f"torch._dynamo.backends.{info.name}")
    for order in ORDERS:
        if not in_child(order, installed=True):
            print(f"failed: {order}")
        if order.startswith("import") and not in_child(order, installed=False):
            print(f"failed in a checkout: {order}")
    if not run_first_listing(page):
        print("failed: the first listing")
    import dmlc

    print(torch.__version__.split("+")[0], Path(dmlc.__file__).parent)


if __name__ == "__main__":
    main(sys.argv[1])
