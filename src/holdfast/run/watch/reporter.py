"""Reports what happens to a job, in the journal and on the screen, with the same words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast import text
from holdfast.analysis.collectives import worlds
from holdfast.analysis.job import pace, phrases
from holdfast.analysis.job.journal_records import (
    ActionRecord,
    EvidenceRecord,
    LeftRecord,
    NoticeRecord,
    OwnFaultRecord,
    ProgressRecord,
    RankRecord,
    RuleRecord,
    SignalRecord,
    TransportRecord,
    VerdictRecord,
)
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.rules.tracker import RuleNotice
from holdfast.analysis.scene.scene import RankView, Scene, SurvivingProcess
from holdfast.catalogue import traits
from holdfast.fault import Broken
from holdfast.faults.processes import orphaned_workers
from holdfast.findings import Verdict
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import transport, verdict
from holdfast.run.watch.broadcast import BroadcastJournal, BroadcastScreen
from holdfast.run.watch.peers import NodePeers, NoPeers
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.run.watch.resume_tracker import TrackedEvent
from holdfast.view import run_screen

NOTE_EVERY = 60.0
"""seconds between two notes of progress in the journal, once steps no longer double sooner"""
SEE_EVIDENCE = "see the stacks and flight recorders in {folder}"
"""in place of a command for a process that is ended now"""


class Reporter:
    """Also remembers what was reported, so that nothing is reported twice."""

    def __init__(
        self,
        journal: Journal,
        screen: run_screen.Screen,
        host: str,
        paths: RunPaths | None,
        peers: NodePeers | None = None,
    ) -> None:
        """What concerns this node's processes is told here, all the rest on every node."""
        self.host, self.paths = host, paths
        self.own_journal, self.own_screen = journal, screen
        self.journal = BroadcastJournal(journal, peers or NoPeers())
        self.screen = BroadcastScreen(screen, peers or NoPeers())
        self.noted_at = 0.0
        """when progress was last journalled; 0 before the first step of an attempt"""
        self._noted = 0
        self._said: Verdict | None = None
        self._steps: dict[int, int] = {}
        """of each rank, when progress was last looked at"""
        self.stall: Verdict | None = None
        """the stall that was named last, while it lasts"""
        self._longest_pause = 0.0
        self.pause_at = ""
        """where the rank was that the others waited for in the longest pause"""
        self._evidence_noted = "-"
        self._transport_reported = False
        self._signals_ignored: set[str] = set()
        self._bugs_reported: set[tuple[str, str]] = set()
        self._news_said: set[tuple[int, str]] = set()

    def attempt(self, attempt: int, ranks: Sequence[ObservedRank]) -> None:
        """A new one has begun: what was said of the one before may be said again."""
        self._said = self.stall = None
        self._steps = {}
        self.noted_at = 0.0
        for rank in ranks:
            self.rank(attempt, rank, "started")

    def rank(
        self, attempt: int, rank: ObservedRank | RankView, what: Literal["started", "raised"]
    ) -> None:
        record = RankRecord(attempt=attempt, rank=rank.rank, pid=rank.pid, what=what)
        self.own_journal.write(record)

    def exited(self, attempt: int, rank: ObservedRank, code: int) -> None:
        self.own_journal.write(
            RankRecord(attempt=attempt, rank=rank.rank, pid=rank.pid, what="exited", code=code)
        )

    def progress(
        self,
        scene: Scene,
        steps: int,
        ranks: Sequence[ObservedRank],
    ) -> None:
        """Steps continue: said after a stall, else only noted now and then. `ranks`: here."""
        attempt, now = scene.attempt, scene.now
        stalled = self._is_refuted({v.rank: v.beat.steps for v in scene.ranks if v.beat})
        if stalled:
            self.screen.say(f"training continues: step {steps}")
            self._said = None
        if self._said is None:
            self.stall = None
        due = now >= self.noted_at + NOTE_EVERY or steps >= 2 * self._noted
        if stalled or not self.noted_at or due:
            self.journal.write(ProgressRecord(attempt=attempt, steps=steps))
            self.noted_at, self._noted = now, steps
        if not self._transport_reported:
            self._transport_reported = True
            self._transport(attempt, ranks)

    def _is_refuted(self, steps: Mapping[int, int]) -> bool:
        """A rank that the notice is about has taken a step: one in another world proves nothing."""
        moved = {rank for rank, taken in steps.items() if taken > self._steps.get(rank, 0)}
        self._steps = dict(steps)
        if self._said is None or traits(self._said.slug).survives_steps:
            return False
        about = {*self._said.ranks, *self._said.victims}
        return not (about and moved) or not about.isdisjoint(moved)

    def rank_events(self, news: Sequence[TrackedEvent], scene: Scene) -> None:
        """What ranks reported of saves, resumes and their numbers, and what it means: a notice once
        an attempt."""
        for event in news:
            if event.record:
                self.journal.write(event.record)
            if event.sentence:
                self.screen.say(event.sentence)
        for found in verdict.news(scene):
            if (scene.attempt, found.slug) not in self._news_said:
                self._news_said.add((scene.attempt, found.slug))
                self.judgement(found, scene, action="", steps=pace.steps(scene), evidence="")

    def rule_notices(
        self, due: Iterable[RuleNotice], *, attempt: int, steps: int, last: bool
    ) -> None:
        """Of rules of the user's own, which never lead to an action; `last`: the ranks ended."""
        for notice in due:
            fields = msgspec.structs.asdict(notice)
            self.journal.write(RuleRecord(**fields, attempt=attempt, steps=steps))
            self.screen.say(run_screen.own_rule(notice, last=last))

    def rule_remarks(self, remarks: Iterable[str]) -> None:
        for remark in remarks:
            self.own_screen.say(remark)

    def noticed(self, found: Verdict) -> None:
        """A notice is said: when steps continue, that is said too."""
        self._said = found

    def judgement(
        self,
        found: Verdict,
        scene: Scene,
        *,
        action: str,
        steps: int,
        evidence: str,
        last: bool = False,
    ) -> None:
        """A notice, or with an action the verdict that calls for it; the `last` when it ends the
        job."""
        if action:
            found = msgspec.structs.replace(found, fix=fix_once_ended(found, evidence))
        self._journal(found, scene, action=action, steps=steps, evidence=evidence)
        if traits(found.slug).from_history:
            return  # the verdict on the failure itself follows, with this reason for stopping
        name = "" if action or found.certain else traits(found.slug).notice_name
        self.screen.say(
            run_screen.judgement(
                found, scene, name=name, action=action, evidence=evidence, last=last
            )
        )

    def told_to_stop(self, told: Verdict, scene: Scene, *, steps: int) -> None:
        """By a signal, which is no failure: one line. Where the job was in a stall, the journal
        names that: it may be the reason for the signal."""
        by, stall = scene.told_to_stop, self.stall
        found = msgspec.structs.replace(stall or told, fix=fix_once_ended(stall or told, ""))
        self._journal(found, scene, action="stop", steps=steps, evidence="", stopped_by=by)
        during = f", during a stall: {stall.reason}" if stall else ""
        self.screen.say(f"{told.reason}{during}")

    def waits_for(self) -> tuple[int, ...]:
        """The ranks that stall the job, for the status line."""
        return self.stall.ranks if self.stall else ()

    def pause_is_over(self, longest: float) -> None:
        """A step came; `longest`: the longest time without one so far."""
        if longest > self._longest_pause:
            seen = (
                [e.quote for e in self.stall.evidence if e.source == "stack"] if self.stall else []
            )
            self._longest_pause, self.pause_at = longest, seen[0] if seen else ""

    def remember_stall(self, found: Verdict | None) -> None:
        """What this look found: the stall that the job is in, if it is in one."""
        self.stall = found if found and verdict.is_stall(found) else None

    def outlived(self, processes: Sequence[SurvivingProcess], scene: Scene, *, steps: int) -> None:
        """A notice of one line: the paragraph about the root cause stays the one to read."""
        scene = msgspec.structs.replace(scene, outlived=tuple(processes))
        if found := orphaned_workers.child_outlived_rank(scene):
            self._journal(found, scene, action="", steps=steps, evidence="")
            self.screen.say(found.reason)

    def left_alone(self, processes: Sequence[SurvivingProcess], *, attempt: int) -> None:
        told = phrases.children(processes)
        pids = tuple(p.pid for p in processes)
        verb = text.plural(pids, "is", "are")
        self.own_journal.write(LeftRecord(attempt=attempt, pids=pids, reason=told))
        self.own_screen.say(
            f"{told} {verb} still running; left alone because the job ended well; "
            "further output goes to the log of its rank only"
        )

    def _journal(
        self,
        found: Verdict,
        scene: Scene,
        *,
        action: str,
        steps: int,
        evidence: str,
        stopped_by: str = "",
    ) -> None:
        notice = NoticeRecord(
            slug=found.slug,
            code=found.code,
            ranks=found.ranks,
            victims=found.victims,
            hosts=hosts_of(found, scene) or (self.host,),
            reason=found.reason,
            fix=found.fix,
            attempt=scene.attempt,
            steps=steps,
            longest_pause=round(scene.longest_pause, 3),
            evidence=evidence,
        )
        fields = msgspec.structs.asdict(notice)
        if action:
            fields |= {"stopped_by": stopped_by, "likely": found.likely}
        self.journal.write(VerdictRecord(**fields) if action else notice)

    def evidence(self, scene: Scene, folder: str) -> None:
        """Once a folder: looks at which nothing was said use it again."""
        if folder == self._evidence_noted:
            return
        self._evidence_noted = folder
        several = worlds.several(scene)
        self.journal.write(EvidenceRecord(attempt=scene.attempt, folder=folder, worlds=several))

    def aborts(self, attempt: int, ranks: Sequence[int]) -> None:
        self.journal.write(SignalRecord(attempt=attempt, signal="SIGABRT", ranks=tuple(ranks)))
        self.screen.say(f"sent SIGABRT to {text.ranks(ranks)}: the deadline passed")

    def signal_forwarded(self, attempt: int, name: str, ranks: Sequence[int]) -> None:
        self.own_journal.write(SignalRecord(attempt=attempt, signal=name, ranks=tuple(ranks)))
        if ranks:
            self.own_screen.say(f"forwarded {name} to {text.ranks(ranks)}")
        elif name not in self._signals_ignored:
            self._signals_ignored.add(name)
            self.own_screen.say(f"ignored {name}: no rank has a handler for it")

    def waiting_for_exit(self, ranks: Sequence[int], left: float, *, by_hand: bool) -> None:
        again = "; press Ctrl-C again to kill at once" if by_hand else ""
        self.own_screen.say(f"waiting up to {left:.0f} s for {text.ranks(ranks)} to exit{again}")

    def action(
        self,
        action: Literal["restart", "stop"],
        scene: Scene,
        *,
        reason: str,
        steps: int = 0,
        idle: float = 0.0,
    ) -> None:
        self.journal.write(
            ActionRecord(
                action=action,
                attempt=scene.attempt,
                steps=steps,
                idle=round(idle, 3),
                reason=reason,
            )
        )

    def own_faults(self, broken: Iterable[Broken], *, attempt: int) -> None:
        """Each face that raised, once a run: its scene comes again at every look."""
        for bug in broken:
            if (bug.slug, bug.face) in self._bugs_reported:
                continue
            self._bugs_reported.add((bug.slug, bug.face))
            self.journal.write(
                OwnFaultRecord(attempt=attempt, slug=bug.slug, face=bug.face, exception=bug.problem)
            )
            self.screen.say(
                f"cannot check for {bug.slug}: a bug in holdfast ({bug.problem}); training and "
                "all other checks continue"
            )

    def part_failed(self, part: str, bug: Exception, attempt: int) -> None:
        """A part of the watch raised; called once for each."""
        problem = f"{type(bug).__name__}: {bug}"
        self.journal.write(OwnFaultRecord(attempt=attempt, face=part, exception=problem))
        self.screen.say(
            f"{part} failed: a bug in holdfast ({problem}); training and all other monitoring "
            "continue"
        )

    def _transport(self, attempt: int, ranks: Sequence[ObservedRank]) -> None:
        """Over what the ranks talk, now that they do."""
        files = (self.paths.stdout, self.paths.stderr) if self.paths else ()
        logs = [path(attempt, rank.rank) for rank in ranks for path in files]
        seen = transport.look([rank.pid for rank in ranks], logs, os.environ)
        warning = transport.contradiction(seen, os.environ)
        if told := transport.sentence(seen):
            self.own_journal.write(TransportRecord(seen=told, warning=warning))
            self.own_screen.say([told, f"warning: {warning}"] if warning else told)


def hosts_of(found: Verdict, scene: Scene) -> tuple[str, ...]:
    """The nodes that it is about: named by the verdict, or those of its culprits."""
    known = {view.rank: view.host for view in scene.ranks}
    return found.about_hosts or tuple(dict.fromkeys(known[r] for r in found.ranks if r in known))


def fix_once_ended(found: Verdict, evidence: str) -> str:
    """What to do about it when the action ends the job's processes."""
    if found.fix_after_end is None:
        return found.fix
    kept = SEE_EVIDENCE.format(folder=evidence) if evidence else ""
    return "; ".join(filter(None, (kept, found.fix_after_end)))
