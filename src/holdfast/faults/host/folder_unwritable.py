"""The folder for checkpoints or logs is not writable.

What you see   The job trains for hours and fails at its first save. torch.save: `open file failed
               with strerror: Read-only file system` (or `Permission denied`), or `RuntimeError:
               Parent directory … does not exist`, also when a file has the folder's name. Other
               writers: `OSError: [Errno 30] Read-only file system`, `PermissionError: [Errno 13]`,
               `NotADirectoryError`.
Why            The mount is read-only (on purpose, or because the kernel found damage and remounted
               it); the folder belongs to another user, or root is mapped to a user without rights
               (NFS root_squash, user namespaces); a file has the folder's name; or the NFS handle
               is stale.
How to be sure `findmnt -T FOLDER` shows the mount and its options, `ls -ld FOLDER` owner and
               permissions, `id` your user. holdfast creates a small unnamed file there: in the
               folder itself or, if it does not exist yet, in the nearest existing parent.
Fix            Use a folder that you own on a writable mount; for a container mount it without
               `:ro`. A mount that became read-only by itself needs an administrator: check `dmesg`
               first.
Known limits   `check` knows only the folders that were named, and tests them as this user on this
               machine. Some file systems do not support unnamed files; there the test is skipped.
Sources        https://man7.org/linux/man-pages/man2/open.2.html (EROFS, EACCES, EPERM, ENOTDIR)
               https://man7.org/linux/man-pages/man5/exports.5.html (root_squash)
               https://docs.kernel.org/admin-guide/ext4.html (errors=remount-ro)
"""

from __future__ import annotations

import re

from holdfast import shell_words
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Folder, MachineFacts, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD412",
    slug="folder-unwritable",
    related=("disk-full", "checkpoint-not-atomic", "permission-denied"),
)

FULL = {"ENOSPC", "EDQUOT"}
"""disk-full reports these"""
NO_UNNAMED_FILES = {"EOPNOTSUPP", "EISDIR", "ENOSYS"}
"""file systems without O_TMPFILE: the test does not work there, the folder may"""
MEANING = {
    "EROFS": (
        "its mount is read-only",
        (
            "see the mount with `findmnt -T {place}`; use a writable one, or mount it writable (a "
            "container: without `:ro`); if it was writable before, check `dmesg` for disk errors"
        ),
    ),
    "EACCES": (
        "this user has no write permission",
        (
            "see `ls -ld {place}` and `id`; use a folder you own, or have its owner change the "
            "permissions; on NFS, root may be mapped to a user without rights"
        ),
    ),
    "EPERM": (
        "the kernel refuses it despite the permissions (immutable flag, security module)",
        "check for an immutable flag with `lsattr -d {place}`; otherwise ask the administrator",
    ),
    "ENOTDIR": (
        "a file has the name of the folder",
        "use another name for the folder: {place} is a file",
    ),
    "EEXIST": (
        "a dangling symbolic link has its name",
        "see `ls -ld {path}`; create or mount the target of the link, or remove the link",
    ),
    "ESTALE": (
        "its NFS server no longer knows it",
        "remount the share; `findmnt -T {place}` shows which",
    ),
    "EIO": (
        "the disk or its server returned an I/O error",
        "check `dmesg`; do not save checkpoints to this disk",
    ),
}


@FAULT.check(needs=("folders",))
def folder_not_writable(facts: MachineFacts) -> Finding | list[Finding]:
    folders = known(facts.folders)
    if not folders:
        return FAULT.does_not_apply("no checkpoint or log folder was named")
    return [_judge(folder) for folder in folders]


def _judge(folder: Folder) -> Finding:
    problem = _problem(folder)
    where = f"{folder.path} ({folder.purpose})"
    if problem in NO_UNNAMED_FILES:
        return FAULT.skipped(
            f"{folder.filesystem} at {folder.looked_at} does not support unnamed files"
        )
    if not problem or problem in FULL:
        return FAULT.ok(f"this user may write to {where}")
    meaning, fix = MEANING.get(
        problem, (f"the kernel returned {problem}", "see the mount with `findmnt -T {place}`")
    )
    if folder.purpose == "logs":
        fix = f"name another folder with `holdfast run --runs DIR …`, or: {fix}"
    verb = "is not writable" if folder.exists else "cannot be created"
    inside = "" if folder.exists else f" in {folder.looked_at}"
    is_logs = folder.purpose == "logs"
    report = FAULT.warning if is_logs else FAULT.error
    return report(
        f"{where} {verb}{inside}: {meaning}",
        reason="creating a small file there failed; "
        + (
            "`holdfast run` keeps its logs in a temporary folder instead"
            if is_logs
            else "the job would fail at its first save"
        ),
        evidence=[
            Evidence(
                quote=f"{problem} on {folder.filesystem}"
                + (", mounted read-only" if folder.read_only else ""),
                source=folder.looked_at,
            )
        ],
        fix=_filled(fix, folder.looked_at, folder.path),
    )


