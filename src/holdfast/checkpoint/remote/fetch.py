"""The newest checkpoint of a remote folder, brought back when the job's own folder has none.

In a process of its own, as the uploads are: `python -m holdfast.checkpoint.remote.fetch URL FOLDER`
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import msgspec

from holdfast.analysis.checkpoints.manifest import order_of
from holdfast.checkpoint.remote.remote_folder import RemoteFolder
from holdfast.errors import EnvironmentFailure, Error
from holdfast.rank.print_line import say
from holdfast.text import size as in_words

SAY_EVERY = 10.0


class _Fetched(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    """'' when there is none"""
    problem: str = ""
    hint: str = ""


def fetch_if_none(url: str, folder: str) -> None:
    """Rank 0, which has the folder's lock. Raises what makes it impossible: a remote folder that
    cannot be reached is not an empty one."""
    with contextlib.suppress(FileNotFoundError):
        if any(order_of(name) for name in os.listdir(folder)):
            return
    command = [sys.executable, "-m", __name__, url, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    try:
        answer = msgspec.json.decode(done.stdout, type=_Fetched)
    except msgspec.DecodeError:
        answer = _Fetched(problem=f"the process that reads {url} ended with code {done.returncode}")
    if answer.problem:
        raise EnvironmentFailure(answer.problem, hint=answer.hint)


def _fetch(url: str, folder: str) -> _Fetched:
    there = RemoteFolder(url)
    names = there.steps()
    if not names:
        return _Fetched()
    whole = sum(entry.size for entry in there.manifest(names[0]).files)
    say(f"no checkpoint in {folder}: fetching {names[0]} ({in_words(whole)}) from {url}")
    moved, said = 0, time.monotonic()

    def progress(size: int) -> None:
        nonlocal moved, said
        moved += size
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            say(f"{in_words(moved)} of {in_words(whole)} fetched")

    there.download(names[0], folder, progress)
    return _Fetched(name=names[0])


def main() -> int:
    url, folder = sys.argv[1:]
    try:
        answer = _fetch(url, folder)
    except Error as problem:
        answer = _Fetched(problem=problem.sentence, hint=problem.hint)
    except (OSError, msgspec.DecodeError) as problem:
        answer = _Fetched(problem=f"the newest checkpoint of {url} cannot be fetched: {problem}")
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
