"""A warm rank as its node sees it: a process, tasks to it, answers from it, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.check.smoke.rank_process import RankProcess
from holdfast.check.smoke.transports import SAYS_MORE

BEGIN = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from holdfast.check.nodes.smoke.rank import main; main()"
)
STACK_SECONDS = 0.5
"""for a rank that hangs to print where"""
OUTPUT_KEPT = 64 << 10
LINE_KEPT = 300
NOT_TO_INHERIT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")


class RankAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank said to one task; which fields are filled depends on the task."""

    error: str = ""
    usable: bool = False
    """it failed, and can still take part in the next test"""
    torch: str = ""
    nccl: str = ""
    why_no_nccl: str = ""
    gpus: int = 0
    port: int = 0
    seconds: float = 0.0
    own_seconds: float = 0.0


class RankHandle:
    """Made in the thread that stays: the kernel ends a rank when the thread that made it is gone.
    Its maker must `end` it."""

    def __init__(self, local_rank: int, environment: Mapping[str, str]) -> None:
        clean = {name: value for name, value in environment.items() if name not in NOT_TO_INHERIT}
        clean.update(SAYS_MORE)
        clean["LOCAL_RANK"] = str(local_rank)
        # torchrun does the same: else each rank would take every core.
        clean.setdefault("OMP_NUM_THREADS", "1")
        self._rank = RankProcess(local_rank, clean, BEGIN)
        self.pid = self._rank.process.pid
        self.printed = b""
        self._reported = b""
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._ended = False
        for pipe, read in (
            (self._rank.reports, self._read_report),
            (self._rank.output.fileno(), self._read_output),
        ):
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, read)

    async def ask(self, do: str, *, within: float, **details: Any) -> RankAnswer:
        """Its answer; an error where it exited, or did not answer in time (with its stack)."""
        self.printed = b""
        self._rank.tell(json.dumps({"do": do, **details}))
        try:
            line = await asyncio.wait_for(self._answers.get(), within)
        except asyncio.TimeoutError:
            return RankAnswer(error=await self._where_it_hangs(within))
        if line is None:
            return RankAnswer(error=await self._how_it_exited())
        try:
            return msgspec.json.decode(line, type=RankAnswer)
        except msgspec.DecodeError as problem:
            return RankAnswer(error=f"the rank's answer cannot be read: {problem}")

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._rank.reports)
            self._loop.remove_reader(self._rank.output.fileno())
            self._rank.kill()
            self._rank.close()

    async def _where_it_hangs(self, seconds: float) -> str:
        state = self._rank.state()
        if state in ("T", "t"):
            return f"pid {self.pid} was stopped (state T) and did not answer in {seconds:g} s"
        self.printed = b""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        await asyncio.sleep(STACK_SECONDS)
        frames = [line.strip() for line in self.words().splitlines() if line.startswith("  File")]
        where = f" at {frames[0]}" if frames else ""
        stuck = " (state D: in an uninterruptible system call)" if state == "D" else ""
        return f"pid {self.pid} did not answer in {seconds:g} s{stuck}{where}"

    async def _how_it_exited(self) -> str:
        for _ in range(20):
            if self._rank.process.poll() is not None:
                break
            await asyncio.sleep(0.1)
        code = self._rank.process.returncode
        if code is None:
            return f"pid {self.pid} closed its pipe"
        how = f"was killed by {_signal(-code)}" if code < 0 else f"exited with code {code}"
        said = self.words().splitlines()
        lines = [line for line in said if line.strip() and " NCCL INFO " not in line]
        last = f": {lines[-1][:LINE_KEPT]}" if lines else ""
        return f"pid {self.pid} {how}{last}"

    def words(self) -> str:
        """What it printed since it was last asked."""
        return self.printed.decode(errors="replace")

    def _read_report(self) -> None:
        chunk = self._read(self._rank.reports)
        if chunk is None:
            return
        if not chunk:
            self._loop.remove_reader(self._rank.reports)
            self._answers.put_nowait(None)
            return
        *lines, self._reported = (self._reported + chunk).split(b"\n")
        for line in lines:
            self._answers.put_nowait(line)

    def _read_output(self) -> None:
        chunk = self._read(self._rank.output.fileno())
        if chunk == b"":
            self._loop.remove_reader(self._rank.output.fileno())
        self.printed = (self.printed + (chunk or b""))[-OUTPUT_KEPT:]

    @staticmethod
    def _read(pipe: int) -> bytes | None:
        try:
            return os.read(pipe, 1 << 16)
        except BlockingIOError:
            return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
