"""The watch of a coordinator: its own small processes, and reports of other nodes."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.analysis.job.journal_records import VerdictRecord
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.scene.scene import Death, Policy, RankView
from holdfast.run.launch.places import RunPlaces
from holdfast.run.nodes.messages import NodeReport
from holdfast.run.runs.journal import Journal
from holdfast.run.watch.interface import JobAction
from holdfast.run.watch.watch import Watch
from holdfast.view.run_screen import Screen
from tests.cli.holdfast_command import wait_until
from tests.run.peers_in_memory import PeersInMemory, a_round
from tests.run.scenes import a_rank
from tests.run.watched import SLEEP, process


class Coordinator:
    """Rank 0 is a process here, rank 1 a view in the reports of node b."""

    def __init__(self, folder: Path) -> None:
        paths = RunPaths(str(folder), "run")
        os.makedirs(paths.folder)
        self.places = RunPlaces(paths, lambda news: None)
        self.journal = Journal(paths.journal, writer=self.places.writer)
        self.screen = io.StringIO()
        self.peers = PeersInMemory(a_round(a=1, b=1), "b")
        self.watch = Watch(
            policy=Policy(patience=None, max_restarts=1, restarts_typed=True),
            journal=self.journal,
            screen=Screen(self.screen),
            places=self.places,
            memory_kills=lambda: 0,
            peers=self.peers,
        )

    def start(self, pid: int) -> None:
        self.watch.rank_environment(0, {"RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"})
        self.watch.ranks_started(0, {0: pid})

    def reports(self, view: RankView) -> None:
        self.peers.change("b", report=NodeReport(round=1, at=1.0, ranks=(view,)))

    def look_until(self, *wanted: JobAction) -> JobAction:
        seen = [JobAction.KEEP_RUNNING]

        def looked() -> bool:
            seen.append(self.watch.look())
            return seen[-1] in wanted

        wait_until(looked)
        return seen[-1]


@contextlib.contextmanager
def coordinating(folder: Path) -> Iterator[Coordinator]:
    made = Coordinator(folder)
    try:
        yield made
    finally:
        made.watch.ranks_stopped()
        made.watch.close()
        made.places.close()
        made.journal.close()


def dead(code: int) -> RankView:
    return a_rank(1, host="b", death=Death(code=code, at=0.0), activity=None, beat=None)


def test_a_rank_that_dies_on_another_node_is_named_on_all_of_them(tmp_path: Path) -> None:
    with coordinating(tmp_path) as made, process(SLEEP) as own:
        made.start(own.pid)
        made.reports(dead(-9))
        assert made.look_until(JobAction.RESTART, JobAction.STOP) is JobAction.RESTART
        ((order, without),) = made.peers.orders
        assert (order.action, order.round, order.exit_code, without) == ("restart", 1, 137, ())
        (record,) = [r for r in made.peers.recorded if isinstance(r, VerdictRecord)]
        assert (record.slug, record.ranks, record.hosts) == ("rank-killed", (1,), ("b",))
        assert any(record.reason in line for line in made.peers.said)
        assert record.reason in made.screen.getvalue()
        assert made.peers.evidence_asked == 1
        assert made.watch.culprits() == frozenset(), "it is not a process of this node"


def test_evidence_of_a_node_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path,
) -> None:
    with coordinating(tmp_path) as made, process(SLEEP) as own:
        made.peers.answers_evidence = False
        made.start(own.pid)
        made.reports(dead(3))
        assert made.look_until(JobAction.RESTART, JobAction.STOP) is JobAction.RESTART


def test_the_job_is_over_by_word_to_all_nodes_only(tmp_path: Path) -> None:
    """Ranks here may exit between a look and the agent's own: that is no end of the job."""
    with coordinating(tmp_path) as made, process(SLEEP) as own:
        made.start(own.pid)
        made.reports(a_rank(1, host="b"))
        assert {made.watch.look() for _ in range(3)} == {JobAction.HOLD}
        assert made.peers.orders == []


def test_a_node_that_is_done_holds_until_the_others_are(tmp_path: Path) -> None:
    with coordinating(tmp_path) as made, process("pass") as own:
        made.start(own.pid)
        made.reports(a_rank(1, host="b"))
        own.wait()
        assert made.look_until(JobAction.HOLD) is JobAction.HOLD
        assert made.peers.orders == []
        made.reports(dead(0))
        assert made.look_until(JobAction.KEEP_RUNNING) is JobAction.KEEP_RUNNING
        assert made.peers.orders[0][0].action == "done"


def test_replicas_on_several_nodes_are_compared(tmp_path: Path) -> None:
    with coordinating(tmp_path) as made, process(SLEEP) as own:
        made.start(own.pid)
        made.reports(a_rank(1, host="b"))
        digest = {"kind": "replica-digest", "step": 20, "members": "m", "ranks": [0, 1],
                  "layout": "l", "parts": ["w"], "device": "H200"}  # fmt: skip
        made.watch.observer.add_event(0, {**digest, "number": 0, "digest": "1" * 8})
        made.peers.events = [(1, {**digest, "number": 1, "digest": "2" * 8})]
        wait_until(lambda: bool(made.watch.look() and "replica-mismatch" in made.screen.getvalue()))
        said = made.screen.getvalue()
        assert "replicas differ on ranks 0-1 (which is wrong is undecided" in said
        assert "at step 20: in w; no earlier check found them equal" in said


def test_events_of_ranks_elsewhere_are_the_jobs(tmp_path: Path) -> None:
    with coordinating(tmp_path) as made, process(SLEEP) as own:
        made.start(own.pid)
        made.reports(a_rank(1, host="b"))
        made.peers.events = [
            (1, {"kind": "saved", "step": 7, "path": "/c/7", "bytes": 1, "stall": 0, "seconds": 0})
        ]
        wait_until(lambda: bool(made.watch.look() and made.watch.observer.events.account.saves))
        assert made.watch.observer.events.account.saves[-1].path == "/c/7"
        assert msgspec.structs.asdict(made.watch.end_record(0))["steps"] == 100
