"""Answers about a place in a `.dml` text, as an editor asks for them: hover, completion,
definitions, symbols, diagnostics, formatting.

`dmlc.editor.documents` holds the texts; the other modules answer from a document and an offset.
None knows of the Language Server Protocol but `server`, so that another program can embed them.
What `server` needs is an extra: `pip install 'dmlc[lsp]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from dmlc.source import UnavailableError

__all__ = ["serve"]


def serve(folders: Sequence[Path] = ()) -> None:
    """Serves an editor over standard input and output until it leaves. Files may import from
    `folders`, besides their own. Raises `UnavailableError` where pygls is missing."""
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
