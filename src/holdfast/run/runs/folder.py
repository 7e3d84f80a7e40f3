"""A run's folder: made, described, and pruned when it is old.

The rule: the 20 newest runs stay, everything written to within 7 days stays, a run that lives
or may live stays, and a folder that holds anything we did not write stays.

A single run is bounded too, however long it stalls: it keeps the evidence of its first 4 and its
newest 16 sentences (evidence.py), and its logs and its journal are capped (writer_process.py,
journal.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import msgspec

from holdfast import __version__
from holdfast.analysis.job.run_marker import RunMarker
from holdfast.analysis.job.run_paths import RunPaths, is_ours
from holdfast.analysis.machine import Unread
from holdfast.run.runs import owner, redact
from holdfast.run.runs.registry import RunState, marker_of, read_run, run_ids
from holdfast.system import deadline, ignored_folder
from holdfast.text import printable

ANSWER_WITHIN = 5.0
"""seconds for the disk of the runs folder, before another place is taken"""
KEEP_RUNS = 20
KEEP_DAYS = 7
PACKAGES = ("torch", "accelerate", "deepspeed", "lightning", "transformers", "py-spy", "numpy")


class RunPart(NamedTuple):
    """One node of a run on several."""

    node: str
    """what the others call it"""
    run: str = ""
    """the run's id, as its coordinator tells; '' for a new one"""
    coordinates: bool = False


class CreatedRun(NamedTuple):
    paths: RunPaths | None
    """None when nothing can be kept: only the screen remains"""
    remark: str
    """'' or one sentence for the user"""


def make(
    root: str,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    grace: float = owner.DEFAULT_GRACE,
    part: RunPart | None = None,
) -> CreatedRun:
    """A new run's folder in `root`, or in a temporary place, or none. Never raises.

    `name` is the script's, for the run's id; `command` is what the user typed; `grace` is what
    its ranks have between SIGTERM and SIGKILL; `part` is this node's in a run on several.
    """
    me = owner.this_process(command, grace=grace)
    problem = _hangs(root) or _try_make(root, name, me, environment, part)
    if isinstance(problem, RunPaths):
        return CreatedRun(problem, "")
    try:
        elsewhere = tempfile.mkdtemp(prefix="holdfast-runs-")
    except OSError:
        second: RunPaths | str = "it cannot be created"
    else:
        second = _try_make(elsewhere, name, me, environment, part)
        if isinstance(second, RunPaths):
            where = f"cannot write {root} ({problem}); this run is kept in {second.folder}"
            return CreatedRun(second, where)
        shutil.rmtree(elsewhere, ignore_errors=True)
    return CreatedRun(None, f"cannot write {root} ({problem}) nor a temporary folder ({second}); "
                      "nothing of this run is kept but what is on the screen")  # fmt: skip


def _hangs(root: str) -> str:
    """'' or that its file system does not answer: then it is a child that hangs, and not we."""

    def write_something() -> bytes:
        ignored_folder.make(root)
        tempfile.TemporaryFile(dir=root).close()
        return b""

    answer = deadline.ask({"runs": write_something}, seconds=ANSWER_WITHIN)["runs"]
    return answer.why if isinstance(answer, Unread) and answer.timed_out else ""


