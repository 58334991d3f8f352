"""What files are read: regular `.dml` files of bounded size, where they may be imported from."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import dmlc
from dmlc.source import DmlcError

SECRET = "root:x:0:0:the quick brown fox"
SHARED = "function twice(x) = 2 * x\n"


def project(folder: Path, imported: str) -> Path:
    """A file in a folder of its own that imports one path."""
    inside = folder / "project"
    inside.mkdir(exist_ok=True)
    path = inside / "main.dml"
    path.write_text(f'import "{imported}"\nfunction thrice(x) = 3 * x\n', "utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DmlcError) as raised:
        dmlc.load(path)
    assert "quick brown" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "/etc/passwd", "/proc/self/mem"])
def test_what_is_no_dml_file_is_not_opened(path: str, tmp_path: Path) -> None:
    assert refusal(Path(path)).endswith("is no .dml file [E0001]")
    assert "is not below" in refusal(project(tmp_path, path))


@pytest.mark.parametrize("target", ["/dev/zero", "passwd"])
def test_a_link_by_another_name_is_followed_to_its_end(target: str, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text(SECRET, "utf-8")
    main = project(tmp_path, "link.dml")
    link = main.with_name("link.dml")
    link.symlink_to(tmp_path / target)
    assert "which is no .dml file" in refusal(link)
    assert f"leads to '{tmp_path / target}', which is not below" in refusal(main)


def test_a_link_to_a_device_by_the_name_of_a_dml_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe.dml"
    os.mkfifo(path)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(refusal(path)), daemon=True)
    reader.start()
    reader.join(timeout=20)
    assert found == [f"error: cannot read '{path}': it is no regular file [E0001]"]


def test_folders_missing_files_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "folder.dml").mkdir()
    assert refusal(tmp_path / "folder.dml").endswith("it is a directory [E0001]")
    assert refusal(tmp_path).endswith("it is a directory [E0001]")
    assert refusal(tmp_path / "none.dml").endswith("no such file or directory [E0001]")
    assert refusal(tmp_path / ("n" * 300 + ".dml")).endswith("file name too long [E0001]")
    with (tmp_path / "large.dml").open("wb") as file:
        file.truncate(1 << 40)
    assert refusal(tmp_path / "large.dml").endswith("is larger than 16 MiB [E0003]")


@pytest.mark.parametrize(
    ("content", "byte"),
    [(SECRET.encode("utf-16"), 0), (b"// caf\xe9 " + SECRET.encode(), 6), (b"\xc3", 0)],
)
def test_other_encodings(content: bytes, byte: int, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "other.dml"
    path.write_bytes(content)
    message = f"'{path}' is not UTF-8 text: byte {byte} is wrong [E0001]"
    assert refusal(path) == f"error: {message}"
    main = project(tmp_path, "other.dml")
    assert refusal(main).startswith(f"{main}:1:1: error: {message}")


def test_imports_stay_below_the_folder_of_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "shared.dml").write_text(SHARED, "utf-8")
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2" / "shared.dml").write_text(SHARED, "utf-8")
    for path in ("../shared.dml", str(tmp_path / "shared.dml"), "../project-2/shared.dml",
                 "../missing.dml", "../project/../shared.dml"):  # fmt: skip
        main = project(tmp_path, path)
        assert refusal(main).splitlines()[0] == (
            f"{main}:1:1: error: '{path}' is not below '{main.parent}', nor below a folder that "
            "may be imported from [E0004]"
        )
        assert "--import-folder" in refusal(main)


def test_allowed_folders_and_files_further_down(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "twice.dml").write_text('import "parts/more.dml"\n' + SHARED, "utf-8")
    (tmp_path / "shared" / "parts").mkdir()
    (tmp_path / "shared" / "parts" / "more.dml").write_text("function one() = 1\n", "utf-8")
    main = project(tmp_path, "../shared/twice.dml")
    assert "is not below" in refusal(main)
    dmlc.load(main, import_folders=[tmp_path / "shared"])
    dmlc.load(main, import_folders=[str(tmp_path)])
    text = main.read_text("utf-8")
    dmlc.parse(text, str(main), import_folders=(tmp_path / "shared",))
    with pytest.raises(DmlcError, match="is not below"):
        dmlc.parse(text, str(main), import_folders=[tmp_path / "shared" / "parts"])
    # A file further down reaches up again, as far as the folder of the first.
    (main.parent / "deep").mkdir()
    (main.parent / "deep" / "up.dml").write_text('import "../side.dml"\n', "utf-8")
    (main.parent / "side.dml").write_text(SHARED, "utf-8")
    dmlc.load(project(tmp_path, "deep/up.dml"))
    dmlc.load(project(tmp_path, str(main.parent / "side.dml")))


def test_a_link_within_the_folder_is_fine(tmp_path: Path) -> None:
    main = project(tmp_path, "link.dml")
    main.with_name("real.dml").write_text(SHARED, "utf-8")
    main.with_name("link.dml").symlink_to("real.dml")
    dmlc.load(main)
    (tmp_path / "elsewhere").symlink_to(main.parent)
    dmlc.load(tmp_path / "elsewhere" / "main.dml")
