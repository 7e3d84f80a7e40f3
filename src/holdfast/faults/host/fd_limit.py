"""The limit on open files is too low.

What you see   `OSError: [Errno 24] Too many open files`, `RuntimeError: Too many open files.
               Communication with the workers …`, `RuntimeError: received 0 items of ancdata`, or
               NCCL's `Call to socket failed: Too many open files`; often only after minutes, or
               only at scale. The kernel log shows nothing. ENOMEM is another fault: memory, memlock
               or /dev/shm.
Why            RLIMIT_NOFILE limits the file descriptors of each process. Every connection to a peer
               takes some, every tensor that a loader worker hands over holds one while it is in
               use, and CUDA opens dozens. NCCL can need tens of thousands at scale: its guide names
               over 32,000 for 144 ranks with 16 GIN contexts.
How to be sure `ulimit -Sn; ulimit -Hn` in the shell that starts the ranks, on every machine, or
               `grep files /proc/PID/limits` for the launcher. holdfast's estimate is a rule of
               thumb: 256 for a rank with its loaders, plus 16 for each rank of the job; it reports
               an error only below half of the first.
Fix            `ulimit -n N` in that shell, up to the hard limit. Above that an administrator must
               raise it: `* - nofile 131072` in /etc/security/limits.d/, LimitNOFILE= in a systemd
               unit, or `--ulimit nofile=131072:131072` for a container. No limit may exceed
               fs.nr_open. With many loader workers,
               torch.multiprocessing.set_sharing_strategy('file_system') needs no descriptors (but
               leaves files in /dev/shm if a process is killed).
Known limits   The need is an estimate; holdfast does not count the descriptors of a running rank.
               It sees the limits of this shell or launcher, not those a scheduler will set on
               another node.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst
               NVIDIA/nccl v2.24.3-1: a leak of descriptors with cuMem, fixed
               https://github.com/pytorch/pytorch/issues/973
               https://docs.pytorch.org/docs/stable/multiprocessing.html
               https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_NOFILE)
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from holdfast.analysis.drill.host_acts import LimitOpenFiles
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import shared_memory
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Limits, MachineFacts, known
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.launch import ulimit_mistakes, ulimits
from holdfast.analysis.source.source import Source
from holdfast.analysis.versions import release
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD401",
    slug="fd-limit",
    related=("shm-too-small", "process-limit", "memlock-low"),
    traits=RunTraits(priority=216),
)
FAULT.errno(errno.EMFILE, "the process reached its limit on open files (ulimit -n)")
FAULT.errno(errno.ENFILE, "the machine reached its limit on open files (fs.file-max)")
FAULT.error_text(r"Failed to init uv loop", "the store reached the limit on open files (ulimit -n)")

# A bare Gloo rank of four opens 12; a loader with 4 workers had 128 open while the program kept
# 50 batches of two tensors, and failed under `ulimit -n 64` (torch 2.13). CUDA adds dozens.
MINIMUM = 128
RANK_WITH_LOADERS = 256
EACH_PEER = 16
"""sockets of store, Gloo and NCCL towards one peer, with several groups and channels"""
AMPLE = 65536
RAISE_HARD_LIMIT = (
    "`* - nofile 131072` in /etc/security/limits.d/, or `--ulimit nofile=131072` for a container"
)


@FAULT.check(needs=("launcher_limits", "limits"))
def shell_open_file_limit_too_low(facts: MachineFacts) -> Finding:
    return _judge(facts, known(facts.limits), "this shell")


@FAULT.check(needs=("launcher_limits",))
def launcher_open_file_limit_too_low(facts: MachineFacts) -> Finding | list[Finding]:
    if facts.launcher_limits is None:
        return []
    limits = known(facts.launcher_limits)
    return _judge(facts, limits, f"the launcher (pid {limits.pid})")


def _judge(facts: MachineFacts, limits: Limits, whose: str) -> Finding:
    world = facts.plan.nproc * facts.plan.max_nodes
    wanted = RANK_WITH_LOADERS + EACH_PEER * world
    soft, hard = limits.nofile.soft, limits.nofile.hard
    if soft is None or soft >= wanted:
        return FAULT.ok(f"{whose} may open {soft or 'unlimited'} files; about {wanted} are needed")
    report, sure = (
        (FAULT.error, "too few for a rank with CUDA or loader workers")
        if soft < MINIMUM
        else (FAULT.warning, "the job may start and fail later with 'Too many open files' (EMFILE)")
    )
    ranks = f"{world} rank{'s' if world > 1 else ''}"
    return report(
        f"{whose} may open only {soft} files, and each rank inherits that limit",
        reason=f"{sure}; estimate: {RANK_WITH_LOADERS} for a rank with its loaders plus "
        f"{EACH_PEER} for each of {ranks}, {wanted} in total",
        evidence=[
            Evidence(
                quote=f"max open files: soft {soft}, hard {hard or 'unlimited'}",
                source=f"/proc/{limits.pid}/limits",
            )
        ],
        fix=_how_to_raise(limits, wanted, launcher=limits is facts.launcher_limits),
    )


def _how_to_raise(limits: Limits, wanted: int, *, launcher: bool) -> str:
    soft, hard = limits.nofile.soft, limits.nofile.hard
    goal = max(AMPLE, wanted)
    reachable = goal if hard is None else min(hard, goal)
    if reachable == soft:
        return (
            "the hard limit is no higher: open a new shell, or have an administrator set "
            f"{RAISE_HARD_LIMIT}"
        )
    # The new limit reaches only what is started after it.
    command = (
        f"`prlimit --pid {limits.pid} --nofile={reachable}:` before it starts ranks"
        if launcher
        else f"`ulimit -n {reachable}` in the shell that starts the ranks, on every machine"
    )
    enough = reachable >= wanted
    return command if enough else f"{command}; the hard limit allows no more: {RAISE_HARD_LIMIT}"


# --- run -----------------------------------------------------------------------------------------

NO_DESCRIPTOR = re.compile(
    r"\[Errno 24\](?! inotify)|Too many open files(?! in system)|received \d+ items of ancdata"
)


@FAULT.run
def open_file_limit_reached_first(scene: Scene) -> Verdict | None:
    failed = [
        e for e in exits.cause(scene) if e.view.words and NO_DESCRIPTOR.search(e.view.words.text)
    ]
    if not failed:
        return None
    ranks = [e.rank for e in failed]
    victims = exits.fallen(scene, ranks)
    words = failed[0].view.words
    assert words is not None
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} reached the limit on open files"
        f"{phrases.at_step(failed[0].view)}: {phrases.quoted(words)}"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"`ulimit -n {AMPLE}` in the shell that starts the ranks; find a leak with "
        "`ls -l /proc/PID/fd`",
        evidence=[phrases.how_it_ended(e) for e in failed],
    )


# --- explain -------------------------------------------------------------------------------------

TOO_MANY = FAULT.log_pattern(
    "too-many",
    r"Too many open files(?P<system> in system)?|\[Errno 24\](?! inotify)|\bEMFILE\b"
    r"|\(errno: 24\b",
    anchors=("Too many open files", "[Errno 24]", "EMFILE", "(errno: 24"),
    example="OSError: [Errno 24] Too many open files: '/data/train/000017.npy'",
)
NO_ANCILLARY = FAULT.log_pattern(
    "ancdata",
    r"received \d+ items of ancdata",
    anchors="items of ancdata",
    example="RuntimeError: received 0 items of ancdata",
)
LEAK_FIXED = (2, 24, 3)
"""NCCL's release notes: 'Fix FD leak in UDS', with buffers mapped by cuMem"""


