"""What the launcher sets up in its own process, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from resource import RLIM_INFINITY

import pytest

from holdfast.run.launch import process_setup


def answered(program: str) -> str:
    setup = "import resource, os, signal\nfrom holdfast.run.launch import process_setup as setup\n"
    command = [sys.executable, "-c", setup + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 4096, 4096),
        (4096, 4096, None),
        (1024, 2**30, 65536),  # not a billion: some programs close every number up to it
        (1024, RLIM_INFINITY, 65536),
        (100_000, 200_000, None),
        (RLIM_INFINITY, RLIM_INFINITY, None),
    ],
)
def test_there_are_files_enough_and_not_too_many(soft: int, hard: int, wanted: int | None) -> None:
    assert process_setup.enough_files(soft, hard) == wanted


def test_the_limit_of_files_is_raised() -> None:
    said = answered(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n"
        "print(setup.raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    assert said == "(256, 512) 512"


def test_signals_for_the_ranks_do_not_end_a_launcher_without_ranks() -> None:
    said = answered(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
        "setup.reset_signals()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print(signal.getsignal(signal.SIGCHLD).name, signal.getsignal(signal.SIGUSR2).name)"
    )
    assert said == "SIG_DFL SIG_IGN"