def _filled(advice: str, place: str, path: str) -> str:
    return advice.format(
        place=shell_words.word(place, "FOLDER"), path=shell_words.word(path, "FOLDER")
    )


def _problem(folder: Folder) -> str:
    if not folder.is_directory:
        return "ENOTDIR"
    return "EROFS" if folder.read_only else folder.write_error


# --- explain -------------------------------------------------------------------------------------

READ_ONLY = FAULT.log_pattern(
    "read-only",
    r"Read-only file system(?!.*/proc/sys)|\[Errno 30\]",
    anchors=("Read-only file system", "[Errno 30]"),
    example="OSError: [Errno 30] Read-only file system: '/ckpt/step-100'",
)
STALE = FAULT.log_pattern(
    "stale",
    r"Stale (?:NFS )?file handle|\[Errno 116\]",
    anchors=("Stale file handle", "Stale NFS file handle", "[Errno 116]"),
    example="OSError: [Errno 116] Stale file handle: '/nfs/ckpt/latest'",
)
DENIED = FAULT.log_pattern(
    "denied",
    r"PermissionError: \[Errno (?:1|13)\] .*?: ['\"](?P<path>/?[^'\"]+)['\"]"
    r"|open file failed.*Permission denied",
    anchors=("PermissionError: [Errno 1", "open file failed"),
    example="PermissionError: [Errno 13] Permission denied: '/ckpt/step-100/model.pt'",
)
NO_PARENT = FAULT.log_pattern(
    "no-parent",
    r"Parent directory (?P<path>\S+) does not exist|\[Errno 20\] Not a directory: "
    r"['\"](?P<file>[^'\"]+)",
    anchors=("Parent directory ", "[Errno 20]"),
    example="RuntimeError: Parent directory /ckpt/run7 does not exist.",
)
PATH = re.compile(r"['\"](/[^'\"]+)['\"]")
WRITING = re.compile(
    r"(?i)save|write|makedirs|mkdir|rename|replace|checkpoint|dump|logger|open_file_like"
)
CAUSES = (
    (READ_ONLY, 0.92, "its file system is mounted read-only", "EROFS"),
    (STALE, 0.9, "the NFS server no longer knows the file", "ESTALE"),
    (NO_PARENT, 0.85, "its folder does not exist, or a file has that name", "ENOTDIR"),
    (DENIED, 0.0, "this user has no permission", "EACCES"),
)


@FAULT.explain
def write_refused(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, confidence, why, errno in CAUSES:
        seen = [one for one in wreckage.seen(pattern) if "/proc/sys" not in one.line.text]
        if not seen:
            continue
        path = _path(seen[0])
        # Reading can be refused as well: only writing code makes it this fault.
        sure = confidence or (0.8 if _raised_by_writing_code(wreckage, seen[0]) else 0.5)
        line = seen[0].line
        place = path.rpartition("/")[0] or path or "."
        return FAULT.diagnosis(
            f"{sightings.who(seen)} could not {'write' if sure > 0.5 else 'use'} "
            f"{path or 'a file'}: {why}",
            confidence=sure,
            seen=seen,
            culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=path),
            fix="create the folder before the job starts: `mkdir -p`, on every machine that saves"
            if errno == "ENOTDIR"
            else _filled(MEANING[errno][1], place, path or place),
            next=shell_words.command("findmnt -T {0}; ls -ld {0}; id", place),
        )
    return None


def _path(sighting: Sighting) -> str:
    told = sighting.fields.get("path") or sighting.fields.get("file")
    found = PATH.search(sighting.line.text)
    return told or (found[1] if found else "")


def _raised_by_writing_code(wreckage: Wreckage, sighting: Sighting) -> bool:
    if "open file failed" in sighting.line.text:
        return True
    raised = sightings.raised_at(wreckage, sighting)
    return raised is not None and any(WRITING.search(frame.function) for frame in raised.frames)
