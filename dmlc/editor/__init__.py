"""Editor services for a `.dml` text: hover, completion, definitions, symbols, diagnostics,
formatting.

`dmlc.editor.documents` holds the texts; the other modules answer from a document and an offset.
Only `server` knows the Language Server Protocol, so that another program can embed the others. The
dependencies of `server` are an extra: `pip install 'dmlc[lsp]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from dmlc.source import UnavailableError

__all__ = ["serve"]


def serve(folders: Sequence[Path] = ()) -> None:
    """Serves an editor over standard input and output until it leaves.

    Files may import from `folders`, besides their own. Raises `UnavailableError` without pygls.
    """
    try:
        server = importlib.import_module("dmlc.editor.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        message = "editors are served by the Python package 'pygls', not found here"
        raise UnavailableError(
            message, notes=["install it with: pip install 'dmlc[lsp]'"]
        ) from None
    server.Server(folders).serve()
