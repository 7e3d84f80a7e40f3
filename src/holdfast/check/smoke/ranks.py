"""The ranks of the smoke test together: started, heard, and ended, every one, always."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from holdfast.analysis.machine.nccl_diagnostics import MARK as DIAGNOSTIC
from holdfast.analysis.machine.nccl_links import CHANNEL
from holdfast.check.smoke.rank_process import RankProcess
from holdfast.check.smoke.stages import WORDS_KEPT, Record, decode
from holdfast.redaction import redact

TICK = 0.1
"""seconds between looks for a process that died: at once, to a person"""
MOST_LINES = 1000
"""of NCCL that are kept for one rank"""
LONGEST_LINE = 1000


class SmokeRanks:
    """All ranks. `with SmokeRanks(...) as ranks:` ends them however the block is left.

    A signal that hits us between the fork and the moment we hold the process is covered as
    well: the kernel kills a rank when its parent is gone, even one that is stopped.
    """

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self.environments = environments
        self.members: list[RankProcess] = []
        self._news: list[Record] = []
        self._waiting = selectors.DefaultSelector()

    def __enter__(self) -> SmokeRanks:
        try:
            for rank, environment in enumerate(self.environments):
                self._start(rank, environment)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _start(self, rank: int, environment: Mapping[str, str]) -> None:
        try:
            member = RankProcess(rank, environment)
        except OSError as refusal:  # EAGAIN, ENOMEM, EMFILE: the kernel gives no more
            self._news.append(Record(rank=rank, kind="error", stage="start", text=str(refusal)))
            return
        self.members.append(member)
        self._news.append(Record(rank=rank, kind="started", stage="start", pid=member.process.pid))
        for pipe, what in ((member.reports, "reported"), (member.output.fileno(), "printed")):
            os.set_blocking(pipe, False)
            self._waiting.register(pipe, selectors.EVENT_READ, (member, what))

    def _end(self) -> None:
        self._waiting.close()
        for member in self.members:
            member.kill()
        for member in self.members:
            member.close()
        self.members = []

    def hear(self) -> list[Record]:
        """What happened since the last call; waits a tick at most."""
        if self._waiting.get_map():
            for key, _ in self._waiting.select(TICK):
                member, what = key.data
                self._read(member, what, key.fd)
        else:
            time.sleep(TICK)
        for member in self.members:
            if not member.gone and member.process.poll() is not None:
                member.gone = True
                self._read_the_rest(member)
                self._news.append(member.exit_record())
        news, self._news = self._news, []
        return news

    def _read(self, member: RankProcess, what: str, pipe: int) -> bool:
        """Take what a pipe holds; False when nothing is there, or nothing more will come."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self._waiting.unregister(pipe)
        elif what == "printed":
            member.printed = (member.printed + chunk)[-16 * WORDS_KEPT :]
            self._keep_nccls_words(member, chunk)
        else:
            *lines, member.reported = (member.reported + chunk).split(b"\n")
            self._news.extend(record for record in map(decode, lines) if record is not None)
        return bool(chunk)

    def _keep_nccls_words(self, member: RankProcess, chunk: bytes) -> None:
        """Which transports it uses and what its diagnostics found: the rest is too much to keep."""
        *lines, last = (member.unfinished_line + chunk).split(b"\n")
        member.unfinished_line = last[-LONGEST_LINE:]
        for raw in lines:
            line = raw[:LONGEST_LINE].decode(errors="replace")
            channel = CHANNEL.search(line)
            # A link has up to 64 channels, and says the same of each.
            said = channel.group("sender", "receiver", "transport", "way") if channel else line
            told = channel or DIAGNOSTIC in line
            if told and said not in member.nccl_said and len(member.nccl_said) < MOST_LINES:
                member.nccl_said.add(said)
                self._news.append(
                    Record(rank=member.rank, kind="nccl", stage=member.stage, text=redact(line))
                )

    def _read_the_rest(self, member: RankProcess) -> None:
        """A dead rank's words come before its exit. Its children may hold the pipe open."""
        for pipe, what in ((member.reports, "reported"), (member.output.fileno(), "printed")):
            with contextlib.suppress(KeyError):  # its end has been read already
                self._waiting.get_key(pipe)
                while self._read(member, what, pipe):
                    pass