def save(path: str, document: Any) -> str:
    """Write JSON (or text) with its folder; '' or why not. Never raises, never overwrites."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, document)
    except (OSError, ValueError, TypeError) as problem:
        return f"{path}: {_why(problem)}"
    return ""


def prune(root: str, *, now: float) -> list[str]:
    """Remove old runs by the rule above; the ids of those that went."""
    found = [
        (name, marker) for name in run_ids(root) if (marker := marker_of(RunPaths(root, name)))
    ]
    found.sort(key=lambda one: one[1].started, reverse=True)
    kept = list(dict.fromkeys(marker.run_id for _, marker in found))[:KEEP_RUNS]
    gone = []
    for run_id in [name for name, marker in found if marker.run_id not in kept]:
        if may_go(RunPaths(root, run_id), now=now):
            shutil.rmtree(RunPaths(root, run_id).folder, ignore_errors=True)
            gone.append(run_id)
    return gone


def may_go(paths: RunPaths, *, now: float) -> bool:
    """Whether the run is over, old, and holds nothing but what we wrote."""
    try:
        if not all(is_ours(name) for name in os.listdir(paths.folder)):
            return False
        if now - last_written(paths.folder) < KEEP_DAYS * 86400:
            return False
        return read_run(paths).state in (RunState.ENDED, RunState.LOST)
    except OSError:
        return False


def _try_make(
    root: str,
    name: str,
    me: owner.LauncherIdentity,
    environment: Mapping[str, str],
    part: RunPart | None,
) -> RunPaths | str:
    """The paths, or why not; what was begun is taken away again."""
    paths = None
    try:
        root = os.path.abspath(root)  # ranks may have another working directory
        ignored_folder.make(root)
        paths = _part_folder(root, part) if part and part.run else _new_folder(root, name)
        _describe(paths, me, environment, part)
        owner.hold_mark(paths.folder)
    except (OSError, ValueError) as problem:
        if paths is not None:
            shutil.rmtree(paths.folder, ignore_errors=True)
        return _why(problem)
    if not part or part.run in ("", paths.run_id):
        _point_latest(paths)
    return paths


def _new_folder(root: str, name: str) -> RunPaths:
    """mkdir decides who got the name, so two launches in one second do not meet."""
    for _ in range(100):
        paths = RunPaths(root, new_id(name))
        with contextlib.suppress(FileExistsError):
            os.mkdir(paths.folder, 0o700)  # logs and stacks hold what others should not read
            return paths
    raise FileExistsError(f"no free name for a run in {root}")


def new_id(name: str) -> str:
    """Of a run of this script: '261116-074500-train-9f3a'."""
    stem = os.path.splitext(os.path.basename(name))[0]
    word = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:20].strip("-") or "run"
    return f"{time.strftime('%y%m%d-%H%M%S')}-{word}-{random.getrandbits(16):04x}"


def _part_folder(root: str, part: RunPart) -> RunPaths:
    """Another node's folder has the run's own name where the disk is shared, and an earlier one
    of this node where its launcher was started again."""
    node = re.sub(r"[^A-Za-z0-9_-]+", "-", part.node.partition(".")[0])[:40] or "node"
    for name in (part.run, f"{part.run}.{node}", *(f"{part.run}.{node}-{n}" for n in range(2, 99))):
        paths = RunPaths(root, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(paths.folder, 0o700)
            return paths
    raise FileExistsError(f"no free name for {part.run} in {root}")


def _describe(
    paths: RunPaths,
    me: owner.LauncherIdentity,
    environment: Mapping[str, str],
    part: RunPart | None,
) -> None:
    now = time.time()
    marker = RunMarker(
        run=paths.run_id,
        started=now,
        of=(part.run or paths.run_id) if part else "",
        node=part.node if part else "",
        coordinates=part is not None and part.coordinates,
    )
    _write(paths.marker, marker)
    _write(paths.launcher, me)
    settings = {
        "schema": "holdfast/1",
        "run": paths.run_id,
        "started": now,
        "host": me.host,
        "command": me.command,
        "folder": os.getcwd(),
        "versions": _versions(),
        "environment": redact.for_settings(environment),
    }
    _write(paths.settings, settings)
    # For `bundle`, from any shell: what to strike out.
    _write(paths.secret_values, redact.values_of(environment))


def _versions() -> dict[str, str]:
    """From the packages' own records: torch is not imported for this."""
    found = {"holdfast": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _write(path: str, document: Any) -> None:
    if isinstance(document, str):
        content = printable(document).encode()
    else:
        content = (
            msgspec.json.encode(printable(msgspec.to_builtins(document, enc_hook=str))) + b"\n"
        )
    # Not for other users: an environment holds more than its owner may think.
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(number, "wb") as file:
        file.write(content)


def _point_latest(paths: RunPaths) -> None:
    """A convenience: where it cannot be had, or `latest` is a user's file, nothing is said."""
    if os.path.lexists(paths.latest) and not os.path.islink(paths.latest):
        return
    beside = f"{paths.latest}.{paths.run_id}"
    with contextlib.suppress(OSError):
        os.symlink(paths.run_id, beside)
        os.replace(beside, paths.latest)


def last_written(folder: str) -> float:
    """The newest file counts: a living run on another machine still writes its logs."""
    newest = os.stat(folder).st_mtime
    for where, _, files in os.walk(folder):
        times = [os.lstat(os.path.join(where, name)).st_mtime for name in files]
        newest = max([newest, os.stat(where).st_mtime, *times])
    return newest


def _why(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)
