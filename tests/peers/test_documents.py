"""The listings of the pages that need PyTorch."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import torch

from tests.test_documents import NEED_TORCH, ROOT


@pytest.mark.parametrize("name", NEED_TORCH)
def test_python_in_documents(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text("utf-8")
    listings = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    # What PyTorch compiles has to be forgotten before the names that it reads.
    result = doctest.DocTestRunner().run(listings, clear_globs=False)
    torch._dynamo.reset()
    assert result.attempted > 0
    assert result.failed == 0
