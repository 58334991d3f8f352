"""A server that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.editor.client import Editor


@pytest.fixture(scope="session")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    made = Editor(tmp_path_factory.mktemp("lsp") / "log.txt")
    yield made
    made.leave()


@pytest.fixture
def nothing_goes_wrong(editor: Editor) -> Iterator[None]:
    """After the test nothing is in the server's log, and no message was shown."""
    yield
    assert editor.complaints() == []
