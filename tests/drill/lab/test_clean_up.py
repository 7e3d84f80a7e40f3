"""Nothing of a lab stays behind, however its maker ends; and where none can be built, a sentence
says why."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drill.lab import Lab, LabUnavailableError
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab")]

BUILDS_A_LAB = """
import os, signal, time
from holdfast.drill.lab import Lab
lab = Lab()
a, b = lab.hosts(2)
lab.link(a, b).loss(10)
b.firewall("tcp dport 1 drop")
lab.start(a, ["sleep", "1000"])
lab.start(b, ["sh", "-c", "setsid sleep 1000 & trap '' TERM HUP INT; sleep 1000"])
for host in (a, b):
    for kind in ("net", "mnt", "pid", "uts", "ipc"):
        print(f"/proc/{host.pid}/ns/{kind}", end=" ")
print(f"/proc/{os.getpid()}/fd/{lab.hub}", flush=True)
input()
"""


@contextlib.contextmanager
def namespaces_of(maker: subprocess.Popen[str]) -> Iterator[set[int]]:
    """The numbers of those whose names it prints in a line, before it goes on. They are kept open:
    the kernel gives the number of one that is gone to the next one, which may be anyone's."""
    assert maker.stdout is not None
    assert maker.stdin is not None
    with contextlib.ExitStack() as kept:
        numbers = set()
        for name in maker.stdout.readline().split():
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            kept.callback(os.close, descriptor)
            numbers.add(os.fstat(descriptor).st_ino)
        maker.stdin.write("go on\n")
        maker.stdin.flush()
        yield numbers


def holders(namespaces: set[int]) -> list[str]:
    """Other processes that are in one of these namespaces, or keep one open, or mounted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            places = [*process.glob("ns/*"), *process.glob("fd/*")]
            links = {os.readlink(place) for place in places}
            links.add((process / "mountinfo").read_text())
            if any(f"[{number}]" in link for number in namespaces for link in links):
                found.append((process / "cmdline").read_text())
    return found


def wait_until_gone(namespaces: set[int]) -> None:
    end = time.monotonic() + 30
    while left := holders(namespaces):
        assert time.monotonic() < end, left
        time.sleep(0.02)


@contextlib.contextmanager
def lab_of_another_process(folder: Path, then: str) -> Iterator[tuple[int, set[int]]]:
    """Its pid and the namespaces it made, of which none may be left in the end."""
    with lab_or_skip():
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDS_A_LAB + then],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        with namespaces_of(process) as namespaces:
            assert len(namespaces) == 11
            yield process.pid, namespaces
            process.wait(30)
            wait_until_gone(namespaces)
    finally:
        process.kill()
        process.communicate()


def test_a_killed_test_leaves_nothing(tmp_path: Path) -> None:
    with lab_of_another_process(tmp_path, "time.sleep(1000)") as (pid, namespaces):
        end = time.monotonic() + 30
        while len(holders(namespaces)) < 7:  # it, two first processes and four that sleep
            assert time.monotonic() < end
        os.kill(pid, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("", marks=pytest.mark.long),
        "lab.close()",
        pytest.param("raise ValueError", marks=pytest.mark.long),
        "os._exit(4)",
    ],
)
def test_nothing_is_left_after_any_end(tmp_path: Path, end: str) -> None:
    with lab_of_another_process(tmp_path, end):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_build_a_lab_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(LabUnavailableError, match="needs root"):
            Lab()
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        with pytest.raises(LabUnavailableError, match="needs nft and nsenter"):
            Lab()
