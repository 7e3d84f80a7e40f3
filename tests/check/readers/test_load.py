"""A busy stranger is seen; holdfast's own work is not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import HostLoad
from holdfast.check.readers import load
from tests.check.readers.trees import elsewhere
from tests.faults.machines import a_plan

SPIN = "while True: pass"
CHECK = """
import os, sys
import msgspec
from holdfast.check.readers import load
from holdfast.system import deadline

def busy_reader():
    while True:
        pass

answers = deadline.ask(
    {"load": lambda: msgspec.json.encode(load.read_load(None)), "busy": busy_reader}, seconds=2
)
sys.stdout.buffer.write(answers["load"])
"""


def test_a_busy_stranger_is_seen_and_our_own_readers_are_not() -> None:
    """In the shape of `holdfast check`: a program whose readers are its children."""
    with subprocess.Popen([sys.executable, "-c", SPIN]) as stranger:
        try:
            with contextlib.suppress(PermissionError):  # without the right, others may starve it
                os.setpriority(os.PRIO_PROCESS, stranger.pid, -15)
            end = time.monotonic() + 60
            while True:
                with subprocess.Popen([sys.executable, "-c", CHECK], stdout=-1) as check:
                    answer, _ = check.communicate()
                found = msgspec.json.decode(answer, type=HostLoad)
                assert all(who.parent != check.pid for who in found.busy)
                seen = {who.pid: who for who in found.busy}
                if stranger.pid in seen:
                    break
                assert time.monotonic() < end, "never seen"
        finally:
            stranger.kill()
    assert SPIN in seen[stranger.pid].command
    assert check.pid not in seen


def test_numbers_of_this_machine() -> None:
    found = load.read_load(a_plan())
    assert found.cpus_online == os.cpu_count()
    assert found.memory_total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found.memory_available <= found.memory_total
    assert 0 <= found.swap_used <= found.swap_total
    assert found.load1 >= 0


def test_affinity_narrows_what_is_usable() -> None:
    def pinned() -> HostLoad:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        return load.read_load(a_plan())

    assert elsewhere(pinned, HostLoad).cpus_usable == 1


@given(st.text())
def test_memory_info_holds_only_what_the_file_has(text: str) -> None:
    assert all(name in text for name in load.parse_memory_info(text))
