"""What is kept on disk: found again, made again where it is broken, bounded, and shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmlc import cli
from dmlc.runtime import hlsl, kept
from dmlc.runtime.kept import OFF, Kept
from tests.runtime.handmade_hlsl import relu_grad


@pytest.fixture(autouse=True)
def fixture_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OFF, raising=False)


def never() -> bytes:
    raise AssertionError("it is kept")


def test_what_was_made_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kept"
    assert Kept(folder, 1000).find(b"key", lambda: b"content") == b"content"
    assert Kept(folder, 1000).find(b"key", never) == b"content"
    assert Kept(folder, 1000).find(b"other", lambda: b"its") == b"its"


def test_the_variable_turns_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Kept(tmp_path, 1000)
    own.find(b"key", lambda: b"old")
    monkeypatch.setenv(OFF, "1")
    assert own.find(b"key", lambda: b"new") == b"new"
    own.find(b"other", lambda: b"new")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("what", ["empty", "short", "changed", "longer", "folder", "pipe", "huge"])
def test_a_broken_entry_is_made_again(tmp_path: Path, what: str) -> None:
    own = Kept(tmp_path, 1000)
    own.find(b"key", lambda: b"content")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    broken = {
        "empty": b"",
        "short": whole[:-1],
        "changed": whole[:-1] + b"?",
        "longer": whole + b"?",
        "huge": whole + bytes(2000),
    }
    if what in broken:
        path.write_bytes(broken[what])
    else:
        path.unlink()
        path.mkdir() if what == "folder" else os.mkfifo(path)
    assert Kept(tmp_path, 1000).find(b"key", lambda: b"again") == b"again"
    if what in broken:
        assert Kept(tmp_path, 1000).find(b"key", never) == b"again"


def test_an_entry_under_another_name_is_not_taken(tmp_path: Path) -> None:
    own = Kept(tmp_path, 1000)
    own.find(b"one", lambda: b"of one")
    (one,) = tmp_path.iterdir()
    own.find(b"other", lambda: b"of other")
    (other,) = set(tmp_path.iterdir()) - {one}
    other.write_bytes(one.read_bytes())
    assert own.find(b"other", lambda: b"again") == b"again"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    times: dict[bytes, Path] = {}

    def use(key: bytes, size: int = 100) -> None:
        before = set(tmp_path.iterdir())
        # A first write looks through the folder.
        Kept(tmp_path, 1000).find(key, lambda: bytes(size))
        for path in set(tmp_path.iterdir()) - before:
            times[key] = path

    for number in range(7):
        use(b"%d" % number)
        os.utime(times[b"%d" % number], (number, number))
    use(b"0")
    use(b"new", 300)
    left = set(tmp_path.iterdir())
    assert {key for key, path in times.items() if path in left} == {
        b"0", b"3", b"4", b"5", b"6", b"new",
    }  # fmt: skip
    Kept(tmp_path, 1000).find(b"too large", lambda: bytes(2000))
    assert set(tmp_path.iterdir()) == left


def test_no_folder_and_one_that_cannot_be_written_to(tmp_path: Path) -> None:
    assert Kept(None, 1000).find(b"key", lambda: b"made") == b"made"
    (tmp_path / "file").write_bytes(b"")
    assert Kept(tmp_path / "file", 1000).find(b"key", lambda: b"made") == b"made"


def test_kernels_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlsl, "SHADERS", Kept(tmp_path, 1 << 20))
    (kernel,) = relu_grad().kernels
    hlsl._compile.cache_clear()
    first = hlsl.compile_kernel(kernel)
    hlsl._compile.cache_clear()
    monkeypatch.setattr(hlsl, "_make", never)
    again = hlsl.compile_kernel(kernel)
    assert again == first
    assert again is not first


def test_the_command_shows_and_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept, "_usual", tmp_path / "dmlc")
    Kept(tmp_path / "dmlc" / "shaders", 1 << 20).find(b"key", lambda: bytes(2016))
    (tmp_path / "dmlc" / "mine").write_bytes(b"not of the cache")
    assert cli.run(["cache"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'dmlc'}\n  shaders: 1 entry, 2.0 KiB (")
    assert "  devices: 0 entries, 0.0 KiB (" in said
    assert cli.run(["cache", "--clear"]) == 0
    assert "shaders: 0 entries" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "dmlc").iterdir() if p.is_file()] == ["mine"]
    assert list((tmp_path / "dmlc" / "shaders").iterdir()) == []


def test_without_a_home_there_is_nothing_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        return None

    monkeypatch.setattr("dmlc.cli.cache_command.cache_folder", none)
    assert cli.run(["cache"]) == 3
    assert "name a folder in XDG_CACHE_HOME" in capsys.readouterr().err