@FAULT.explain
def open_file_limit_reached(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(TOO_MANY, NO_ANCILLARY)
    if not seen:
        return _shared_memory_not_opened(wreckage)
    watches = sightings.saying(seen, "inotify")
    system_wide = bool(sightings.field(seen, "system"))
    ancillary = bool(wreckage.seen(NO_ANCILLARY))
    line = seen[0].line
    version = release(wreckage.versions.get("nccl", ""))
    leak = (
        "; NCCL before 2.24.3 also leaked descriptors, so upgrade it if their number grows"
        if (2, 19) <= version < LEAK_FIXED
        else ""
    )
    if len(watches) == len(seen):
        return None  # the limit of inotify instances: nothing to do with ulimit -n
    return FAULT.diagnosis(
        f"{sightings.who(seen)} reached the limit on open files "
        + ("of the whole machine (fs.file-max)" if system_wide else "of a process (ulimit -n)")
        + (
            "; a tensor from a loader worker needs a descriptor, and none was free"
            if ancillary
            else ""
        ),
        confidence=0.9 if ancillary and not wreckage.seen(TOO_MANY) else 0.95,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what="ulimit -n"),
        fix="have an administrator raise it: `sysctl -w fs.file-max=N`"
        if system_wide
        else f"`ulimit -n {AMPLE}` in the shell that starts the ranks, on every machine; above "
        f"the hard limit: {RAISE_HARD_LIMIT}; with many loader workers also "
        f"torch.multiprocessing.set_sharing_strategy('file_system'){leak}",
        next="cat /proc/sys/fs/file-nr" if system_wide else "ulimit -Sn; ulimit -Hn",
    )


