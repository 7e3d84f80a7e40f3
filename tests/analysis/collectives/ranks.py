"""Real Gloo ranks that obey the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.analysis.collectives import recorder
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder
from holdfast.system import recorder_query
from tests.places import TARGETS

TARGET = TARGETS / "obedient_rank.py"


class Rank:
    def __init__(self, process: subprocess.Popen[str], socket_path: str) -> None:
        self.process = process
        self.socket_path = socket_path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Blocks until the rank speaks; a hung test is ended by faulthandler_timeout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def recorder(self) -> Recorder:
        document = recorder_query.ask(self.socket_path, seconds=10)
        assert not isinstance(document, Unread), document.why
        return recorder.parse(document)


@contextmanager
def two_ranks(folder: Path) -> Iterator[tuple[Rank, Rank]]:
    with ExitStack() as ends:
        ranks = []
        for number in range(2):
            process = ends.enter_context(
                subprocess.Popen(
                    [sys.executable, str(TARGET), str(number), "2", str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            ends.callback(process.kill)
            ranks.append(Rank(process, f"{folder}/{number}.sock"))
        for rank in ranks:
            assert rank.answer() == "ready"
        yield ranks[0], ranks[1]


def both(ranks: tuple[Rank, Rank], *commands: str) -> None:
    """Tell both ranks the same, and wait until both have done it."""
    for command in commands:
        for rank in ranks:
            rank.tell(command)
        for rank in ranks:
            assert rank.answer() == "done"
