"""A running job for a person: one calm status line, and a paragraph when something is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TextIO

from holdfast import catalogue
from holdfast.analysis.collectives import worlds
from holdfast.analysis.job import join, pace
from holdfast.analysis.rules.tracker import RuleNotice
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.findings import Evidence, Verdict
from holdfast.text import numbers, ranks
from holdfast.view import terminal
from holdfast.view.text import harmless

PREFIX = "holdfast> "
EVERY = 60.0
"""seconds between two status lines where they cannot be rewritten in place"""
PATIENCE = 1.0
"""seconds a paragraph waits for a terminal that takes nothing (Ctrl-S, a full pipe)"""
FIRST_STATUS = 10.0
"""seconds before the first one there: the log of a short job needs none"""
SHORTEST_START = 2.0
"""seconds: a start or a stall that takes longer is worth a line"""
QUOTES = 4
NO_ACTION = "none, still watching"
FOR_GOOD = "stopping: no restart can help"
EXIT = "exit"
"""the section in which a rank is once its script is over"""
ERASE = "\r\033[K"
"""to the start of the line, and all behind it away"""

Writer = Callable[[int, bytes], None]
"""puts bytes on the screen of that descriptor"""


# --- what to say: pure ---------------------------------------------------------------------------


def status(scene: Scene, *, restarts: int = 0, waits_for: Sequence[int] = ()) -> str:
    """How far the job is, in one line; '' while its start is too young to mention, and at the end.

    `waits_for`: the ranks that stall it, as far as they have been named.
    """
    world = len(scene.ranks)
    living = [view for view in scene.ranks if view.death is None]
    beats = [view.beat for view in living if view.beat]
    ready = [view.rank for view in living if view.beat and view.beat.group_ready]
    steps = max((beat.steps for beat in beats), default=0)
    again = f", {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
    if not living:
        return ""
    around = worlds.part_of(scene, waits_for)
    if waits_for and (waited := scene.now - pace.last_progress(around)) >= SHORTEST_START:
        step = pace.steps(around)
        at = f"at step {scene.checkpoints.base + step}" if step else "before the first step"
        return (
            f"{_ranks(world)}, stalled {at} for {_duration(waited)}: waiting for "
            f"{ranks(waits_for)}{again}"
        )
    if steps:
        usual = sorted(beat.usual_step for beat in beats)[len(beats) // 2]
        each = f", {_duration(usual)} a step" if usual else ""
        alive = "" if len(living) == world else f", {len(living)} alive"
        step = scene.checkpoints.base + steps  # of the job, over all attempts
        return f"{_ranks(world)}{alive}, step {step}{each}{_phases(living)}{again}"
    waited = scene.now - scene.started_at
    if waited < SHORTEST_START:
        return ""
    if missing := join.missing_from_their_worlds(scene):
        return f"{len(ready)} of {_ranks(world)} in the group, missing {numbers(missing)}{again}"
    doing = "waiting for the first step" if ready else "starting"
    return f"{_ranks(world)} {doing} for {_duration(waited)}{_phases(living)}{again}"


def judgement(
    verdict: Verdict,
    scene: Scene,
    *,
    name: str = "",
    action: str = "",
    evidence: str = "",
    last: bool = False,
) -> list[str]:
    """The sentence, what holdfast does about it, and where the evidence is; who and what was seen
    as far as the sentence does not say so.

    `name`: in place of the slug, of a notice that may be over in a second and come again: two
    lines. `last`: the job ends with it, and the report that follows has the help.
    """
    kind = "verdict" if verdict.certain or action else "notice"
    told = [f"{kind}[{verdict.code}] {name or verdict.slug}: {verdict.reason}"]
    if name:
        seen = f"; evidence in {evidence}" if evidence else ""
        return [*told, f"  action    {NO_ACTION}{seen}"]
    if who := _who(verdict, scene):
        told.append(f"  who       {who}")
    quotes = [
        one for one in verdict.evidence if not _says(verdict.reason, _WHOSE.sub("", one.quote))
    ]
    told += [
        f"  --> {_rank_of(quote)}{quote.quote}" + (f" ({quote.source})" * bool(quote.source))
        for quote in quotes[:QUOTES]
    ]
    if action or not verdict.certain:
        told.append(f"  action    {FOR_GOOD if action == verdict.reason else action or NO_ACTION}")
    helps = bool(verdict.fix) and not last
    if evidence and not (helps and evidence in verdict.fix):
        told.append(f"  evidence  {evidence}")
    if helps:
        told.append(f"  help: {verdict.fix}")
    return told


def named(kind: Literal["notice", "verdict"], slug: str, reason: str) -> str:
    """A sentence about a job that has no ranks yet, with the name of the fault in front."""
    return f"{kind}[{catalogue.by_slug(slug).code}] {slug}: {reason}"


def own_rule(notice: RuleNotice, *, last: bool) -> list[str]:
    """A notice of a rule of the user's own; `last`: the ranks have ended."""
    told = [f"notice[your rule] {notice.rule} ({notice.severity}): {notice.reason}"]
    if notice.what == "back":
        return told
    if notice.quote:
        told.append(f"  --> {notice.quote}")
    if not last:
        told.append(f"  action    {NO_ACTION}")
    return [*told, f"  help: {notice.fix}"] if notice.fix else told


def _says(reason: str, quote: str) -> bool:
    """Whether the sentence has all words of the quote already."""
    return _words(quote) - _FILLERS <= _words(reason)


