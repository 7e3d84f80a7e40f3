"""Shared memory was removed while the job used it.

What you see   NCCL's `unlink shared memory /dev/shm/nccl-… failed, error: No such file or
               directory`, `Error while attaching to shared memory segment … No such file`, torch's
               `unable to open shared memory object </torch_…>: No such file or directory (2)`,
               often at the moment the user logs out.
Why            systemd-logind removes all shared memory and semaphores of a user (not a system user)
               when that user's last session ends, unless configured otherwise (RemoveIPC=yes is its
               default). A job that was started in the background loses its files under /dev/shm. A
               clean-up script that empties /dev/shm does the same.
How to be sure `loginctl show-user $USER` and the journal at that second (`journalctl -u
               systemd-logind`) show the logout; `grep RemoveIPC /etc/systemd/logind.conf`.
Fix            As administrator set `RemoveIPC=no` in /etc/systemd/logind.conf, then `systemctl
               restart systemd-logind`; or `loginctl enable-linger USER` so that the user's manager
               keeps running. Or start jobs through a scheduler or a system service.
Known limits   The log shows that the files were gone, not what removed them; the journal of
               systemd-logind does. A process that created the memory and died leaves the same
               error.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst
               https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html (RemoveIPC)
               NVIDIA/nccl src/misc/shmutils.cc: the messages
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD411", slug="ipc-removed", related=("shm-too-small", "sighup-terminal", "known-defect")
)

UNLINK = FAULT.log_pattern(
    "unlink",
    r"unlink shared memory (?P<file>\S+) failed, error: No such file"
    r"|Call to shm_unlink failed ?: No such file",
    anchors=("unlink shared memory ", "Call to shm_unlink failed"),
    example="vm:1009:1009 [0] misc/shmutils.cc:189 NCCL WARN unlink shared memory "
    "/dev/shm/nccl-WxYzAb failed, error: No such file or directory (2)",
)
ATTACH = FAULT.log_pattern(
    "attach",
    r"attaching to shared memory segment (?P<file>\S*nccl-\w{6,}) \(size [1-9]\d*\).*No such file"
    r"|Call to shm_open failed ?: No such file"
    r"|unable to open shared memory object <(?P<object>[^>]+)>.*No such file",
    anchors=("attaching to shared memory", "Call to shm_open failed", "shared memory object <"),
    example="vm:1009:1009 [0] misc/shmutils.cc:102 NCCL WARN Error while attaching to shared "
    "memory segment /dev/shm/nccl-WxYzAb (size 9637888), error: No such file or directory (2)",
)
SEMAPHORE = FAULT.log_pattern(
    "semaphore",
    r"SemLock\._rebuild\(",
    anchors="SemLock._rebuild(",
    example="    self._semlock = _multiprocessing.SemLock._rebuild(*state)",
    # A line of a traceback; the exception below it decides.
    role=Role.CONTEXT,
)


@FAULT.explain
def shared_memory_removed(wreckage: Wreckage) -> Diagnosis | None:
    sure = wreckage.seen(UNLINK)
    seen = sure or wreckage.seen(ATTACH)
    if not seen:
        return None
    file = sightings.field(seen, "file") or sightings.field(seen, "object")
    return FAULT.diagnosis(
        f"shared memory of {sightings.who(seen)}{f' ({file})' if file else ''} was gone when it "
        "was needed: "
        + (
            "systemd removes it when the user's last session ends (RemoveIPC), or a clean-up "
            "emptied /dev/shm"
            if sure
            else "removed by systemd at logout (RemoveIPC), by a clean-up, or its creator had died"
        ),
        confidence=0.85 if sure else 0.5,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=file or "RemoveIPC"),
        fix="as administrator, set `RemoveIPC=no` in /etc/systemd/logind.conf and `systemctl "
        "restart systemd-logind`; or `loginctl enable-linger $USER`",
        next="grep -r RemoveIPC /etc/systemd/logind.conf*; loginctl show-user $USER | grep Linger",
        unknown=["when the user's last session ended: see `journalctl -u systemd-logind`"],
    )


@FAULT.explain
def semaphore_removed(wreckage: Wreckage) -> Diagnosis | None:
    """Spawned workers open their parent's semaphores by name, in /dev/shm."""
    seen = wreckage.seen(SEMAPHORE)
    failed = [r for r in wreckage.raised if r.kind.endswith("FileNotFoundError")]
    if not seen or not failed:
        return None
    first = failed[0].line
    return FAULT.diagnosis(
        f"a spawned process of {sightings.who(seen)} found the semaphore of its parent gone: "
        "removed by systemd when the user's last session ended (RemoveIPC), by a "
        "clean-up of /dev/shm, or the parent had ended",
        confidence=0.55,
        seen=seen,
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid, what="RemoveIPC"),
        fix="`loginctl enable-linger $USER`, or as administrator set `RemoveIPC=no` in "
        "/etc/systemd/logind.conf; if the parent had failed, fix its own error first",
        next="grep -r RemoveIPC /etc/systemd/logind.conf*; loginctl show-user $USER | grep Linger",
        unknown=["whether the parent was still running: see its log"],
    )
