"""An editor for tests: pytest-lsp's client, which talks to `dmlc lsp` over standard input and
output as editors do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.protocol import default_converter
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features

T = TypeVar("T")
SECONDS = 30
"""How long an answer may take, on the slowest machine."""
PUBLISHED = types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS


class Editor:
    """A running server, and its client."""

    def __init__(self, log: Path, *options: str, kind: str = "visual-studio-code") -> None:
        self.log = log
        self.reports: list[types.PublishDiagnosticsParams] = []
        """What was published since the last edit."""
        self.runner = asyncio.Runner()
        command = [sys.executable, "-m", "dmlc", "lsp", "--log", str(log), *options]
        config = ClientServerConfig(command, self.make_client, dict(os.environ))
        self.client = self.run(config.start())
        self.versions: dict[str, int] = {}
        given = types.InitializeParams(capabilities=client_capabilities(kind))
        self.offered = self.run(self.client.initialize_session(given))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, SECONDS))

    def make_client(self) -> LanguageClient:
        client = LanguageClient(converter_factory=default_converter)

        def published(_: LanguageClient, params: types.PublishDiagnosticsParams) -> None:
            self.reports.append(params)

        register_lsp_features(client, {**DEFAULT_CLIENT_FEATURES, PUBLISHED: published})
        return client

    async def open(self, uri: str, text: str) -> list[types.Diagnostic]:
        """Opens a text, and gives what is wrong with it."""
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri=uri, language_id="dml", version=1, text=text)
        self.reports.clear()
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return await self.published(uri, self.versions[uri])

    def change(self, uri: str, *changes: types.TextDocumentContentChangeEvent) -> None:
        """Edits a text."""
        self.versions[uri] += 1
        text = types.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri)
        params = types.DidChangeTextDocumentParams(text_document=text, content_changes=changes)
        self.client.text_document_did_change(params)

    async def changed(
        self, uri: str, *changes: types.TextDocumentContentChangeEvent
    ) -> list[types.Diagnostic]:
        """Edits a text, and gives what is wrong with it then."""
        self.reports.clear()
        self.change(uri, *changes)
        return await self.published(uri, self.versions[uri])

    async def published(self, uri: str, version: int | None = None) -> list[types.Diagnostic]:
        """What is wrong with that version of a text, or with any, once the server says it."""
        while True:
            for found in reversed(self.reports):
                if found.uri == uri and version in (None, found.version):
                    return list(found.diagnostics)
            await asyncio.sleep(0.002)

    def leave(self) -> None:
        """Shuts the server down."""
        self.run(self.client.shutdown_session())
        self.run(self.client.stop())
        self.runner.close()

    def complaints(self) -> list[str]:
        """What went wrong: messages shown to the user, and the server's log."""
        log = self.log.read_text("utf-8") if self.log.exists() else ""
        shown = [message.message for message in (*self.client.messages, *self.client.log_messages)]
        return [*shown, *log.splitlines(), *([str(self.client.error)] if self.client.error else [])]


def part(
    start: tuple[int, int], end: tuple[int, int], text: str
) -> types.TextDocumentContentChangePartial:
    """Another text for what stands from a line and column up to others."""
    range = types.Range(types.Position(*start), types.Position(*end))
    return types.TextDocumentContentChangePartial(range=range, text=text)


def whole(text: str) -> types.TextDocumentContentChangeWholeDocument:
    """Another text for all of it."""
    return types.TextDocumentContentChangeWholeDocument(text=text)


def place(text: str, words: str, offset: int = 0) -> types.Position:
    """Where words stand first in a text of ASCII characters."""
    at = text.index(words) + offset
    return types.Position(text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1)


def at(editor: Editor, uri: str, position: types.Position) -> dict[str, object]:
    """What a request about a place begins with."""
    return {"text_document": types.TextDocumentIdentifier(uri), "position": position}
