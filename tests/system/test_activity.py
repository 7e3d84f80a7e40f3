"""Signs of life of real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from holdfast.analysis.scene.scene import Activity
from holdfast.system import activity
from tests.system.sockets import listener, wait_for

OBEY = """
import ctypes, os, socket, subprocess, sys, threading, time

def spin():
    while True:
        pass

def beat():
    ctypes.CDLL(None).prctl(15, b"holdfast-beat", 0, 0, 0)
    print(threading.get_native_id(), flush=True)
    spin()

link = None
for line in sys.stdin:
    command, _, argument = line.strip().partition(" ")
    if command == "beat":
        threading.Thread(target=beat, daemon=True).start()
        continue
    if command == "spin":
        threading.Thread(target=spin, daemon=True).start()
    if command == "child":
        code = "import os; print(os.getpid(), flush=True)\\nwhile True: pass"
        subprocess.Popen([sys.executable, "-c", code])
        continue
    if command == "connect":
        link = socket.create_connection(("127.0.0.1", int(argument)))
    if command == "recv":
        link.recv(int(argument), socket.MSG_WAITALL)
    if command == "write":
        with open("/dev/null", "wb", buffering=0) as nowhere:
            nowhere.write(bytes(int(argument)))
    print("done", flush=True)
"""


class Process:
    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.pid = popen.pid

    def tell(self, command: str) -> str:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(command + "\n")
        self.popen.stdin.flush()
        return self.popen.stdout.readline().strip()

    def seen(self) -> Activity:
        now = activity.read(self.pid)
        assert now is not None
        return now


@contextlib.contextmanager
def obedient() -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, "-c", OBEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as popen:
        process = Process(popen)
        try:
            assert process.tell("hello") == "done"
            # Idle means waiting for the next command, not still on its way there.
            wait_for(lambda: process.seen().state == "S", seconds=30)
            yield process
        finally:
            for child in activity.descendants(popen.pid):
                os.kill(child, signal.SIGKILL)
            popen.kill()


def test_our_own_beat_is_no_sign_of_life_but_work_is() -> None:
    with obedient() as process:
        thread = process.tell("beat")
        folder = f"/proc/{process.pid}/task/{thread}"

        def beaten() -> int:
            with open(f"{folder}/schedstat", encoding="ascii") as file:
                return int(file.read().split()[0])

        def still_while_it_beats() -> bool:
            before, spent = process.seen().cpu, beaten()
            wait_for(lambda: beaten() > spent + 50_000_000, seconds=60)
            return process.seen().cpu == before

        # Not at once: the main thread needs the GIL once more to go back to its input.
        wait_for(still_while_it_beats, seconds=60)
        before = process.seen().cpu
        process.tell("spin")
        wait_for(lambda: process.seen().cpu > before + 0.05, seconds=60)


def test_the_work_of_a_child_counts() -> None:
    with obedient() as process:
        before = process.seen().cpu
        child = int(process.tell("child"))
        assert activity.descendants(process.pid) == [child]
        wait_for(lambda: process.seen().cpu > before + 0.1, seconds=60)


def test_bytes_read_and_written_count() -> None:
    with obedient() as process:
        before = process.seen().io
        process.tell("write 100000")
        assert process.seen().io >= before + 100_000


def test_bytes_received_count_though_the_kernels_io_counter_misses_them() -> None:
    with listener() as server, obedient() as process:
        port = server.getsockname()[1]
        process.tell(f"connect {port}")
        with server.accept()[0] as link:
            before = process.seen()
            link.sendall(bytes(50_000))
            process.tell("recv 50000")
            after = process.seen()
            assert after.socket >= before.socket + 50_000
            assert after.io < before.io + 50_000
            ignoring = activity.read(process.pid, ignore_ports=[port])
            assert ignoring is not None
            assert ignoring.socket == 0
            without = activity.read_many([process.pid], sockets=False)[process.pid]
            assert without is not None
            assert without.socket == 0


def test_a_stopped_process_shows_its_state() -> None:
    with obedient() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: process.seen().state == "T")


def test_the_dead_have_no_activity() -> None:
    with obedient() as process:
        process.popen.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert activity.read(process.pid) is None  # a zombie
        process.popen.wait()
        assert activity.read(process.pid) is None


def test_a_sleeper_waits_in_the_kernels_sleep() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:

            def channel() -> str:
                seen = activity.read(sleeper.pid)
                return seen.wait_channel if seen else ""

            wait_for(lambda: "nanosleep" in channel(), seconds=30)
        finally:
            sleeper.kill()


def test_without_inet_diag_the_rest_is_still_read() -> None:
    """As in a sandbox whose kernel has none: the socket is refused."""
    code = (
        "import socket\nfrom holdfast.system import activity, inet_diag\nimport os\n"
        "inet_diag.NETLINK_SOCK_DIAG = 31\n"
        "seen = activity.read(os.getpid())\nprint(seen.socket, seen.cpu > 0, seen.state)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["0", "True", "R"]
