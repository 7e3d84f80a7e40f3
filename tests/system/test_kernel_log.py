"""The kernel log: real crashes where this machine lets us read them, and what is no proof."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.system import kernel_log, proc
from holdfast.system.kernel_log import KernelLog, parse
from tests.cli.holdfast_command import in_a_namespace, wait_until

FIRST = proc.shows_whole_machine()

LINES = {
    "3,1030,1115765,-;Memory cgroup out of memory: Killed process 4001 (python) total-vm:9": 4001,
    "6,1031,11963,-;python[4002]: segfault at 0 ip 00007f in libc.so.6[156219,7f]": 4002,
    "6,1031,11963,-;pt main[4003]: segfault at 8 ip 0 sp 0 error 4": 4003,
    "4,1,1,-;traps: python[4004] trap invalid opcode ip:7f sp:7f error:0 in x.so": 4004,
    "4,1,1,-;traps: python[4005] general protection fault ip:7f": 4005,
    "3,1,1,-;INFO: task python:4006 blocked for more than 122 seconds.": 4006,
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4007, name=python, Ch 00000008": 4007,
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='4008', name=python": 4008,
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>": None,
    # a program's own words: user facility
    "12,1,1,-;python[4009]: segfault at 0 ip 0": None,
    "6,1,1,-;Code: fe 7f 5c 17 <c5> fd 74": None,
    "python[4010]: segfault at 0 ip 0": None,
    "6,1,1,-;eth0: link up (4011)": None,
}  # fmt: skip


@pytest.mark.parametrize(("line", "number"), LINES.items())
def test_who_is_meant(line: str, number: int | None) -> None:
    found = parse(f"{line}\n SUBSYSTEM=pci\n")
    assert (found and found[0]) == number
    if found:
        assert found[1] == line.partition(";")[2]


GPU_LINES = {
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen": (
        79, "0000:3b:00", None, False),
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4007, name=python, Ch 00000008": (
        31, "0000:3b:00", 4007, False),
    "4,1,1,-;NVRM: Xid (PCI:0000:dc:00): 45, pid=7, name=p, Ch 1 caused by previous Xid 149": (
        149, "0000:dc:00", 7, False),
    "2,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55": (
        24007, "0000:c1:00.0", None, True),
    # a program's own words: user facility
    "12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1": None,
    "4,1,1,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04": None,
    "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, pid=1": None,
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), GPU_LINES.items())
def test_which_gpu_is_meant(line: str, expected: tuple[object, ...] | None) -> None:
    found = kernel_log.parse_gpu(f"{line}\n SUBSYSTEM=pci\n")
    assert (found and (found.number, found.bus_id, found.pid, found.switch)) == expected


def test_pids_of_another_namespace_mean_nothing() -> None:
    record = "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4007, name=python"
    found = kernel_log.parse_gpu(record, pids_are_ours=False)
    assert found is not None
    assert found.pid is None


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    for record in (text, f"6,1,1,-;{text}", f"6,1,1,-;[{text}]: segfault"):
        found = parse(record)
        kernel_log.parse_gpu(f"{record} Xid (PCI:{text}): {text}")
        if found:
            assert "\n" not in found[1]
            assert len(found[1]) <= kernel_log.LONGEST


def segfault(in_a_thread: bool = False) -> tuple[int, int]:
    """(pid, number of the thread that crashed) of a real crash."""
    program = (
        "import ctypes, os, threading\n"
        "def crash():\n"
        "    print(threading.get_native_id(), flush=True)\n"
        "    ctypes.string_at(0)\n"
        + ("threading.Thread(target=crash).start()\n" if in_a_thread else "crash()\n")
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    out, _ = child.communicate(timeout=60)
    return child.pid, int(out)


def test_a_real_crash_is_told_of_by_its_thread_or_the_gap_is_said() -> None:
    log = KernelLog()
    try:
        pid, thread = segfault(in_a_thread=True)
        assert pid != thread
        owners = {pid: pid, thread: pid}
        told = log.about(owners)
        if isinstance(told, Unread):
            assert not FIRST or os.geteuid(), told
            assert told.why.startswith("kernel log not readable: ")
            return
        wait_until(lambda: bool(log.about(owners)))
        told = log.about(owners)
        assert not isinstance(told, Unread)
        (line,) = told
        assert f"[{thread}]: segfault at 0" in line
        assert line.endswith(f"(a thread of pid {pid})")
        assert log.about({1: 1}) == ()
        log.forget()
        assert log.about(owners) == ()
    finally:
        log.close()


def test_what_came_before_is_not_told() -> None:
    pid, _ = segfault()
    log = KernelLog()
    try:
        assert isinstance(log.about({pid: pid}), Unread) or log.about({pid: pid}) == ()
    finally:
        log.close()


def test_no_log_is_no_clean_log(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    log = KernelLog(str(tmp_path / "none"))
    told = log.about({})
    assert isinstance(told, Unread)
    assert told.why == f"kernel log not readable: there is no {tmp_path / 'none'}" or not FIRST
    log.forget()
    log.close()
    log.close()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.lab
def test_a_container_counts_otherwise() -> None:
    """Its pid 2 is not the kernel's: a line about pid 2 would blame a stranger's crash on us."""
    program = (
        "from holdfast.system.kernel_log import KernelLog; print(KernelLog().about({2: 2}).why)"
    )
    within = in_a_namespace("pid", "fork", "mount-proc", setup=":")
    done = subprocess.run(
        [*within, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "counts processes otherwise than this container" in done.stdout, done.stderr
