"""Start a rank as the launcher does, look at it, and end it whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.analysis.scene.scene import Beat
from holdfast.rank import delivery, heartbeat_page

PATIENCE = 60.0
"""generous: two cores may be shared by many"""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Rank:
    """One process under watch, and the files it may write."""

    last: Beat | None = None

    def __init__(self, folder: Path, argv: list[str], environment: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        self.words = folder / "words.json"
        self.socket = folder / "recorder.sock"
        self.out, self.err = folder / "out", folder / "err"
        self.fd, self.buffer = heartbeat_page.create()
        made = delivery.environment(
            {**os.environ, **environment},
            page=environment.get("TEST_PAGE", f"/proc/{os.getpid()}/fd/{self.fd}"),
            words=environment.get("TEST_WORDS", str(self.words)),
            socket=str(self.socket),
            launcher_pid=os.getpid(),
        )
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                delivery.command(argv), env=made, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def beat(self) -> Beat:
        found = heartbeat_page.read(self.buffer)
        assert found is not None, "the rank never wrote its page"
        return found

    def remember(self) -> None:
        """Keep what the page says now; it goes when the rank is ended."""
        self.last = heartbeat_page.read(self.buffer)

    def has_page(self) -> bool:
        return heartbeat_page.read(self.buffer) is not None

    def printed(self, text: str) -> bool:
        return text in self.out.read_text()

    def last_words(self) -> dict[str, Any] | None:
        return json.loads(self.words.read_text()) if self.words.exists() else None

    def finish(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        # The rank leads a session of its own, so its children go with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.buffer.close()
        os.close(self.fd)


@contextlib.contextmanager
def started(
    folder: Path, script: str | Path, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[Rank]:
    """A script (its text, or a file among the targets) as a rank."""
    if isinstance(script, str):
        folder.mkdir(exist_ok=True)
        path = folder / "train.py"
        path.write_text(script)
    else:
        path = script
    rank = Rank(folder, [sys.executable, str(path), *arguments], environment or {})
    try:
        yield rank
    finally:
        rank.end()


def ran(folder: Path, script: str | Path, environment: dict[str, str] | None = None) -> Rank:
    """The same, to its end; files and exit code remain."""
    with started(folder, script, environment=environment) as rank:
        rank.finish()
        rank.remember()
    return rank


def bare(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Plain python, without a launcher."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def place(rank: int, world: int, port: int, **others: str) -> dict[str, str]:
    """The variables that tell a rank its place in the job."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **others,
    }


@contextlib.contextmanager
def own_stdin() -> Iterator[int]:
    """For ranks that wait to be told: what is written to the descriptor is on their stdin."""
    read_end, write_end = os.pipe()
    saved = os.dup(0)
    os.dup2(read_end, 0)
    try:
        yield write_end
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, read_end, write_end):
            os.close(descriptor)
