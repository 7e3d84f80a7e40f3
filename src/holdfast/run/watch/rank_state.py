"""What the launcher keeps of each rank between two looks, and the view it gives of it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from holdfast.analysis.collectives import recorder
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import crash_file, exits, secondary_errors
from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.scene import (
    Activity,
    Beat,
    Death,
    LastWords,
    RankView,
    Recorder,
    Stack,
    StartedRank,
    WorkerStack,
)
from holdfast.rank import heartbeat_page, last_words
from holdfast.rank.delivery import crash_file as crash_file_of
from holdfast.run.launch.output_tail import TAIL

IDLE_CPU = 0.02
"""seconds of processor time a second that a waiting process burns anyway: timers, epoll loops"""
HANDED_ON = ("ProcessRaisedException", "ProcessExitedException")
"""what `mp.spawn` raises for whichever of its processes it sees exit first"""
LOOKS = 60
"""at a rank's processor time that are kept: a minute, one a second"""


@dataclass
class ObservedRank:
    """One rank of one attempt. Only the launcher's one thread touches it."""

    rank: int
    local_rank: int
    pid: int
    host: str
    page: mmap.mmap | memoryview
    words_file: str
    stderr_file: str
    """its name, to be told; it may be on a disk that hangs, and is not read here"""
    stderr_tail: Callable[[], bytes]
    """the end of what it printed on stderr"""
    socket: str
    started_at: float
    death: Death | None = None
    activity: Activity | None = None
    looked_at: float = 0.0
    alive_at: float = 0.0
    state_since: float = 0.0
    steps: int = 0
    read_at: float = 0.0
    stepped_after: float = 0.0
    """by our own clock: a rank's may be another one, in a time namespace or under faketime, and
    then its last step would seem hours old"""
    stack: Stack | Unread | None = None
    recorder: Recorder | Unread | None = None
    left_recorder: bool = False
    """`recorder` is the one that it wrote down when it failed"""
    beat: Beat | None = field(default=None)
    limit: float = 0.0
    """when the section it is in must be over, as the rank itself says"""
    extended: float = 0.0
    """that limit was in force when the machine slept, and gets `extra` seconds"""
    extra: float = 0.0
    looks: deque[CpuLook] = field(default_factory=lambda: deque(maxlen=LOOKS))
    crash: Stack | None = None
    workers: tuple[WorkerStack, ...] = ()
    lost_peer: bool = False
    threads: tuple[int, ...] = ()
    """as last seen: the kernel log names the thread that crashed, and a dead one is not listed"""
    members: dict[int, ObservedRank] = field(default_factory=dict)
    """processes that it started, by their number in the group that those form"""

    def __post_init__(self) -> None:
        self.alive_at = self.state_since = self.read_at = self.started_at
        self.leader = self.pid
        """the process that was started; `pid` is the one that writes the page, which may be below
        a shell or a profiler"""

    def read_page(self, now: float) -> None:
        """Read its page; a new step is the best sign of life."""
        self.beat = heartbeat_page.read(self.page)
        self.pid = heartbeat_page.writer(self.page) or self.pid
        if self.beat and self._is_between_processes():
            self.beat = msgspec.structs.replace(self.beat, leaving_at=0.0, exit_call=None, phase="")
        self.limit = self.beat.limit_until if self.beat else 0.0
        if self.beat and self.limit and self.limit == self.extended:
            self.beat = msgspec.structs.replace(self.beat, limit_until=self.limit + self.extra)
        if self.beat and self.beat.steps != self.steps:
            self.steps = self.beat.steps
            self.alive_at = now
            self.stepped_after = self.read_at
        if self.beat and self.steps and self.beat.step_at < self.stepped_after:
            self.beat = msgspec.structs.replace(self.beat, step_at=self.stepped_after)
        self.read_at = now

    def _is_between_processes(self) -> bool:
        """Below a wrapper: the process that had the page has ended, and the rank has not."""
        below = self.pid != self.leader and self.death is None
        return below and not os.path.exists(f"/proc/{self.pid}")

    def compare(self, now: float, activity: Activity | None) -> None:
        """The kernel's counters with those of the last look."""
        before = self.activity
        if activity is None:
            return
        if before is None or moved(before, activity, now - self.looked_at):
            self.alive_at = now
        self.looked_at = now
        self.look_again(now, activity)
        self.looks.append(CpuLook(at=now, ran=activity.cpu, queued=activity.queued))

    def look_again(self, now: float, activity: Activity | None) -> None:
        """Between two looks that are compared: what moved is no sign of life."""
        if activity is None:
            return
        if self.activity is None or self.activity.state != activity.state:
            self.state_since = now
        self.activity = activity

    def remember_threads(self) -> None:
        with contextlib.suppress(OSError):  # it is about to go: what was seen before stays
            self.threads = tuple(map(int, os.listdir(f"/proc/{self.pid}/task"))) or self.threads

    def reset_timers(self, now: float, *, late: float = 0.0) -> None:
        """The machine slept: all timers start again, and a limit then in force gets that time."""
        self.alive_at = self.state_since = now
        if self.beat and self.beat.limit_until:
            already = self.extra if self.limit == self.extended else 0.0
            self.extended, self.extra = self.limit, already + late

    def view(self) -> RankView:
        return RankView(
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.pid,
            host=self.host,
            beat=self._beat_with_steps(),
            activity=None if self.death else self.activity,
            alive_at=self.alive_at,
            state_since=self.state_since,
            death=self.death,
            words=self.last_words(),
            stack=self.stack,
            recorder=self._recorder(),
            workers=self.workers,
            log=self.stderr_file,
            lost_peer=self.lost_peer,
            crash=self._crash(),
            looks=tuple(self.looks),
            started=tuple(self._started()),
        )

    def _started(self) -> Iterator[StartedRank]:
        for member in self.members.values():
            beat = member.beat
            claim = (beat.claim or beat.former_claim) if beat else None
            if claim is not None and claim.store:
                yield StartedRank(store=claim.store, rank=claim.rank)

    def _beat_with_steps(self) -> Beat | None:
        """The steps of processes that it started are the job's, also once those have ended."""
        below = [member.beat for member in self.members.values() if member.beat]
        furthest = max(below, key=lambda beat: beat.steps, default=None)
        if self.beat is None or furthest is None or furthest.steps <= self.beat.steps:
            return self.beat
        return msgspec.structs.replace(self.beat, steps=furthest.steps, step_at=furthest.step_at)

    def last_words(self) -> LastWords | None:
        words = read_words(self.words_file) or self._words_of_abort()
        if words is None:
            return None
        # Some scripts call sys.excepthook themselves, to log what they have caught, and continue.
        went_on = self.beat is not None and self.beat.step_at > words.at
        # Or they catch the exit that they asked for, and end in another way.
        asked_for = words.exit_code
        other_end = asked_for is not None and self.death and self.death.code != asked_for
        if went_on or other_end:
            return None
        return self._cause_below() or words if words.kind in HANDED_ON else words

    def _cause_below(self) -> LastWords | None:
        """What the first process said that it started and that failed for a reason of its own."""
        said = [
            (member.rank, words)
            for member in self.members.values()
            if (words := member.last_words()) and not secondary_errors.consequence(words)
        ]
        number, first = min(said, key=lambda one: one[1].at, default=(0, None))
        if first is None:
            return None
        where = f"{first.where}, in spawned rank {number}"
        return msgspec.structs.replace(first, where=where, exit_code=None)

    def _recorder(self) -> Recorder | Unread | None:
        """What it left behind when it failed, or served while it lived."""
        kept = last_words.recorder_file(self.words_file)
        if not self.left_recorder and os.path.exists(kept):
            with contextlib.suppress(OSError, ValueError), open(kept, "rb") as file:
                self.recorder = recorder.parse(file.read())
                self.left_recorder = True
        return self.recorder

    def _crash(self) -> Stack | None:
        """What Python's fault handler wrote, once it is dead: then all of it is there."""
        if self.crash is None and self.death and -self.death.code in exits.CRASHES:
            with (
                contextlib.suppress(OSError),
                open(crash_file_of(self.words_file), errors="replace") as file,
            ):
                self.crash = crash_file.parse(file.read(TAIL))
        return self.crash

    def look_for_lost_peer(self) -> None:
        """Worth it only once a rank has left."""
        tail = self.stderr_tail().decode(errors="replace")
        self.lost_peer = self.lost_peer or secondary_errors.watchdog_lost_peer(tail)

    def _words_of_abort(self) -> LastWords | None:
        """C++ that aborts in a thread of its own never reaches Python's excepthook."""
        if self.death is None or self.death.code != -signal.SIGABRT:
            return None
        text = self.stderr_tail().decode(errors="replace")
        return secondary_errors.words_of_abort(text, at=self.death.at)


def moved(before: Activity, after: Activity, seconds: float) -> bool:
    """Whether anything shows that the process did something meanwhile."""
    return (
        after.cpu - before.cpu > IDLE_CPU * max(seconds, 0.1)
        or after.io != before.io
        or after.socket != before.socket
        or after.faults != before.faults
    )


def read_words(path: str) -> LastWords | None:
    """What the rank's excepthook wrote; None when there is nothing whole."""
    if not os.path.exists(path):  # asked ten times a second, and a failed open costs more
        return None
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return LastWords(
            kind=str(document["kind"]),
            text=str(document["text"]),
            where=str(document["where"]),
            at=float(document["at"]),
            hint=str(document.get("hint", "")),
            slugs=tuple(map(str, document.get("slugs", ()))),
            root_kind=str(document.get("root_kind", "")),
            root_text=str(document.get("root_text", "")),
            loading=document.get("loading"),
            loader=str(document.get("loader", "")),
            metadata=str(document.get("metadata", "")),
            exit_code=document.get("exit_code"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
