"""The folder for checkpoints or logs cannot be written.

What you see   The job trains for hours and dies at its first save. torch.save: `open file failed
               with strerror: Read-only file system` (or `Permission denied`), or `RuntimeError:
               Parent directory … does not exist`, also when a file stands in its place. Other
               writers: `OSError: [Errno 30] Read-only file system`, `PermissionError: [Errno 13]`,
               `NotADirectoryError`.
Why            The mount is read-only (by intent, or because the kernel found damage and remounted
               it); the folder belongs to somebody else, or root is mapped to nobody (NFS
               root_squash, user namespaces); a file stands where the folder should be; a stale NFS
               handle.
How to be sure `findmnt -T FOLDER` shows the mount and its options, `ls -ld FOLDER` owner and
               rights, `id` who you are. holdfast makes a small unnamed file there, in the folder
               itself or, if it does not exist yet, in the nearest parent that does.
Fix            Choose a folder that you own on a writable mount; for a container mount it without
               `:ro`. A mount that became read-only by itself needs an administrator: see `dmesg`
               first.
Sources        https://man7.org/linux/man-pages/man2/open.2.html (EROFS, EACCES, EPERM, ENOTDIR)
               https://man7.org/linux/man-pages/man5/exports.5.html (root_squash)
               https://docs.kernel.org/admin-guide/ext4.html (errors=remount-ro)
"""

from __future__ import annotations

from holdfast.facts import Folder, MachineFacts, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD412", slug="folder-unwritable")

FULL = {"ENOSPC", "EDQUOT"}
"""a full disk can be written again once there is room: disk-full has the words for it"""
NO_UNNAMED_FILES = {"EOPNOTSUPP", "EISDIR", "ENOSYS"}
"""file systems that do not know O_TMPFILE: our question was wrong, not the folder"""
MEANING = {
    "EROFS": (
        "its mount is read-only",
        (
            "`findmnt -T {place}` shows the mount; choose a writable one, or mount it writable "
            "(a container: without `:ro`); if it was writable before, see `dmesg` for disk errors"
        ),
    ),
    "EACCES": (
        "this user has no right to write there",
        (
            "`ls -ld {place}` and `id`; choose a folder of your own, or have its owner change the "
            "rights; on NFS, root may be mapped to nobody"
        ),
    ),
    "EPERM": (
        "it is forbidden, although the rights may allow it (immutable flag, security module)",
        "`lsattr -d {place}` shows an immutable flag; else ask who administers it",
    ),
    "ENOTDIR": (
        "a file stands where a folder should be",
        "{place} is a file: choose another name for the folder",
    ),
    "EEXIST": (
        "a link that leads nowhere stands in its way",
        "`ls -ld {path}`; make what the link points to, or mount it, or remove the link",
    ),
    "ESTALE": (
        "its NFS server no longer knows it",
        "have the share mounted anew; `findmnt -T {place}` shows which",
    ),
    "EIO": (
        "the disk or its server answered with an I/O error",
        "see `dmesg`; do not trust this disk with checkpoints",
    ),
}


@FAULT.foresee
def cannot_be_written(facts: MachineFacts) -> Finding | list[Finding]:
    folders = known(facts.folders)
    if not folders:
        return FAULT.does_not_apply("no checkpoint or log folder was named")
    return [_judge(folder) for folder in folders]


def _judge(folder: Folder) -> Finding:
    problem = _problem(folder)
    where = f"{folder.path} ({folder.purpose})"
    if problem in NO_UNNAMED_FILES:
        return FAULT.skipped(f"{folder.filesystem} at {folder.looked_at} makes no unnamed files")
    if not problem or problem in FULL:
        return FAULT.ok(f"this user may write to {where}")
    meaning, fix = MEANING.get(
        problem, (f"the kernel says {problem}", "look at it with `findmnt -T {place}`")
    )
    verb = "cannot be written" if folder.exists else "cannot be made"
    inside = "" if folder.exists else f" in {folder.looked_at}"
    return FAULT.error(
        f"{where} {verb}{inside}: {meaning}",
        reason="seen by trying to make a small file there; the job would learn it at its first "
        + ("save" if folder.purpose == "checkpoints" else "line of log"),
        evidence=[
            Evidence(
                quote=f"{problem} on {folder.filesystem}"
                + (", mounted read-only" if folder.read_only else ""),
                source=folder.looked_at,
            )
        ],
        fix=fix.format(place=folder.looked_at, path=folder.path),
    )


def _problem(folder: Folder) -> str:
    if not folder.is_directory:
        return "ENOTDIR"
    return "EROFS" if folder.read_only else folder.write_error
