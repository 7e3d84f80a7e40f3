"""What `holdfast run` keeps of a run: its folder, its journal, and what is said at the start."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.analysis.machine import MachineFacts
    from holdfast.run.launch.flags import RunFlags
    from holdfast.run.launch.places import RunPlaces
    from holdfast.run.runs.folder import RunPart
    from holdfast.run.runs.folder_writer import FolderNews
    from holdfast.run.runs.journal import Journal
    from holdfast.run.runs.leftovers import EndedLeftovers
    from holdfast.run.runs.lost_run import UnfinishedRun
    from holdfast.view.run_screen import Screen

MOST_SPARED = 3
"""processes of earlier runs that are named, each with the reason why it was left alone"""


class RunFiles:
    """Of one launcher, from the making of its folder on."""

    def __init__(
        self,
        flags: RunFlags,
        argv: Sequence[str],
        screen: Screen,
        *,
        facts: MachineFacts | None,
        part: RunPart | None = None,
    ) -> None:
        """`part`: this node's in a run on several."""
        from holdfast.analysis.job.journal_records import FolderRecord
        from holdfast.cli.run_checks import without_environment
        from holdfast.run.launch.places import RunPlaces
        from holdfast.run.runs import folder
        from holdfast.run.runs.journal import Journal

        name = os.path.splitext(os.path.basename(flags.torchrun.training_script))[0] or "run"
        command = ["holdfast", "run", *argv]
        made = folder.make(flags.runs, name, command, os.environ, grace=flags.grace, part=part)
        if made.paths:
            folder.prune(made.paths.root, now=time.time())
        if made.paths and facts is not None:
            folder.save(made.paths.facts, without_environment(facts))

        def tell(news: FolderNews) -> None:  # from the writer's thread, seconds from now at least
            screen.say(news.sentence)
            self.journal.write(FolderRecord(hangs=news.hangs, reason=news.sentence))

        self.made = made
        self.screen = screen
        if made.paths and flags.rules:
            folder.save(made.paths.rules, flags.rules)
        self.places: RunPlaces = RunPlaces(made.paths, tell, flags.rules)
        self.journal: Journal = Journal(
            made.paths.journal if made.paths else None, writer=self.places.writer
        )

    def begin(self, flags: RunFlags, world: int, left: EndedLeftovers) -> None:
        """The first lines of the journal and of the screen."""
        from holdfast.analysis.job.journal_records import LaunchRecord

        self._raise_open_files()
        self.journal.write(
            LaunchRecord(
                world=world,
                max_restarts=flags.max_restarts,
                patience=flags.patience or 0.0,
                verify_replicas=flags.verify_replicas,
            )
        )
        here = " on this node" if flags.meeting else ""
        where = f", run folder {self.made.paths.folder}" if self.made.paths else ""
        self.screen.say(f"{world} rank{'s' if world > 1 else ''}{here}{where}")
        for remark in (self.made.remark, *flags.remarks):
            if remark:
                self.screen.say(remark)
        self._tell_of_leftovers(left)

    def _raise_open_files(self) -> None:
        from holdfast.analysis.job.journal_records import LimitRecord
        from holdfast.run.launch import process_setup

        if raised := process_setup.raise_open_files():
            self.journal.write(LimitRecord(name="nofile", soft=raised[0], raised_to=raised[1]))

    def _tell_of_leftovers(self, left: EndedLeftovers) -> None:
        from holdfast import text
        from holdfast.analysis.job.journal_records import LeftoversRecord
        from holdfast.analysis.job.phrases import children

        if left.lost:
            self._tell_of_lost_run(left.lost)
        if left.gap:
            self.screen.say(f"could not look for processes of earlier runs: {left.gap}")
        if left.spared:
            more = f" and {len(left.spared) - MOST_SPARED} more" * (len(left.spared) > MOST_SPARED)
            named = "; ".join(left.spared[:MOST_SPARED])
            self.screen.say(f"still running, left alone: {named}{more}")
        if not left.processes:
            return
        runs = " and ".join(left.runs)
        told = f"ended {children(left.processes)}, left by {runs}, whose launcher is gone"
        if left.stuck:
            told += (
                f"; pid {text.numbers(left.stuck)} did not exit after SIGKILL (uninterruptible in "
                "the kernel?)"
            )
        pids = tuple(process.pid for process in left.processes)
        self.journal.write(
            LeftoversRecord(runs=left.runs, pids=pids, stuck=left.stuck, reason=told)
        )
        self.screen.say(told)

    def _tell_of_lost_run(self, lost: UnfinishedRun) -> None:
        from holdfast.analysis.job.journal_records import NoticeRecord
        from holdfast.faults.processes import launcher_killed

        found = launcher_killed.run_before_was_lost(lost.folder, rebooted=lost.rebooted)
        self.journal.write(
            NoticeRecord(
                slug=found.slug,
                code=found.code,
                hosts=(lost.host,),
                reason=found.reason,
                fix=found.fix,
            )
        )
        self.screen.say(
            [f"notice[{found.code}] {found.slug}: {found.reason}", f"  help: {found.fix}"]
        )
