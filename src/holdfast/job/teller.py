"""Tells what happens to a job, in the journal and on the screen, with the same words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.job import transport
from holdfast.job.journal import Journal
from holdfast.job.observe import Watched
from holdfast.model import Verdict
from holdfast.paths import RunPaths
from holdfast.signals import Scene
from holdfast.view import run_screen


class Teller:
    def __init__(self, journal: Journal, screen: run_screen.Screen, host: str) -> None:
        self.journal, self.screen, self.host = journal, screen, host

    def rank(self, attempt: int, rank: Watched, what: str, **more: int) -> None:
        self.journal.write("rank", attempt=attempt, rank=rank.rank, pid=rank.pid, what=what, **more)

    def judgement(
        self, found: Verdict, scene: Scene, *, action: str, steps: int, evidence: str
    ) -> None:
        """A notice, or with an action the verdict that calls for it."""
        self.journal.write(
            "verdict" if action else "notice",
            slug=found.slug,
            code=found.code,
            ranks=found.ranks,
            victims=found.victims,
            hosts=[self.host],
            reason=found.reason,
            fix=found.fix,
            attempt=scene.attempt,
            steps=steps,
            longest_pause=round(scene.longest_pause, 3),
            evidence=evidence,
        )
        self.screen.say(run_screen.judgement(found, scene, action=action, evidence=evidence))

    def transport(self, attempt: int, ranks: Sequence[Watched], paths: RunPaths | None) -> None:
        """Over what the ranks talk, now that they do."""
        files = (paths.stdout, paths.stderr) if paths else ()
        logs = [path(attempt, rank.local_rank) for rank in ranks for path in files]
        seen = transport.look([rank.pid for rank in ranks], logs, os.environ)
        warning = transport.contradiction(seen, os.environ)
        if told := transport.sentence(seen):
            self.journal.write("transport", seen=told, warning=warning)
            self.screen.say([told, f"warning: {warning}"] if warning else told)
