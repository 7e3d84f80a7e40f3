"""Real files: which are found, what is read of them, and what is said of the others."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.lint import walk
from holdfast.lint.detect_language import Language
from holdfast.lint.walk import FoundFile, LintText, UnreadFile


def found(*paths: Path, excluded: str = "") -> list[str]:
    items = walk.files(
        [str(p) for p in paths], lambda path: bool(excluded) and path.endswith(excluded)
    )
    return [os.path.basename(item.path) for item in items if isinstance(item, FoundFile)]


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_folder_is_walked_in_order_without_what_is_not_yours(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "sub/c.sh", "run", "weights.bin", ".env", "sub/.hidden/x.py"):
        write(tmp_path / name)
    write(tmp_path / "env" / "pyvenv.cfg")
    write(tmp_path / "env" / "lib" / "other.py")
    for folder in (".git", "__pycache__", "node_modules"):
        write(tmp_path / folder / "x.py")
    assert found(tmp_path) == [".env", "a.py", "b.py", "run", "c.sh"]


def test_a_virtual_environment_that_is_named_is_walked(tmp_path: Path) -> None:
    write(tmp_path / "pyvenv.cfg")
    write(tmp_path / "x.py")
    assert found(tmp_path) == ["x.py"]


def test_what_is_named_is_read_whatever_it_is_called_and_never_twice(tmp_path: Path) -> None:
    odd = write(tmp_path / ".hidden" / "x.odd")
    assert found(odd, odd, tmp_path) == ["x.odd"]
    assert found(odd, excluded="x.odd") == ["x.odd"]


def test_excluded_folders_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path / "build" / "x.py")
    write(tmp_path / "y.py")
    assert found(tmp_path, excluded="build") == ["y.py"]


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.py")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "again.py").symlink_to(tmp_path / "a" / "x.py")
    assert found(tmp_path) == ["again.py"]


def test_pipes_and_sockets_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.py"))
        assert found(tmp_path) == []
        answer = walk.read(FoundFile(str(tmp_path / "pipe.py"), named=True))
        assert answer == UnreadFile(str(tmp_path / "pipe.py"), "not a regular file")
    answer = walk.read(FoundFile("/dev/zero", named=True))
    assert answer == UnreadFile("/dev/zero", "not a regular file")


@contextlib.contextmanager
def as_another_user() -> Iterator[None]:
    """Root may read everything, so for a moment we are not root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_is_not_permitted_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        write(Path(folder, "x.py")).chmod(0)
        write(Path(folder, "closed", "y.py")).parent.chmod(0)
        with as_another_user():
            answer = walk.read(FoundFile(f"{folder}/x.py", named=True))
            (file, inside) = walk.files([folder], lambda _: False)
        Path(folder, "closed").chmod(0o700)
    assert answer == UnreadFile(f"{folder}/x.py", "Permission denied")
    assert file == FoundFile(f"{folder}/x.py", named=False)
    assert inside == UnreadFile(f"{folder}/closed", "Permission denied")


def understood(content: bytes, path: str, *, named: bool = True) -> LintText | UnreadFile | None:
    return walk.understand(content, path, named=named)


def test_binary_huge_and_undecodable_files_are_reported_in_a_line(tmp_path: Path) -> None:
    binary = understood(b"\x7fELF\0\0", "train.py")
    assert isinstance(binary, UnreadFile)
    assert "not text" in binary.why
    cookie = understood(b"# coding: klingon\n", "train.py")
    assert isinstance(cookie, UnreadFile)
    assert "klingon" in cookie.why
    huge = tmp_path / "huge.py"
    with huge.open("wb") as file:
        file.truncate(walk.LARGEST + 1)
    answer = walk.read(FoundFile(str(huge), named=True))
    assert isinstance(answer, UnreadFile)
    assert "only files up to 5 MiB" in answer.why


def test_an_unknown_kind_is_a_word_when_named_and_nothing_in_a_folder() -> None:
    assert understood(b"int main;\n", "x.c", named=False) is None
    answer = understood(b"int main;\n", "x.c")
    assert isinstance(answer, UnreadFile)
    assert "not a script, launch script or document" in answer.why
    assert understood(b"\0\0", "run", named=False) is None
    notes = understood(b"Some words.\n", "notes")
    assert isinstance(notes, LintText)
    assert notes.language is Language.DOCUMENT


@pytest.mark.parametrize(
    ("content", "path", "text"),
    [
        (b"a = 1\r\nb = 2\r\n", "x.py", "a = 1\nb = 2\n"),
        ("\ufeffé".encode(), "x.sh", "é"),
        ("\ufeffé = 1".encode(), "x.py", "é = 1"),
        (b"# coding: latin-1\ns = '\xe9'\n", "x.py", "# coding: latin-1\ns = 'é'\n"),
        ("é".encode("utf-16"), "x.txt", "é"),
        (b"caf\xe9 \xff", "x.sh", "café ÿ"),
    ],
)
def test_encodings(content: bytes, path: str, text: str) -> None:
    answer = understood(content, path)
    assert isinstance(answer, LintText)
    assert answer.text == text


def test_a_large_file_in_a_folder_is_reported_only_if_its_name_says_that_it_is_ours(
    tmp_path: Path,
) -> None:
    for name in ("program", "run.sh"):
        with open(tmp_path / name, "wb") as large:
            large.truncate(walk.LARGEST + 1)
    found = [
        walk.read(f)
        for f in walk.files([str(tmp_path)], lambda _: False)
        if isinstance(f, walk.FoundFile)
    ]
    assert [os.path.basename(f.path) for f in found if isinstance(f, walk.UnreadFile)] == ["run.sh"]
    named = list(walk.files([str(tmp_path / "program")], lambda _: False))
    assert isinstance(named[0], walk.FoundFile)
    assert isinstance(walk.read(named[0]), walk.UnreadFile)
