"""Mounts that only the drilled job sees, in a mount namespace that ends with the drill.

A first process holds the namespace until the pipe from us closes, by SIGKILL too; the launcher
enters it, as often as it is started. Nothing is mounted on the machine itself.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from holdfast.drill.stage import CannotInjectHere, Stage


class OwnMounts:
    def __init__(self, *mounts: list[str]) -> None:
        """`mounts`: arguments of mount(8), each a list."""
        if missing := [name for name in ("unshare", "nsenter", "mount") if not shutil.which(name)]:
            raise CannotInjectHere(f"{missing[0]} is not installed here")
        make = " && ".join(shlex.join(["mount", *each]) for each in mounts)
        self._first = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c",
             f"{make} && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self._first.stdout is not None
        if self._first.stdout.readline() != "ready\n":
            _, why = self._first.communicate()
            raise CannotInjectHere(f"nothing can be mounted for the job alone: {why.strip()}")

    def path(self, path: Path) -> Path:
        """As the job sees it, to be used from outside."""
        return Path(f"/proc/{self._first.pid}/root{path}")

    def remount(self, options: str, path: Path) -> None:
        again = ["mount", "-o", f"remount,{options}", str(path)]
        done = subprocess.run(
            self._entering(again, "/"), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"remount of {path}: {done.stderr.strip()}")

    def around(self, stage: Stage) -> None:
        """The job is started with these mounts."""
        before, folder = stage.wrap, str(stage.folder.work)
        stage.wrap = lambda command: before(self._entering(command, folder))
        stage.folder.seen = self.path(stage.folder.work)

    def end(self) -> None:
        self._first.communicate()

    def _entering(self, command: list[str], folder: str) -> list[str]:
        namespace = f"--mount=/proc/{self._first.pid}/ns/mnt"
        return ["nsenter", namespace, "--", "env", "-C", folder, "--", *command]


def for_job(stage: Stage, *mounts: list[str]) -> OwnMounts:
    """Made, put around the job, and ended with it."""
    if stage.lab is not None:
        raise CannotInjectHere("lab hosts have mounts of their own; try it without --hosts")
    made = OwnMounts(*mounts)
    stage.afterwards(made.end)
    made.around(stage)
    return made
