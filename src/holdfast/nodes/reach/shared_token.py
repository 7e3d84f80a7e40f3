"""The token of a Slurm step, handed over in a file that all of its nodes see.

Slurm gives the tasks of a step no common secret: what is in their environment is in the
controller's records too. But home or the folder of submission is usually on a file server: node 0
writes a token there that only its user can read, and the other nodes wait for it. Where neither
folder is on a file server, no file is written: the token is then that of torch's own store, and
the screen says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from holdfast.analysis.machine import Unread
from holdfast.errors import ConfigError
from holdfast.nodes.token import Token, fresh_token, token_from_file
from holdfast.system import deadline
from holdfast.system.filesystem import REMOTE, filesystem_at

FOLDERS = ("HOME", "SLURM_SUBMIT_DIR")
"""the first of them on a file server in which a file can be made; the others look in both"""
WRITE_SECONDS = 2.0
POLL = 0.1


@contextlib.contextmanager
def offered_token(
    job: str, environment: Mapping[str, str], *, shared: Collection[str] = REMOTE
) -> Iterator[Token | None]:
    """As the coordinator: a token that waits in a file for the others; None where it cannot.

    The file is gone at the end of the `with`.
    """
    token = fresh_token()
    path = _in_child(lambda: _write(job, environment, shared, token), seconds=WRITE_SECONDS)
    try:
        yield token if path else None
    finally:
        if path:
            _in_child(lambda: _remove(path), seconds=WRITE_SECONDS)


def handed_token(
    job: str,
    environment: Mapping[str, str],
    *,
    seconds: float,
    shared: Collection[str] = REMOTE,
) -> Token | None:
    """As another node: the token of the coordinator, once its file is there; None where no folder
    is on a file server, or no file came within `seconds` (0: it is looked for once).
    """
    path = _in_child(
        lambda: _appeared(job, environment, shared, time.monotonic() + seconds),
        seconds=seconds + WRITE_SECONDS,
    )
    return token_from_file(path) if path else None


def _in_child(question: Callable[[], str], *, seconds: float) -> str:
    """A file server that is gone blocks whatever touches it, for ever."""
    answer = deadline.ask({"token": lambda: os.fsencode(question())}, seconds=seconds)["token"]
    return "" if isinstance(answer, Unread) else os.fsdecode(answer)


def _write(job: str, environment: Mapping[str, str], shared: Collection[str], token: Token) -> str:
    for path in _paths(job, environment, shared):
        with contextlib.suppress(OSError):
            return _written(path, token)
    return ""


def _written(path: str, token: Token) -> str:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of an earlier start of this very step
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as file:
        file.write(token.secret)
    os.rename(new, path)
    return path


def _remove(path: str) -> str:
    os.unlink(path)
    return path


def _appeared(job: str, environment: Mapping[str, str], shared: Collection[str], end: float) -> str:
    paths = _paths(job, environment, shared)
    while paths:
        for path in sorted(filter(_is_there, paths), key=os.path.getmtime, reverse=True):
            with contextlib.suppress(ConfigError):
                token_from_file(path)
                return path
        if time.monotonic() >= end:
            break
        time.sleep(POLL)
    return ""


def _is_there(path: str) -> bool:
    """NFS remembers that a file was not there until its folder is read again."""
    with contextlib.suppress(OSError):
        return os.path.basename(path) in os.listdir(os.path.dirname(path))
    return False


def _paths(job: str, environment: Mapping[str, str], shared: Collection[str]) -> list[str]:
    """The same on all nodes: srun gives them the same environment."""
    name = f".holdfast-check-{re.sub(r'[^A-Za-z0-9.-]', '_', job)}"
    folders = dict.fromkeys(environment.get(one, "") for one in FOLDERS)
    return [
        os.path.join(folder, name)
        for folder in folders
        if os.path.isabs(folder) and os.path.isdir(folder) and filesystem_at(folder) in shared
    ]
