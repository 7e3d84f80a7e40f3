"""Events in the kernel's log, and the admission that it may not be read."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.check.readers.kernel_log import (
    MOST_EVENTS,
    journal_records,
    parse,
    read_kernel_log,
)
from tests.faults.machines import a_plan
from tests.system.sockets import BECOME_NOBODY, needs_root, run_python

NOW = 200_000.0


def record(text: str, *, at: float = NOW - 60) -> str:
    return f"4,1234,{int(at * 1e6)},-;{text}"


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus."
KILLED = "Memory cgroup out of memory: Killed process 815 (python) total-vm:9kB, anon-rss:8kB"
ABOUT = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=815,uid=1000"
BLOCKED = "INFO: task python:4711 blocked for more than 120 seconds."
NFS = "nfs: server filer not responding, still trying"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (XID, "xid"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55", "sxid"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "sxid"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0xffff:1290)", "gpu"),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "gpu"),
        (KILLED, "oom"),
        ("Out of memory: Killed process 815 (python) total-vm:9kB", "oom"),
        (ABOUT, "oom"),
        (BLOCKED, "stall"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1]", "stall"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "stall"),
        (NFS, "stall"),
    ],
)
def test_each_kind_is_recognised(text: str, kind: str) -> None:
    (event,) = parse([record("usb 1-1: new device"), record(text), " SUBSYSTEM=pci"], NOW)
    assert (event.kind, event.text, event.seconds_ago) == (kind, text, 60.0)


def test_one_kill_is_one_event() -> None:
    assert [e.text for e in parse([record(ABOUT), record(KILLED)], NOW)] == [KILLED]


def test_what_is_older_than_a_day_is_left_out() -> None:
    assert parse([record(XID, at=NOW - 90_000)], NOW) == ()


def test_a_file_server_that_came_back_is_no_stall() -> None:
    back = record("nfs: server filer OK")
    other = record("nfs: server other not responding, timed out")
    assert [e.text for e in parse([record(NFS), other, back], NOW)] == [
        "nfs: server other not responding, timed out"
    ]
    assert len(parse([record(NFS), back, record(NFS)], NOW)) == 1


def test_only_the_last_events_are_kept() -> None:
    events = parse([record(f"{BLOCKED} #{n}") for n in range(1000)], NOW)
    assert len(events) == MOST_EVENTS
    assert events[-1].text.endswith("#999")


def test_a_device_that_repeats_itself_is_counted_and_hides_nothing() -> None:
    first = record("NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, name=python, DBE", at=NOW - 600)
    storm = [record(f"{XID} #{n}") for n in range(1000)]
    survived = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x13 0x0)"
    deadly = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x11 0x0)"
    events = parse([first, record(BLOCKED), *storm, record(survived), record(deadly)], NOW)
    assert [(e.text[-12:], e.count) for e in events] == [
        ("=python, DBE", 1),
        ("he bus. #999", 1000),
        ("0 (0x13 0x0)", 1),
        ("0 (0x11 0x0)", 1),
        ("120 seconds.", 1),
    ]


def test_registers_that_follow_a_switch_report_are_no_reports() -> None:
    switch = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, "
    events = parse(
        [
            record(f"{switch}Fatal, Link 30 LTSSM Fault Up"),
            record(f"{switch}Severity 1 Engine instance 30 Sub-engine instance 00"),
            record(f"{switch}Data {{0x50610002, 0x10100030}}"),
        ],
        NOW,
    )
    assert [(e.kind, e.count) for e in events] == [("sxid", 1)]


@given(st.lists(st.text() | st.sampled_from([XID, KILLED, ABOUT, BLOCKED, NFS]).map(record)))
def test_any_lines_are_read_without_a_stumble(lines: list[str]) -> None:
    for event in parse(lines, NOW):
        assert event.kind in ("xid", "sxid", "gpu", "oom", "stall")
        assert event.text.isprintable()


def test_a_captured_log_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("\n".join([record(XID, at=0.0), " DEVICE=+pci:0000:3b:00.0", record(KILLED)]))
    found = read_kernel_log(a_plan(), path=str(log))
    assert not isinstance(found, Unread)
    assert "oom" in [event.kind for event in found]


def test_a_machine_without_a_log_says_so(tmp_path: Path) -> None:
    found = read_kernel_log(a_plan(), path=str(tmp_path / "none"))
    assert isinstance(found, Unread)
    assert "kernel log is not here" in found.why


@pytest.mark.lab
def test_root_reads_the_real_log_to_its_end() -> None:
    needs_root()
    if not os.path.exists("/dev/kmsg"):
        pytest.skip("needs /dev/kmsg")
    assert isinstance(read_kernel_log(a_plan()), tuple)


def test_lines_of_the_journal_are_read_as_the_kernels_own() -> None:
    output = f"[    3.250000] node-a kernel: {XID}\n-- Boot 7 --\n[    3.5] node-a kernel: cut\n"
    (event,) = parse(journal_records(output), 63.25)
    assert (event.kind, event.text, event.seconds_ago) == ("xid", XID, 60.0)


@pytest.mark.lab
def test_a_user_who_may_read_the_journal_reads_that(tmp_path: Path) -> None:
    needs_root()
    log = tmp_path / "kmsg"
    log.touch(mode=0o600)
    with tempfile.TemporaryDirectory() as folder:  # any user may enter it
        os.chmod(folder, 0o755)
        program = Path(folder, "journalctl")
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        program.write_text(f"#!/bin/sh\necho '[{now:12.6f}] node-a kernel: {XID}'\n")
        program.chmod(0o755)
        code = (
            "import os, sys\n"
            "from holdfast.check.readers.kernel_log import read_kernel_log\n"
            "from tests.faults.machines import a_plan\n" + BECOME_NOBODY
        )
        code += f"os.environ['PATH'] = {folder!r}\n"
        said = run_python(code + "print(read_kernel_log(a_plan(), path=sys.argv[1]))", str(log))
    assert "kind='xid'" in said
    assert "GPU has fallen off the bus" in said


@pytest.mark.lab
def test_a_user_who_may_not_read_it_gets_the_reason(tmp_path: Path) -> None:
    needs_root()
    log = tmp_path / "kmsg"
    log.touch(mode=0o600)
    code = (
        "import sys\n"
        "from holdfast.check.readers.kernel_log import read_kernel_log\n"
        "from tests.faults.machines import a_plan\n" + BECOME_NOBODY
    )
    said = run_python(code + "print(read_kernel_log(a_plan(), path=sys.argv[1]))", str(log))
    assert "not readable by this user (dmesg_restrict)" in said
