"""stdout and stderr as they really come: closed, full, ASCII only; and names that are no text."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.cli.holdfast_command import HOLDFAST, run

ONE_CHECK = ("check", "--only", "port-ephemeral")
NO_TEXT = os.fsdecode(b"/tmp/caf\xe9")


def behind(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command with a constant redirection of the shell."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *HOLDFAST, *arguments],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(redirection: str) -> None:
    done = behind(redirection, *ONE_CHECK)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (">&-" not in redirection.replace("2>&-", ""))


@pytest.mark.parametrize(
    "arguments", [ONE_CHECK, (*ONE_CHECK, "--json"), ("explain", "--list"), ("completion", "zsh")]
)
def test_an_answer_that_cannot_be_written_is_reported(arguments: tuple[str, ...]) -> None:
    done = behind(">/dev/full", *arguments)
    assert done.stderr == b"error: the answer could not be written: No space left on device\n"
    assert done.returncode == 2


def test_an_error_that_cannot_be_written_keeps_its_exit_code() -> None:
    assert behind("2>/dev/full", "check", "--port", "99999").returncode == 2


ASCII_ONLY = {"PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "--help"), "'port'..."),
        (("explain", "HOLD101"), "... EADDRINUSE`"),
        (("env", "NCCL_TIMEOUT"), "timeout=...)"),
        (("check", "--only", "dns-failure", "--master-addr", "grün.invalid"), "gr\\xfcn.invalid"),
    ],
)
def test_a_terminal_that_knows_only_ascii(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, environment=ASCII_ONLY)
    assert words in done.stdout
    assert "Traceback" not in done.stderr


def test_json_is_utf_8_wherever_it_goes() -> None:
    done = behind("", "explain", "HOLD101", "--json")
    ascii_only = subprocess.run(
        [*HOLDFAST, "explain", "HOLD101", "--json"],
        env={**os.environ, **ASCII_ONLY}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert "…" in json.loads(ascii_only.stdout)["pages"][0]["see"]
    assert ascii_only.stdout == done.stdout


STRICT = {"PYTHONIOENCODING": "utf-8:strict"}


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--only", "disk-full", "--ckpt", NO_TEXT], {}),
        (["--only", "rendezvous-config", "--nnodes", "2"], {"PET_RDZV_ENDPOINT": NO_TEXT}),
        (["--only", "rank-assignment"], {"RANK": NO_TEXT, "WORLD_SIZE": "1"}),
    ],
)
def test_names_that_are_no_text(arguments: list[str], environment: dict[str, Any]) -> None:
    """Any bytes may stand in a path or a variable; only UTF-8 can be shown."""
    shown = run("check", "-v", *arguments, environment={**STRICT, **environment})
    assert "/tmp/caf�" in shown.stdout, shown.stderr
    listed = run("check", "--json", *arguments, environment={**STRICT, **environment})
    assert any("/tmp/caf�" in str(f) for f in json.loads(listed.stdout)["findings"])
