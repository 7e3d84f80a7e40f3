"""What is said of a verdict whose action ends the ranks that its fix is a command for."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import msgspec
import pytest

from holdfast.analysis.job.journal_records import JudgementRecord, VerdictRecord
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import by_slug
from holdfast.findings import Verdict
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import verdict
from holdfast.run.watch.reporter import Reporter
from holdfast.view.run_screen import Screen
from tests.run.scenes import a_beat, a_rank, a_scene, an_activity, ended, held_up

STUCK = held_up({2: {}})
FROZEN = held_up({2: {"activity": an_activity(state="T"), "state_since": 0.0}})
KEPT = "see the stacks and flight recorders in /r/evidence-0"


def judged(*, action: str, evidence: str = "/r/evidence-0", found: Verdict | None = None) -> str:
    """The help on the screen, which is also the journal's; '' when there is none."""
    screen, journal = io.StringIO(), Journal(None)
    found = found or verdict.judge(STUCK)
    assert found is not None
    reporter = Reporter(journal, Screen(screen), "node-a", None)
    reporter.judgement(found, STUCK, action=action, steps=1, evidence=evidence)
    (record,) = journal.records()
    assert isinstance(record, JudgementRecord)
    shown = re.findall(r"help: (.*)", screen.getvalue())
    brief = "notice[HOLD606] waiting: " in screen.getvalue()
    assert shown == [record.fix] * bool(record.fix and not brief)
    assert brief == (not action and found.slug == "rank-stuck"), "no rank is called stuck too early"
    return record.fix


def test_a_notice_advises_to_look_at_the_process() -> None:
    assert judged(action="") == "see which line it is in: `py-spy dump --pid 4002`"


def test_a_verdict_that_ends_it_points_to_what_was_kept() -> None:
    assert judged(action="restarting (1 of 3)") == KEPT
    assert judged(action="restarting (1 of 3)", evidence="") == ""


def test_what_still_helps_is_kept() -> None:
    frozen = verdict.judge(FROZEN)
    assert frozen is not None
    assert frozen.slug == "rank-frozen"
    assert judged(action="", found=frozen) == "let it continue: `kill -CONT 4002`"
    after = judged(action="restarting (1 of 3)", found=frozen)
    assert after.startswith(f"{KEPT}; find out who sent SIGSTOP")


@pytest.mark.parametrize("action", ["", "restarting (1 of 3)"])
def test_a_fix_for_a_rank_that_has_ended_stays(action: str) -> None:
    """A core dump is looked at by the pid of a dead rank."""
    crashed = verdict.judge(a_scene([ended(0, -11), ended(1, 1)]))
    assert crashed is not None
    assert "4000" in crashed.fix
    assert judged(action=action, found=crashed) == crashed.fix


def at_steps(steps: Sequence[int], at: float) -> Scene:
    return a_scene(
        [a_rank(rank, beat=a_beat(steps=taken)) for rank, taken in enumerate(steps)], now=at
    )


def test_a_step_in_another_world_does_not_end_a_stall() -> None:
    """Ranks 0-1 form one world and train on; 2 sleeps, and 3 waits for it."""
    screen = io.StringIO()
    reporter = Reporter(Journal(None), Screen(screen), "node-a", None)
    stuck = verdict.judge(STUCK)
    assert stuck is not None
    found = msgspec.structs.replace(stuck, victims=(3,))
    steps = [10, 10, 5, 5]
    for at, moved in enumerate([(), (0, 1), (0, 1)]):
        steps = [count + (rank in moved) for rank, count in enumerate(steps)]
        reporter.progress(at_steps(steps, at), max(steps), [])
        reporter.noticed(found)
        reporter.remember_stall(found)
    assert "training continues" not in screen.getvalue()
    assert reporter.stall == found
    steps[3] += 1
    reporter.progress(at_steps(steps, 9.0), max(steps), [])
    assert "training continues: step 12" in screen.getvalue()
    assert reporter.stall is None


# --- told to stop ---------------------------------------------------------------------------------


def told_to_stop(sign: str, *, after: Verdict | None, steps_since: bool = False) -> VerdictRecord:
    """What the journal holds; the screen has one line with the same reason."""
    screen, journal = io.StringIO(), Journal(None)
    reporter = Reporter(journal, Screen(screen), "node-a", None)
    reporter.remember_stall(after)
    if steps_since:
        reporter.progress(a_scene([], now=1.0), 5, [])
    scene = a_scene(told_to_stop=sign)
    order = verdict.judge(scene)
    assert order is not None
    reporter.told_to_stop(order, scene, steps=1)
    record = journal.records()[-1]
    assert isinstance(record, VerdictRecord)
    assert record.stopped_by == sign
    assert screen.getvalue().count("\n") == 1
    assert record.reason in screen.getvalue()
    return record


def test_a_signal_during_a_stall_leaves_the_stall_as_the_cause() -> None:
    stall = verdict.judge(STUCK)
    record = told_to_stop("SIGTERM", after=stall)
    assert (record.slug, record.ranks) == ("rank-stuck", (2,))
    assert "py-spy" not in record.fix, "that process is ended now"


def test_a_stall_that_is_over_has_nothing_to_do_with_a_signal() -> None:
    record = told_to_stop("SIGINT", after=verdict.judge(STUCK), steps_since=True)
    assert (record.slug, record.ranks, record.reason) == (
        "external-sigterm",
        (),
        "stopped by Ctrl-C",
    )


def test_a_notice_that_is_no_stall_is_not_remembered() -> None:
    slow = by_slug("slow-rank").verdict("rank 1 is slow", ranks=[1], victims=[0], certain=False)
    assert told_to_stop("SIGTERM", after=slow).slug == "external-sigterm"
    assert told_to_stop("SIGTERM", after=None).slug == "external-sigterm"
