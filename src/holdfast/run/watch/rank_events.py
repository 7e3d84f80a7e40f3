"""Reads the ranks' events files (rank/events.py), and keeps the account of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from holdfast.analysis.job.journal_records import RankEventRecord
from holdfast.analysis.rules.rule import NO_RULES, RuleSet
from holdfast.analysis.rules.tracker import RuleHit, RuleTracker
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from holdfast.run.launch import output_rules
from holdfast.run.watch import resume_tracker
from holdfast.run.watch.numbers_tracker import NumbersTracker
from holdfast.run.watch.resume_tracker import TrackedEvent

READ_EVERY = 1.0
"""seconds between two looks at the files"""
LARGEST_READ = 64 * 1024
"""bytes taken of one file in one look; the rest waits for the next"""


class GrowingFile:
    """A file that grows, read only where it is new."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._place = 0

    def new(self) -> list[dict[str, Any]]:
        """Every whole line that has come since; never raises."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self._place)
                text = file.read(LARGEST_READ) or b""
        except (OSError, ValueError):
            return []
        whole, newline, _ = text.rpartition(b"\n")
        if not newline and len(text) < LARGEST_READ:
            return []  # half a line: the rest is on its way
        self._place += len(whole) + 1 if newline else len(text)
        lines = [_parse(line) for line in whole.split(b"\n")]
        return [line for line in lines if line is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    """Anybody could write there: what is no event of ours is passed over."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(event, dict) and isinstance(event.get("kind"), str)
    return event if is_event else None


class EventListener:
    """One job, all its attempts. Only the launcher's one thread touches it."""

    def __init__(self, rules: RuleSet = NO_RULES) -> None:
        self.rules = RuleTracker(rules)
        self.account = CheckpointAccount()
        self.numbers = NumbersTracker()
        self._attempt = 0
        self._files: dict[int, GrowingFile] = {}
        self._read_at = 0.0
        self._news: list[TrackedEvent] = []

    def begin(self, attempt: int, files: Mapping[int, str], *, steps: int) -> None:
        """A new attempt; the one before had taken `steps` steps."""
        if attempt > self._attempt:
            self.finish()
            self.account = resume_tracker.next_attempt(self.account, steps)
            self.numbers = NumbersTracker(attempt)
        self._attempt = attempt
        self._files = {rank: GrowingFile(path) for rank, path in files.items()}

    def read(self, now: float, *, at_once: bool = False) -> None:
        """Once a second, or at once when a rank died: its last save counts."""
        if at_once or now - self._read_at >= READ_EVERY:
            self._read_at = now
            self.read_all()

    def read_all(self) -> None:
        """Whatever is new, now."""
        for rank, file in self._files.items():
            for event in file.new():
                self.add(rank, event)

    def finish(self) -> None:
        """This attempt is over: whatever is new, and what it all came to."""
        self.read_all()
        if record := self.numbers.replicas.record():
            self._news.append(TrackedEvent(self.account, record))

    def add(self, rank: int, event: dict[str, Any]) -> None:
        tracked = self._track(rank, event)
        self.account = tracked.account
        self._news.append(tracked._replace(told=(rank, event)))

    def _track(self, rank: int, event: dict[str, Any]) -> TrackedEvent:
        """What a bug of ours does not understand is journalled as the rank wrote it."""
        try:
            if event["kind"] == output_rules.EVENT:
                self.rules.saw(_rule_hit(rank, event))
                return TrackedEvent(self.account, None)
            if self.numbers.concerns(event):
                record, sentence = self.numbers.add(rank, event, time.monotonic())
                return TrackedEvent(self.account, record, sentence)
            return resume_tracker.track(self.account, rank, self._attempt, event)
        except Exception:  # noqa: BLE001 - a save that is not understood must not cost the watch
            record = RankEventRecord(rank=rank, attempt=self._attempt, told=event)
            return TrackedEvent(self.account, record)

    def news(self) -> list[TrackedEvent]:
        """What has come since the last time this was asked."""
        news, self._news = self._news, []
        return news


def _rule_hit(rank: int, event: dict[str, Any]) -> RuleHit:
    """A line of any node's rank, dated to now: its clock is another one there."""
    value = event["value"]
    return RuleHit(
        rule=str(event["rule"]),
        rank=rank,
        at=time.monotonic(),
        line=str(event["line"]),
        value=None if value is None else float(value),
        exceeded=str(event["exceeded"]),
        count=int(event["count"]),
    )