def _words(sentence: str) -> set[str]:
    """'waits' and 'wait' are one."""
    return {word.removesuffix("s") for word in re.findall(r"[^\s,;:()]+", sentence)}


_WHOSE = re.compile(r"^rank \d+ \(pid \d+\): ")
_FILLERS = frozenset({"ended", "exit", "by", "in", "at"})


def _who(verdict: Verdict, scene: Scene) -> str:
    """Culprits whose process the sentence does not name, and victims that it leaves out."""
    known = {view.rank: view for view in scene.ranks}
    named = [known[r] for r in verdict.ranks if r in known]
    unnamed = [
        view for view in named if not _says(verdict.reason, f"rank {view.rank} pid {view.pid}")
    ]
    who = ", ".join(map(_place, unnamed))
    if len(named) == len(scene.ranks):
        who = ""  # all of them: nothing to tell apart
    elif len(unnamed) > QUOTES:
        who = ranks(verdict.ranks) if not _says(verdict.reason, ranks(verdict.ranks)) else ""
    if verdict.victims and not _says(verdict.reason, ranks(verdict.victims)):
        affected = f"affected: {ranks(verdict.victims)}"
        who = f"{who}; {affected}" if who else affected
    return who


def _place(view: RankView) -> str:
    return f"rank {view.rank} (node {view.host}, pid {view.pid})"


def _rank_of(evidence: Evidence) -> str:
    """Once: some quotes begin with their rank."""
    named = evidence.rank is None or re.match(rf"rank {evidence.rank}\b", evidence.quote)
    return "" if named else f"rank {evidence.rank}: "


def _phases(living: Sequence[RankView]) -> str:
    named = sorted({view.beat.phase for view in living if view.beat and view.beat.phase})
    sections = [name for name in named if name != EXIT]
    exiting = ", exiting" if len(sections) < len(named) else ""
    return (f", in {' and '.join(sections[:3])}" if sections else "") + exiting


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count != 1 else ''}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


# --- saying it -----------------------------------------------------------------------------------


class Screen:
    """Writes whole lines to stderr; on a terminal the last one is the status, rewritten.

    A screen that is not read must not stop the watching: a stream that takes nothing is waited
    for a moment at most, and one that broke stays silent. All of it is in the journal anyway.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.RLock()
        self._shown = ""
        self._line_is_free = True
        self._next_status = clock() + FIRST_STATUS
        self._unsaid = 0
        self._in_place = terminal.can_rewrite(stream)

    def status(self, text: str) -> None:
        """The one calm line: in place on a terminal, else at most one a minute.

        '' leaves it as it is.
        """
        if not text:
            return
        with self._lock:
            line = PREFIX + harmless(text)
            if not self._in_place:
                line = line if self._line_is_free else f"\n{line}"
                if self._clock() >= self._next_status and self._write(f"{line}\n", patience=0):
                    self._next_status = self._clock() + EVERY
                    self._line_is_free = True
                return
            # A line that wraps cannot be rewritten.
            line = line[: terminal.size(self._stream).columns - 1]
            if not self._line_is_free or line == self._shown:
                return
            if self._write(f"{ERASE}{line}", patience=0):
                self._shown = line

    def say(self, lines: str | Sequence[str]) -> None:
        """A paragraph that stays, above the status line and below a rank's unfinished one."""
        with self.aside():
            until = time.monotonic() + PATIENCE  # for all of it
            if not self._line_is_free:
                self._line_is_free = self._write("\n", patience=PATIENCE)
            for line in [lines] if isinstance(lines, str) else lines:
                left = max(0.0, until - time.monotonic())
                if not self._write(f"{PREFIX}{harmless(line)}\n", patience=left):
                    self._unsaid += 1

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """The status line is out of the way while a rank writes to the terminal."""
        with self._lock:
            if self._shown and self._write(ERASE, patience=PATIENCE):
                self._shown = ""
            yield

    def beside(self, write: Writer) -> Writer:
        """`write`, so that what ranks print and the status line do not destroy each other.

        The status line goes before their first byte, and comes back after a newline: a progress
        bar or a prompt keeps its line to itself. The lock is not held while they are written: a
        terminal that takes nothing (Ctrl-S) blocks the ranks, as under torchrun, not us.

        Where both go to one file or pipe there is no status line to erase, but a line of ours must
        not be glued to a bar.
        """

        def write_beside(number: int, text: bytes) -> None:
            if not (self._in_place and os.isatty(number)):
                ends = text.endswith(b"\n")
                if ours := self._goes_to(number):
                    self._line_is_free = self._line_is_free and ends
                write(number, text)
                if ours:
                    self._line_is_free = ends
                return
            with self._lock:
                erase, self._shown = ERASE.encode() if self._shown else b"", ""
                self._line_is_free = False
            write(number, erase + text)
            with self._lock:
                self._line_is_free = text.endswith(b"\n")

        return write_beside

    def _goes_to(self, number: int) -> bool:
        """Whether that descriptor writes to the same file or pipe as we do."""
        try:
            return os.path.sameopenfile(number, self._stream.fileno())
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Leaves the terminal with a clean line."""
        with self.aside():
            if self._unsaid:
                lost, self._unsaid = self._unsaid, 0
                self._write(f"{PREFIX}{lost} lines could not be shown; the journal has them\n",
                            patience=PATIENCE)  # fmt: skip

    def _write(self, text: str, *, patience: float) -> bool:
        return terminal.put(self._stream, text, patience=patience)
