"""Run `holdfast run` for real, read what it kept, and end all it started whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.cli.holdfast_command import HOLDFAST
from tests.places import TARGETS

DDP = TARGETS / "ddp.py"
PATIENCE = 100.0
"""generous: two cores may be shared by many"""


class Job:
    """One `holdfast run`, in a folder of its own."""

    def __init__(
        self, folder: Path, words: tuple[str, ...], *, before_exec: Callable[[], None] | None
    ) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        # By a short name: a socket's may have 107 characters, also those of DataLoader workers.
        self._short = Path(tempfile.mkdtemp(prefix="job-"), "t")
        self._short.symlink_to(self.temporary)
        outer = ("PET_", "TORCH", "NCCL_", "OMP_", "HOLDFAST")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
        environment["TMPDIR"] = str(self._short)
        settings = [word for word in words if "=" in word and word.split("=")[0].isupper()]
        environment.update((name, value) for name, _, value in (s.partition("=") for s in settings))
        command = [*HOLDFAST, "run", "--no-check", *(w for w in words if w not in settings)]

        def in_the_child() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` has it ignored
            if before_exec:
                before_exec()

        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err,
                start_new_session=True,
                preexec_fn=in_the_child,  # noqa: PLW1509 - no threads here
            )  # fmt: skip

    def finish(self) -> int:
        return self.process.wait(PATIENCE)

    @property
    def out(self) -> bytes:
        return (self.folder / "out").read_bytes()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "latest"

    def records(self, *kinds: str) -> list[dict[str, Any]]:
        file = self.run / "journal.jsonl"
        text = file.read_text() if file.exists() else ""
        every = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return [record for record in every if not kinds or record["kind"] in kinds]

    def pids(self) -> list[int]:
        return [record["pid"] for record in self.records("rank") if record["what"] == "started"]

    def said(self) -> list[tuple[str, str, list[int]]]:
        return [(r["kind"], r["slug"], r["ranks"]) for r in self.records("notice", "verdict")]

    def actions(self) -> list[str]:
        return [record["action"] for record in self.records("action")]

    def log(self, attempt: int, rank: int, stream: str = "stdout") -> bytes:
        return (self.run / f"attempt-{attempt}" / f"rank-{rank}" / f"{stream}.log").read_bytes()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for leader in self.pids():  # each rank leads a session of its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
        self._short.unlink()
        self._short.parent.rmdir()


@contextlib.contextmanager
def job(folder: Path, *words: str, before_exec: Callable[[], None] | None = None) -> Iterator[Job]:
    """`holdfast run` with these words; NAME=VALUE among them goes into its environment."""
    started = Job(folder, words, before_exec=before_exec)
    try:
        yield started
    finally:
        started.end()


def ran(folder: Path, *words: str, before_exec: Callable[[], None] | None = None) -> Job:
    """The same, to its end; its code is in `process.returncode`."""
    with job(folder, *words, before_exec=before_exec) as started:
        started.finish()
    return started


def script(folder: Path, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train.py"
    path.write_text(text)
    return str(path)
