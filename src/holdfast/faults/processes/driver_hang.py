"""A process hangs inside the kernel, or the kernel reports a stall.

What you see   A rank that cannot be killed, not even by `kill -9`; nvidia-smi that never returns;
               `task python:4711 blocked for more than 120 seconds` or `soft lockup` in the kernel
               log; all other ranks time out.
Why            State D is uninterruptible sleep: the process waits inside the kernel for a driver or
               for storage. Briefly that is normal (a save to NFS, a large read). When the driver or
               the file server has stopped answering, it lasts, and only the kernel can end it.
How to be sure `ps -o pid,stat,wchan:32,cmd -p PID` several times, and `sudo cat /proc/PID/stack`:
               the same frames each time, with names of a driver or of nfs. State D alone proves
               nothing.
Fix            Storage: check whether the server answers (`timeout 5 stat -f PATH`). GPU driver:
               take the node out of the job and reboot it; no signal reaches such a process.
Known limits   A long save to slow storage looks the same, so `run` only reports it and never acts
               on it. The kernel stack and log need root on most machines.
Sources        https://docs.kernel.org/admin-guide/lockup-watchdogs.html
               https://docs.kernel.org/admin-guide/sysctl/kernel.html: hung_task_timeout_secs
               https://man7.org/linux/man-pages/man5/proc_pid_wchan.5.html
               leptonai/gpud components/cpu/kmsg_matcher.go: the kernel's words for it
               SchedMD/slurm: src/slurmd/slurmstepd/step_terminate_monitor.c
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import kernel, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import KernelEvent, MachineFacts, StuckProcess, known
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD708",
    slug="driver-hang",
    related=("rank-stuck", "gpu-hardware", "rank-frozen", "slow-rank"),
    traits=RunTraits(priority=430, needs_stall=True),
)

GPU_DRIVER = re.compile(r"nvidia|\b_?nv_|\b_nv\d|\buvm_|\brm_|amdgpu|\bkfd_", re.IGNORECASE)
"""symbols of NVIDIA's and AMD's kernel modules as wchan shows them; nvme_ is not among them"""

TRAINING = re.compile(r"\b(python[\d.]*|torchrun|deepspeed|accelerate|nvidia-smi|mpirun)\b")

RECENT_SECONDS = 3600
LONG_IN_STATE_D = 10.0
"""seconds in state D before it is reported; a save to a slow disk takes as long"""
LOOK = "ps -o pid,stat,wchan:32,cmd -p"
CHECK_STORAGE = "storage: `timeout 5 stat -f PATH`"


@FAULT.check(needs=("leftovers",))
def process_stuck_in_kernel(facts: MachineFacts) -> Finding:
    stuck = known(facts.leftovers).stuck
    in_driver = [p for p in stuck if GPU_DRIVER.search(p.wait_channel)]
    training = [p for p in stuck if TRAINING.search(p.process.command)]
    if in_driver:
        pids = [p.process.pid for p in in_driver]
        return FAULT.warning(
            f"pid {text.numbers(pids)} waits inside the GPU driver and cannot be interrupted",
            reason="seen in two checks; normal for moments, but if it lasts the driver hangs, and "
            "so will every program that uses the GPU",
            evidence=[_stuck_evidence(p) for p in in_driver],
            fix=f"check again: `ps -o pid,stat,wchan:32,cmd -p {','.join(map(str, pids))}`; if it "
            "stays in state D, take this node out of the job and reboot it",
        )
    if training:
        pids = [p.process.pid for p in training]
        return FAULT.note(
            f"pid {text.numbers(pids)} is in uninterruptible sleep",
            reason="seen in two checks; a save or load on slow storage looks the same, so this "
            "alone proves nothing",
            evidence=[_stuck_evidence(p) for p in training],
            fix=f"check again: `ps -o pid,stat,wchan:32,cmd -p {','.join(map(str, pids))}`",
        )
    return FAULT.ok("no training process is stuck inside the kernel")


@FAULT.check(needs=("kernel_log",))
def kernel_log_stalls(facts: MachineFacts) -> Finding:
    stalls = [event for event in known(facts.kernel_log) if event.kind == "stall"]
    if not stalls:
        return FAULT.ok("no stall in the kernel log")
    recent = [e for e in stalls if e.seconds_ago is not None and e.seconds_ago < RECENT_SECONDS]
    report = FAULT.warning if recent else FAULT.note
    return report(
        f"the kernel log has {'a stall' if len(stalls) == 1 else f'{len(stalls)} stalls'}",
        reason="a CPU, a driver or storage did not answer for a long time"
        + (", within the last hour" if recent else "; not within the last hour, as far as known"),
        evidence=[_kernel_event(event) for event in (recent or stalls)[-3:]],
        fix="see what stalled: `sudo dmesg -T | grep -iE 'blocked for|stall|lockup|not "
        "responding'`",
    )


def _stuck_evidence(stuck: StuckProcess) -> Evidence:
    where = stuck.wait_channel or "unknown"
    return Evidence(
        quote=f"{stuck.process.description}: state D, waits in {where}",
        source=f"/proc/{stuck.process.pid}/wchan",
    )


def _kernel_event(event: KernelEvent) -> Evidence:
    ago = "" if event.seconds_ago is None else f" ({text.duration(event.seconds_ago)} ago)"
    return Evidence(quote=f"{event.text}{ago}", source="kernel log")


@FAULT.run
def rank_stuck_in_kernel(scene: Scene) -> Verdict | None:
    """Always a notice: a long save to slow storage looks the same."""
    stalled = stall.find(scene)
    if stalled is None:
        return None
    stuck = [
        view
        for view in map(scene.rank, stalled.roots)
        if view.activity
        and view.activity.state == "D"
        and scene.now - view.state_since >= LONG_IN_STATE_D
    ]
    if not stuck:
        return None
    view = stuck[0]
    channel = (view.activity.wait_channel if view.activity else "") or "unknown"
    gpu = " of the GPU driver" if GPU_DRIVER.search(channel) else ""
    return FAULT.verdict(
        f"{phrases.who(scene, [v.rank for v in stuck])} has been stuck in the kernel (state D, "
        f"in {channel}{gpu}) for {text.elapsed(scene.now - view.state_since)}, called "
        f"{stall.place(view)}; {stalled.waiting()}",
        ranks=[v.rank for v in stuck],
        victims=stalled.victims,
        certain=False,
        fix=f"check again: {phrases.pid_command(scene, LOOK, [view.rank])}; {CHECK_STORAGE}",
        fix_after_end=CHECK_STORAGE,
        evidence=[
            Evidence(
                quote=f"state D in {channel}", source=f"/proc/{view.pid}/wchan", rank=view.rank
            ),
            *_kernel_lines(scene, [v.rank for v in stuck]),
        ],
    )


def _kernel_lines(scene: Scene, ranks: list[int]) -> list[Evidence]:
    """The kernel's own report, after two minutes; or the GPU driver's."""
    found = phrases.kernel_lines(scene, ranks, _hung_or_xid)
    return found[-3:] or phrases.unread_kernel_log(scene, ranks)


def _hung_or_xid(pids: str) -> str:
    hung = rf":({pids}) blocked for more than|blocked for .*\(a thread of pid ({pids})\)"
    xid = rf"Xid .*\bpid='?({pids})\b|Xid .*\(a thread of pid ({pids})\)"
    return f"{hung}|{xid}"


# --- explain -------------------------------------------------------------------------------------

STORAGE = FAULT.log_pattern(
    "storage",
    r"nfs: server (?P<server>\S+) not responding|LustreError: .*timed out"
    r"|ceph: mds\d+ (?:hung|caps stale)",
    anchors=("nfs: server ", "LustreError: ", "ceph: mds"),
    example="[12345.678] nfs: server filer1 not responding, still trying",
    role=Role.CONFIRMATION,
)
STALLED = FAULT.log_pattern(
    "gpu-driver",
    r"(?<!\w)(?P<symbol>\w{1,120})(?:\+0x\w{1,16}/0x\w{1,16})? \[(?P<module>nvidia\w*|amdgpu)\]",
    anchors=("[nvidia]", "[nvidia_uvm]", "[nvidia_drm]", "[amdgpu]"),
    example="[12345.678]  _nv042123rm+0x10/0x40 [nvidia]",
    role=Role.CONFIRMATION,
)
BLOCKED = FAULT.log_pattern(
    "task-dump",
    # How the kernel heads the stack of a task: since 5.14 with words, before in columns.
    r"\btask:(?P<name>\S{1,64})\s{1,20}state:D\b.{0,60}?\bpid:\s?(?P<pid>\d{1,10})"
    r"|^\s*(?P<task>\S{1,64})\s{1,20}D\s{1,4}(?:[0-9a-f]{8,16})?\s{1,12}\d\s{1,8}(?P<old>\d{1,10})"
    r"\s{1,8}\d{1,10} 0x[0-9a-f]{8}",
    anchors=("state:D", " 0x0000"),
    example="[12345.678] task:python3.11  state:D stack:    0 pid: 1011 ppid:  1001 "
    "flags:0x00000002",
    role=Role.CONFIRMATION,
)
ASLEEP = FAULT.log_pattern(
    "disk-sleep",
    r"State:\s+D \(disk sleep\)",
    anchors="D (disk sleep)",
    example="State:\tD (disk sleep)",
)
MINIMUM_FRAMES = 2
"""frames of the driver; a single one also appears below an interrupt"""
SHOW_STALLS = "sudo dmesg -T | grep -iE 'blocked for|stall|lockup|not responding|Xid'"


@FAULT.explain
def stall_in_kernel_log(wreckage: Wreckage) -> Diagnosis | None:
    lockups = wreckage.seen(kernel.SOFT_LOCKUP)
    frames = wreckage.seen(STALLED)
    hung = [
        s for s in wreckage.seen(kernel.HUNG_TASK) if frames or _is_training_process(wreckage, s)
    ]
    storage = wreckage.seen(STORAGE)
    stalls = (*lockups, *hung, *storage)
    if not stalls:
        return None
    first = stalls[0]
    if frames:
        where = "the stack it printed is in the GPU driver"
    elif storage:
        where = f"the file server {storage[0].fields.get('server', '')} did not answer".rstrip()
    else:
        where = "the kernel's stack below that line shows what it waited for"
    return FAULT.diagnosis(
        f"the kernel of {first.line.host or 'that machine'} reported a stall "
        f"({_stall_in_words(first)}): {where}; everything there stopped, and the other ranks "
        "waited for it",
        confidence=0.8 if frames and lockups else 0.7,
        seen=(*stalls, *frames[:2]),
        culprit=_culprit_of_stall(wreckage, first),
        victims=blame.of(wreckage).victims,
        fix="storage: check whether the server answers (`timeout 5 stat -f PATH`); GPU driver: "
        "take the node out of the job and reboot it, no signal reaches such a process",
        next=SHOW_STALLS,
        ruled_out=blame.ruled_out(wreckage),
    )


UNKILLABLE = FAULT.log_pattern(
    "unkillable",
    r"STEPD TERMINATED ON (?P<host>[\w.\-]{1,100}) AT \S{1,40} DUE TO JOB NOT ENDING WITH SIGNALS"
    r"|Reason=Kill task failed",
    anchors=("DUE TO JOB NOT ENDING WITH SIGNALS", "Reason=Kill task failed"),
    example="slurmstepd: error: *** STEP 123.0 STEPD TERMINATED ON node7 AT 2026-11-16T10:00:00 "
    "DUE TO JOB NOT ENDING WITH SIGNALS ***",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def slurm_could_not_end_a_process(wreckage: Wreckage) -> Diagnosis | None:
    """It says that something outlived SIGKILL, not why the job was to end."""
    seen = wreckage.seen(UNKILLABLE)
    if not seen or wreckage.seen(kernel.SOFT_LOCKUP, kernel.HUNG_TASK, STALLED, STORAGE):
        return None
    host = seen[0].fields.get("host", "")
    return FAULT.diagnosis(
        f"a process{f' on {host}' if host else ''} did not exit after Slurm sent it SIGKILL: it "
        "was inside the kernel, in the GPU driver or in storage that does not answer; Slurm drains "
        "the node",
        confidence=0.45,
        seen=seen,
        culprit=Culprit(host=host, what=host),
        fix="look at it before the node returns: `ps -eo pid,stat,wchan:32,cmd | grep ' D'` there; "
        "reboot it if the process stays",
        next="sinfo -R",
        unknown=("why the job was to end: see the lines before",),
    )


@FAULT.explain
def stack_in_gpu_driver(wreckage: Wreckage) -> Diagnosis | None:
    """/proc/PID/stack, or a task that the kernel dumped, without the report above it."""
    frames = wreckage.seen(STALLED)
    reported = wreckage.seen(kernel.SOFT_LOCKUP, kernel.HUNG_TASK, kernel.XID, STORAGE)
    if len(frames) < MINIMUM_FRAMES or reported:
        return None
    asleep = wreckage.seen(BLOCKED)
    fields = asleep[0].fields if asleep else {}
    pid = fields.get("pid") or fields.get("old")
    name = fields.get("name") or fields.get("task") or "a process"
    return FAULT.diagnosis(
        f"{name} {'was in uninterruptible sleep' if asleep else 'was'} inside the GPU driver "
        f"({frames[0].fields['symbol']} of {frames[0].fields['module']}): the driver did not "
        "answer, no signal reaches the process, and the other ranks wait",
        confidence=0.75 if asleep else 0.55,
        seen=(*asleep[:1], *frames[:2]),
        culprit=Culprit(host=frames[0].line.host, pid=int(pid) if pid else None),
        victims=blame.of(wreckage).victims,
        fix="take the node out of the job and reboot it; if it recurs, try another driver version",
        next=SHOW_STALLS,
        unknown=("for how long: the kernel's report is not in these lines",),
    )


def _is_training_process(wreckage: Wreckage, seen: Sighting) -> bool:
    """A process of the job, or one that uses the GPU; a hung backup does not count."""
    pids = {str(r.pid) for r in wreckage.ranks if r.pid}
    return seen.fields.get("pid") in pids or bool(TRAINING.search(seen.fields.get("name", "")))


def _stall_in_words(seen: Sighting) -> str:
    cpu, name = seen.fields.get("cpu"), seen.fields.get("name")
    if cpu:
        return f"CPU {cpu} stuck" + (f" in {name}" if name else "")
    return f"task {name} blocked" if name else "no answer"


def _culprit_of_stall(wreckage: Wreckage, seen: Sighting) -> Culprit:
    pid = int(seen.fields["pid"]) if seen.fields.get("pid", "").isdigit() else None
    rank = next((r.rank for r in wreckage.ranks if pid is not None and r.pid == pid), None)
    cpu = seen.fields.get("cpu")
    what = seen.fields.get("server") or (f"CPU {cpu}" if cpu else "")
    return Culprit(rank=rank, host=seen.line.host, pid=pid, what=what)


@FAULT.explain
def cuda_call_did_not_return(wreckage: Wreckage) -> Diagnosis | None:
    stuck, asleep = wreckage.seen(watchdog.HEARTBEAT_STUCK), wreckage.seen(ASLEEP)
    if not (stuck or asleep) or (stuck and blame.of(wreckage).explained and not asleep):
        return None
    who = "a rank" if (asleep or stuck)[0].rank is None else f"rank {(asleep or stuck)[0].rank}"
    reason = (
        f"{who} was in uninterruptible sleep: it waited inside the kernel for a driver or storage"
        if asleep
        else f"the watchdog thread of {who} made no progress for minutes: a call into CUDA or NCCL "
        "did not return, or the GIL was held"
    )
    return FAULT.diagnosis(
        reason,
        confidence=0.6 if asleep else 0.4,
        seen=asleep or stuck,
        victims=blame.of(wreckage).others((asleep or stuck)[0].rank),
        fix="check its native stack and the kernel log for what it waits for; a longer heartbeat "
        "timeout helps only if the call is just slow",
        next=SHOW_STALLS,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("what the call waited for: there is no native stack and no kernel log",),
    )