def _shared_memory_not_opened(wreckage: Wreckage) -> Diagnosis | None:
    """Old versions of torch do not say why the file could not be created; usually the limit."""
    seen = wreckage.seen(shared_memory.OBJECT)
    if not seen:
        return None
    line = seen[0].line
    return FAULT.diagnosis(
        f"{sightings.who(seen)} could not open a shared memory object, and this version of torch "
        "does not say why: usually the limit on open files (ulimit -n) was reached",
        confidence=0.6,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what="ulimit -n"),
        fix=f"`ulimit -n {AMPLE}` in the shell that starts the ranks, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        next="ulimit -Sn; df -h /dev/shm",
        unknown=["why: a newer torch adds the reason to this message"],
    )


# --- lint ----------------------------------------------------------------------------------------

NR_OPEN_DEFAULT = 1048576
"""fs.nr_open as the kernel sets it: no limit may be higher; systemd raises it on many machines"""


@FAULT.lint
def ulimit_has_no_effect_or_too_low(source: Source) -> Iterator[Finding]:
    for raised in ulimits.ulimit_commands(source, "nofile"):
        count = int(raised.value) if raised.value.isdecimal() else None
        if mistake := ulimit_mistakes.under_sudo(raised):
            yield FAULT.error(
                mistake.summary,
                reason=mistake.reason,
                fix=f"`ulimit -n {AMPLE}` without sudo, up to the hard limit; above it: "
                f"{RAISE_HARD_LIMIT}",
                at=mistake.place,
            )
        elif mistake := ulimit_mistakes.only_in_build_step(source, raised):
            yield FAULT.warning(
                mistake.summary,
                reason=mistake.reason,
                fix="`docker run --ulimit nofile=131072 …`",
                at=mistake.place,
            )
        elif raised.value == "unlimited" or (count is not None and count > NR_OPEN_DEFAULT):
            yield FAULT.note(
                f"`ulimit -n {raised.value}` exceeds the maximum of most machines",
                reason=f"no limit may exceed fs.nr_open, by default {NR_OPEN_DEFAULT}; where it is "
                "refused the old limit stays and the script continues",
                fix='use the hard limit: `ulimit -n "$(ulimit -Hn)"`; for more: '
                + RAISE_HARD_LIMIT,
                at=raised.place,
            )
        elif count is not None and count < RANK_WITH_LOADERS:
            yield FAULT.warning(
                f"`ulimit -n {count}` is too low for a rank",
                reason=f"a rank with loader workers needs about {RANK_WITH_LOADERS}, and "
                f"{EACH_PEER} more for each rank of the job",
                fix=f"`ulimit -n {AMPLE}`",
                at=raised.place,
            )


@FAULT.lint
def container_limit_refused(source: Source) -> Iterator[Finding]:
    for container in source.containers:
        if mistake := ulimit_mistakes.soft_above_hard(container, "nofile"):
            yield FAULT.error(
                mistake.summary,
                reason=mistake.reason,
                fix=f"`--ulimit nofile={max(mistake.soft, mistake.hard)}`",
                at=mistake.place,
            )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def rank_may_open_no_further_file(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"no further open file for rank {rehearsal.rank} {rehearsal.when}",
        act=LimitOpenFiles(),
        then=Then.RESTARTS,
    )
