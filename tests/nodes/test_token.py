from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.nodes.token import (
    Token,
    TokenSource,
    fresh_token,
    open_token,
    token_from_environment,
    token_from_file,
)

SECRET = "0123456789abcdef"


def a_file(path: Path, text: str = SECRET + "\n", mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_same_secret_from_every_source_is_the_same_token(tmp_path: Path) -> None:
    tokens = [
        token_from_file(a_file(tmp_path / "token")),
        token_from_environment({"HOLDFAST_TOKEN": SECRET}),
    ]
    assert {token.secret for token in tokens if token} == {SECRET.encode()}
    assert [token.source for token in tokens if token] == [
        TokenSource.FILE,
        TokenSource.ENVIRONMENT,
    ]
    assert all(token.proves for token in tokens if token)


def test_fresh_tokens_differ_and_can_be_handed_over() -> None:
    one, other = fresh_token(), fresh_token()
    assert one.secret != other.secret
    handed = token_from_environment({"HOLDFAST_TOKEN": one.secret.decode()})
    assert handed is not None
    assert handed.secret == one.secret


def test_a_token_is_not_shown() -> None:
    assert SECRET not in repr(Token(SECRET.encode(), TokenSource.FILE))
    assert SECRET not in Token(SECRET.encode(), TokenSource.FILE).in_words()


def test_the_open_token_follows_from_the_endpoint_and_says_what_it_is_worth() -> None:
    assert open_token("Node-0:29500").secret == open_token("node-0:29500").secret
    assert open_token("node-0:29500").secret != open_token("node-0:29501").secret
    assert not open_token("node-0:29500").proves
    assert "every program that reaches the port can join" in open_token("a:1").in_words()
    assert "only nodes that know it" in fresh_token().in_words()


def test_no_variable_is_no_token() -> None:
    assert token_from_environment({}) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = a_file(tmp_path / "token", mode=mode)
    with pytest.raises(ConfigError, match=rf"others can .* \(mode {mode:04o}\)") as caught:
        token_from_file(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, " " * 40])
def test_a_token_that_can_be_guessed_or_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    path = a_file(tmp_path / "token", text)
    readers: list[Callable[[], object]] = [
        lambda: token_from_file(path),
        lambda: token_from_environment({"HOLDFAST_TOKEN": text}),
    ]
    for reads in readers:
        with pytest.raises(ConfigError, match="must have 16 to 4096 characters") as caught:
            reads()
        assert not text.strip() or text not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        token_from_file(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="Is a directory"):
        token_from_file(str(tmp_path))


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        token_from_file(str(tmp_path / "fifo"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = a_file(tmp_path / "token")
    os.chown(path, 4711, 4711)
    with pytest.raises(ConfigError, match="belongs to another user"):
        token_from_file(path)
