"""NCCL's RAS asked before a job is ended over a stall: a second witness.

A job that may come back is left alone: NCCL has crashed over the question while it made a
communicator (NVIDIA/nccl issues 1669 and 2346).

A process that was stopped keeps RAS waiting for seconds before it calls it missing. So it is asked
in a thread of its own: what it says in time is in this look, what comes later in the next one. Its
sockets have deadlines, and the thread ends by itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.ras import judge, reading
from holdfast.analysis.ras.address import RasAddress, of_environment
from holdfast.analysis.ras.answer import RasAnswer
from holdfast.analysis.scene.ras_look import RasLook
from holdfast.system import ras

SECONDS = 8.0
"""for one question: RAS gives a process that does not answer up to 6 s"""
PATIENCE = 1
"""seconds that RAS is asked to wait for a process, before it looks whether that one is late"""
TRIES = 6
"""other jobs of this user may listen on the same port, and the kernel picks which one answers"""


KEPT = 3
"""answers: the newest, and older ones to compare it with"""


class _RasQuestion:
    """One, from its start to its answer."""

    def __init__(self, address: RasAddress, pids: frozenset[int]) -> None:
        self.raw = b""
        self.found: RasAnswer | Unread | None = None
        """None until it is answered, and where nothing of this job listens"""
        self._address, self._pids = address, pids
        self.thread = threading.Thread(target=self._ask, name="holdfast-ras", daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        end = time.monotonic() + SECONDS
        for _ in range(TRIES):
            left = end - time.monotonic()
            if left <= 0:
                return
            data = ras.status(self._address, seconds=left, patience=PATIENCE)
            if not isinstance(data, bytes):
                self.found = data
                return
            answer = reading.read(data, source=f"NCCL RAS at {self._address}")
            if answer is None:
                self.found = Unread(why="the answer of NCCL's RAS was not understood")
                return
            if not answer.pids.isdisjoint(self._pids):
                self.raw = data
                self.found = msgspec.structs.replace(answer, at=time.monotonic())
                return


class RasWitness:
    """Of one node. Only the launcher's one thread calls it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        settings = os.environ if environment is None else environment
        self._address = _address(settings)
        self.begin()

    def begin(self) -> None:
        """The ranks of an attempt were started."""
        self._question: _RasQuestion | None = None
        self._answers: list[RasAnswer] = []
        self._problem: Unread | None = None

    def may_know_more(self) -> bool:
        """It was not asked in this attempt, and something listens there."""
        self._collect()
        asked = self._question is not None or self._problem is not None or bool(self._answers)
        return not asked and self._address is not None and ras.listens(self._address)

    def ask(self, pids: Iterable[int]) -> None:
        """Never blocks; while a question is open there is no second one."""
        self._collect()
        if self._address is not None and self._question is None:
            self._question = _RasQuestion(self._address, frozenset(pids))

    def wait(self, seconds: float) -> bytes:
        """What it answers to the question that is open, as it came; b'' where that takes longer."""
        question = self._question
        if question is None:
            return b""
        question.thread.join(seconds)
        self._collect()
        return question.raw

    @property
    def look(self) -> RasLook | Unread | None:
        """None where nothing of this job listens, or has not answered yet."""
        self._collect()
        if not self._answers:
            return self._problem
        newest = self._answers[-1]
        apart = [one for one in self._answers if newest.at - one.at >= judge.APART]
        return RasLook(at=newest.at, answer=newest, before=apart[-1] if apart else None)

    def _collect(self) -> None:
        question = self._question
        if question is None or question.thread.is_alive():
            return
        self._question = None
        if isinstance(question.found, RasAnswer):
            self._answers = [*self._answers, question.found][-KEPT:]
        self._problem = question.found if isinstance(question.found, Unread) else None


def _address(settings: Mapping[str, str]) -> RasAddress | None:
    """None where RAS is switched off, or a name server would have to be asked: that may hang."""
    if settings.get("NCCL_RAS_ENABLE") == "0":
        return None
    try:
        address = of_environment(settings)
    except ValueError:
        return None
    return address if address.needs_no_resolver else None
