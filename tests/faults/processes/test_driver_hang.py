from __future__ import annotations

from holdfast.analysis.machine import KernelEvent, Leftovers, StuckProcess, Unread
from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job
from tests.faults.machines import a_machine, a_process
from tests.faults.table import (
    check_table,
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_scene, an_activity, held_up


def stuck(command: str, channel: str) -> Leftovers:
    process = a_process(pid=31, command=command)
    found = (StuckProcess(process=process, wait_channel=channel),)
    return Leftovers(orphans=(), segments=(), stuck=found)


def stall(text: str, seconds_ago: float | None) -> tuple[KernelEvent, ...]:
    return (KernelEvent(kind="stall", text=text, seconds_ago=seconds_ago),)


HUNG = "INFO: task python:4711 blocked for more than 120 seconds."
OOM = KernelEvent(kind="oom", text="Out of memory: Killed process 5", seconds_ago=60.0)

test_check = check_table(
    "driver-hang",
    speaks(
        "warning",
        a_machine(leftovers=stuck("nvidia-smi", "os_acquire_rwlock_read [nvidia]")),
        saying=["pid 31 waits inside the GPU driver", "if it lasts", "ps -o pid,stat", "-p 31"],
    ),
    speaks("warning", a_machine(leftovers=stuck("x", "uvm_va_space_mm_wait")), saying=["uvm_va"]),
    speaks("warning", a_machine(leftovers=stuck("x", "_nv042817rm")), saying=["_nv042817rm"]),
    speaks(
        "note",
        a_machine(leftovers=stuck("/usr/bin/python3.11 train.py", "rpc_wait_bit_killable")),
        saying=["uninterruptible sleep", "proves nothing", "rpc_wait_bit_killable"],
    ),
    speaks("note", a_machine(leftovers=stuck("torchrun x.py", "")), saying=["waits in unknown"]),
    speaks(
        "warning",
        a_machine(kernel_log=stall(HUNG, 600.0)),
        saying=["a stall", HUNG, "10 minutes ago", "within the last hour", "dmesg"],
    ),
    speaks("note", a_machine(kernel_log=stall(HUNG, 7200.0)), saying=["not within the last hour"]),
    speaks("note", a_machine(kernel_log=stall(HUNG, None)), saying=["as far as known"]),
    speaks(
        "warning",
        a_machine(kernel_log=(*stall(HUNG, 7200.0), *stall("soft lockup on CPU 3", 5.0))),
        saying=["2 stalls", "soft lockup on CPU 3"],
        not_saying=["blocked for more than 120"],
    ),
    silent(a_machine()),
    # storage is no GPU driver, and a foreign process in D state is none of this job's business
    silent(a_machine(leftovers=stuck("dd if=/dev/zero", "nvme_submit_sync_cmd"))),
    silent(a_machine(leftovers=stuck("kworker/3:1", "worker_thread"))),
    silent(a_machine(kernel_log=(OOM,))),
    skips(a_machine(leftovers=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(kernel_log=Unread(why="dmesg_restrict")), saying=["dmesg_restrict"]),
)

IN_NFS = an_activity(state="D", wait_channel="rpc_wait_bit_killable")
IN_GPU = an_activity(state="D", wait_channel="os_acquire_rwlock_read [nvidia]")
HUNG_RANK = "INFO: task python:4001 blocked for more than 122 seconds."
HUNG_OTHER = "INFO: task python:4003 blocked for more than 122 seconds."
XID = "NVRM: Xid (PCI:0000:3b:00): 119, pid=4001, name=python, Timeout after 6s of waiting"

test_run = run_table(
    "driver-hang",
    notices(
        held_up({1: {"activity": IN_NFS, "state_since": NOW - 12}}, seconds=13.0),
        ranks=[1],
        victims=[0, 2, 3],
        certain=False,
        saying=["stuck in the kernel (state D, in rpc_wait_bit_killable) for 12.0 s", "-p 4001"],
        not_saying=["GPU"],
    ),
    notices(
        held_up({1: {"activity": IN_GPU, "state_since": NOW - 12}}, seconds=13.0),
        ranks=[1],
        certain=False,
        saying=["of the GPU driver"],
    ),
    notices(
        held_up(
            {1: {"activity": IN_GPU, "state_since": NOW - 130}},
            seconds=131.0,
            kernel_events=(HUNG_RANK, HUNG_OTHER, XID),
        ),
        ranks=[1],
        certain=False,
        saying=[HUNG_RANK, XID],
        not_saying=[HUNG_OTHER],
    ),
    notices(
        held_up(
            {1: {"activity": IN_GPU, "state_since": NOW - 12}},
            seconds=13.0,
            kernel_events=Unread(why="kernel log not readable: no"),
        ),
        ranks=[1],
        certain=False,
        saying=["kernel log not readable: no"],
    ),
    overlooks(a_scene()),
    overlooks(held_up({1: {"activity": IN_NFS, "state_since": NOW - 4}})),
    overlooks(held_up({1: {}}, seconds=13.0)),
)


LOCKUP = "watchdog: BUG: soft lockup - CPU#17 stuck for 22s! [python:1002]"
HUNG = "INFO: task python:1002 blocked for more than 120 seconds."
HEARTBEAT = "[rank0]: watchdog got stuck for 600 seconds without making progress"

test_explain = explain_table(
    "driver-hang",
    recognises(
        a_job(LOCKUP, " _nv042123rm+0x10/0x40 [nvidia]", pids={2: 1002}),
        sure=0.8,
        rank=2,
        what="CPU 17",
        saying=["CPU 17 stuck in python", "GPU driver"],
    ),
    recognises(a_job(HUNG, pids={2: 1002}), sure=0.7, rank=2, saying=["task python blocked"]),
    recognises(
        a_job("nfs: server filer1 not responding, still trying"),
        sure=0.7,
        what="filer1",
        saying=["filer1 did not answer"],
    ),
    recognises(
        a_job(
            "[  +0.000049] task:python3.11   state:D stack:    0 pid:15277 ppid: 15257 flags:0x2",
            " uvm_page_tree_get_ptes_async+0x93/0x970 [nvidia_uvm]",
            " uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]",
        ),
        sure=0.75,
        saying=["python3.11 was in uninterruptible sleep", "uvm_page_tree_get_ptes_async"],
    ),
    recognises(  # /proc/PID/stack
        a_job(
            "[<ffffffffc33d41c2>] uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]",
            "[<ffffffffc33d7da7>] uvm_ioctl+0xed7/0x1790 [nvidia_uvm]",
        ),
        sure=0.55,
        saying=["a process was inside the GPU driver"],
    ),
    recognises(  # whichever process it is, its stack is in the driver
        a_job(
            "INFO: task gdscheck:509579 blocked for more than 120 seconds.",
            " os_acquire_rwlock_read+0x35/0x50 [nvidia]",
        ),
        sure=0.7,
        saying=["task gdscheck blocked", "in the GPU driver"],
    ),
    passes_over(a_job(" nv_pci_probe+0x10/0x40 [nvidia]")),
    recognises(a_job(HEARTBEAT), sure=0.4, rank=0, saying=["CUDA or NCCL did not return"]),
    recognises(a_job("[rank2]: State:\tD (disk sleep)"), sure=0.6, rank=2, saying=["kernel"]),
    passes_over(HEALTHY),
    passes_over(STUCK),
    passes_over(a_job("INFO: task rsync:77 blocked for more than 120 seconds.")),
)
