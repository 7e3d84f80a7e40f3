"""The watcher with real small processes, no torch: deaths, rests, words, endings."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import catalogue
from holdfast.analysis.job import pace
from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.scene.scene import Policy, Scene, SurvivingProcess
from holdfast.findings import Verdict
from holdfast.rank import heartbeat_page
from holdfast.run.launch.exit_codes import STOPPED_BY_VERDICT
from holdfast.run.launch.places import RunPlaces
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import resume_tracker, transport
from holdfast.run.watch import watch as job_watch
from holdfast.run.watch.interface import JobAction
from holdfast.run.watch.watch import Watch
from holdfast.system import activity
from holdfast.view import run_screen
from holdfast.view.run_screen import Screen
from tests.cli.holdfast_command import wait_until
from tests.cli.jobs import DDP, job
from tests.run.journals import as_written
from tests.run.watched import SLEEP, process

ENDINGS = {
    "code": ("import sys; sys.exit(3)", "python-exception", 3),
    "kill": ("import os; os.kill(os.getpid(), 9)", "rank-killed", 137),
    "crash": ("import os; os.kill(os.getpid(), 11)", "native-crash", 139),
}


class Watching:
    def __init__(self, folder: Path, *, max_restarts: int = 1) -> None:
        self.paths = RunPaths(str(folder), "run")
        os.makedirs(self.paths.folder)
        self.places = RunPlaces(self.paths, lambda news: None)
        self.journal = Journal(self.paths.journal, writer=self.places.writer)
        self.screen = io.StringIO()
        self.watch = Watch(
            policy=Policy(patience=None, max_restarts=max_restarts, restarts_typed=True),
            journal=self.journal,
            screen=Screen(self.screen),
            places=self.places,
            memory_kills=lambda: 0,
        )

    def start(self, *pids: int, attempt: int = 0) -> None:
        for rank in range(len(pids)):
            self.watch.rank_environment(rank, {"TORCHELASTIC_RESTART_COUNT": str(attempt)})
        self.watch.ranks_started(attempt, dict(enumerate(pids)))

    def look_until(self, *wanted: JobAction) -> JobAction:
        """As the agent does: the first of these that it answers."""
        seen = [JobAction.KEEP_RUNNING]

        def looked() -> bool:
            seen.append(self.watch.look())
            return seen[-1] in wanted

        wait_until(looked)
        return seen[-1]

    def page(self, rank: int) -> heartbeat_page.HeartbeatPage:
        return heartbeat_page.HeartbeatPage(self.watch.observer.pages[rank][1])

    def kinds(self, *without: str) -> list[str]:
        return [r["kind"] for r in self.records() if r["kind"] not in without]

    def records(self) -> list[dict[str, Any]]:
        return as_written(self.journal.records())


@contextlib.contextmanager
def watching(folder: Path, *, max_restarts: int = 1) -> Iterator[Watching]:
    made = Watching(folder, max_restarts=max_restarts)
    try:
        yield made
    finally:
        made.watch.ranks_stopped()
        made.watch.close()
        assert made.places.close() == ""
        made.journal.close()


@pytest.mark.parametrize(("text", "slug", "code"), ENDINGS.values(), ids=list(ENDINGS))
def test_a_rank_that_ends_badly_is_named_and_the_group_restarted(
    tmp_path: Path, text: str, slug: str, code: int
) -> None:
    with watching(tmp_path) as made, process(SLEEP) as well, process(text) as ill:
        made.start(well.pid, ill.pid)
        assert made.look_until(JobAction.RESTART, JobAction.STOP) is JobAction.RESTART
        records = made.records()
        assert [r["kind"] for r in records] == [
            "rank", "rank", "rank", "evidence", "verdict", "action",
        ]  # fmt: skip
        assert (records[2]["rank"], records[2]["what"]) == (1, "exited")
        assert (records[4]["slug"], records[4]["ranks"], records[4]["victims"]) == (slug, [1], [0])
        assert made.watch.culprits() == frozenset({1})
        assert made.watch.exit_code() == code
        assert Path(made.paths.stack(0, 0, 0)).exists()
        assert not Path(made.paths.stack(0, 0, 1)).exists()


def test_without_restarts_left_it_stops(tmp_path: Path) -> None:
    with watching(tmp_path, max_restarts=0) as made, process("import sys; sys.exit(3)") as ill:
        made.start(ill.pid)
        assert made.look_until(JobAction.RESTART, JobAction.STOP) is JobAction.STOP
        assert made.watch.exit_code() == 3
        assert made.records()[-1]["action"] == "stop"


def test_ranks_that_end_well_are_nobodys_business(tmp_path: Path) -> None:
    with watching(tmp_path) as made, process("pass") as one, process("pass") as other:
        made.start(one.pid, other.pid)
        for _ in range(2):
            wait_until(
                lambda: (
                    made.watch.look() is JobAction.KEEP_RUNNING and made.kinds().count("rank") == 4
                )
            )
        assert made.kinds() == ["rank"] * 4


def test_a_rank_that_raised_is_heard_before_its_process_is_gone(tmp_path: Path) -> None:
    """Python takes seconds to come apart where torch is loaded; evidence is taken at once, and
    its atexit handlers get their time."""
    with watching(tmp_path) as made, process(SLEEP) as raised, process(SLEEP) as waiting:
        made.start(raised.pid, waiting.pid)
        assert made.watch.look() is JobAction.KEEP_RUNNING
        words = {"kind": "ValueError", "text": "no data", "where": "a.py:1", "at": time.monotonic()}
        path = Path(made.places.local.paths.last_words(0, 0))
        path.write_text(json.dumps(words))
        began = time.monotonic()
        assert made.look_until(JobAction.HOLD) is JobAction.HOLD
        assert made.kinds("rank") == ["evidence"]
        heard = [r for r in made.records() if r.get("what") == "raised"]
        assert [r["rank"] for r in heard] == [0]
        assert made.look_until(JobAction.RESTART) is JobAction.RESTART
        assert time.monotonic() - began >= job_watch.UNWIND
        verdict = next(r for r in made.records() if r["kind"] == "verdict")
        assert (verdict["slug"], verdict["ranks"]) == ("python-exception", [0])
        assert made.watch.exiting() == {0}
        assert made.watch.culprits() == frozenset(), "its exit handlers may run to the end"
        assert made.watch.exit_code() == 1
        raised.kill()
        raised.wait()
        made.watch.ranks_stopped()
        assert made.watch.exit_code() == 1


def test_after_a_late_look_all_clocks_start_again(tmp_path: Path) -> None:
    """A frozen rank is named; but not when we were frozen with it."""
    with watching(tmp_path) as made, process(SLEEP) as child:
        made.start(child.pid)
        made.watch.look()
        rank = made.watch.observer.ranks[0]
        rank.alive_at = rank.state_since = 0.0
        made.watch.progress.restart_timers(0.0)
        made.watch.clock.done(time.monotonic() - 20)
        assert made.watch.look() is JobAction.KEEP_RUNNING
        now = time.monotonic()
        for clock in (rank.alive_at, rank.state_since, made.watch.stalls.timers_since):
            assert now - clock < 10


@pytest.mark.parametrize("others_go_on_for", [0.0, 60.0], ids=["stalled", "running ahead"])
def test_a_frozen_rank_is_named_whether_or_not_the_others_still_step(
    tmp_path: Path, others_go_on_for: float
) -> None:
    with watching(tmp_path) as made, process(SLEEP) as frozen, process(SLEEP) as other:
        made.start(frozen.pid, other.pid)
        for rank in (0, 1):
            page = made.page(rank)
            page.announce(made.watch.observer.ranks[rank].pid)
            ahead = int(others_go_on_for * 1e9) if rank else 0
            page.step(50, at=time.monotonic_ns() + ahead, usual=50_000_000)
            page._words.release()
        os.kill(frozen.pid, signal.SIGSTOP)
        wait_until(lambda: (now := activity.read(frozen.pid)) is not None and now.state == "T")
        began = time.monotonic()
        assert made.look_until(JobAction.RESTART) is JobAction.RESTART
        assert time.monotonic() - began >= 3
        verdicts = [r for r in made.records() if r["kind"] == "verdict"]
        assert [(v["slug"], v["ranks"]) for v in verdicts] == [("rank-frozen", [0])]
        assert made.watch.exit_code() == STOPPED_BY_VERDICT
        assert made.watch.culprits() == {0}, "without grace: it is stopped"


def test_told_to_stop_is_journalled(tmp_path: Path) -> None:
    with watching(tmp_path) as made, process(SLEEP) as child:
        made.start(child.pid)
        made.watch.look()
        made.watch.told_to_stop(signal.SIGTERM)
        last = made.records()[-1]
        assert (last["kind"], last["action"], last["reason"]) == ("action", "stop", "SIGTERM")


def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with watching(tmp_path) as made, process(SLEEP) as child:
        made.start(child.pid)
        made.watch.look()
        sockets = made.places.local.path
        assert os.path.isdir(sockets)
    assert not os.path.exists(sockets)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_bug_in_one_part_costs_that_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are counted, a death is named and evidence kept, whatever else is broken."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("nobody")

    monkeypatch.setattr(run_screen, "status", broken)
    monkeypatch.setattr(activity, "read_many", broken)
    monkeypatch.setattr(transport, "look", broken)
    monkeypatch.setattr(resume_tracker, "track", broken)
    with watching(tmp_path) as made, process(SLEEP) as well, process(SLEEP) as ill:
        made.start(well.pid, ill.pid)
        Path(made.places.local.paths.events(0, 0)).write_text('{"kind": "saved", "step": 3}\n')
        page = made.page(0)
        page.announce(well.pid)
        page.step(1, at=time.monotonic_ns(), usual=0)
        wait_until(lambda: made.watch.look() and made.kinds().count("own-fault") == 3)
        assert "rank-event" in made.kinds()
        os.killpg(ill.pid, signal.SIGKILL)
        assert made.look_until(JobAction.RESTART) is JobAction.RESTART
        page._words.release()
        (verdict,) = (r for r in made.records() if r["kind"] == "verdict")
        assert (verdict["slug"], verdict["ranks"], verdict["steps"]) == ("rank-killed", [1], 1)
        failed = [r["face"] for r in made.records() if r["kind"] == "own-fault"]
        assert sorted(failed) == [
            "evidence", "the kernel's counters", "the note of progress", "the status line",
        ]  # fmt: skip
    assert made.screen.getvalue().count("the status line failed: a bug in holdfast") == 1


def test_a_bug_of_our_own_is_said_once_and_the_job_is_watched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_scene: Scene) -> Verdict | None:
        raise KeyError("nobody")

    monkeypatch.setattr(catalogue.by_slug("slow-rank"), "run_faces", [broken])
    with watching(tmp_path) as made, process(SLEEP) as well, process(ENDINGS["code"][0]) as ill:
        made.start(well.pid, ill.pid)
        for _ in range(3):
            made.watch._decide(made.watch._scene(time.monotonic()))
        assert made.look_until(JobAction.RESTART) is JobAction.RESTART
        (own,) = (r for r in made.records() if r["kind"] == "own-fault")
        assert (own["slug"], own["exception"]) == ("slow-rank", "KeyError: 'nobody'")
        assert made.screen.getvalue().count("a bug in holdfast") == 1
        assert made.kinds("rank")[-1] == "action"


def test_what_outlived_its_rank_is_a_line_and_a_notice_that_blames_nobody(tmp_path: Path) -> None:
    helper = SurvivingProcess(rank=1, pid=4711, name="sh")
    with watching(tmp_path) as made, process(SLEEP) as rank:
        made.start(rank.pid)
        made.watch.outlived([helper], ended=True)
        made.watch.outlived([helper], ended=False)
        notice, left = made.records()[-2:]
        assert (notice["kind"], notice["slug"], notice["ranks"]) == (
            "notice",
            "orphaned-workers",
            [],
        )
        assert (left["kind"], left["pids"]) == ("left", [4711])
        said = [line.removeprefix("holdfast> rank 1's child sh (pid 4711) ")
                for line in made.screen.getvalue().splitlines()]  # fmt: skip
        end = "is still running; left alone because the job ended well"
        output = "further output goes to the log of its rank only"
        assert said[-2:] == ["outlived it and was ended", f"{end}; {output}"]


def test_a_crash_is_told_with_the_kernels_words_or_with_the_gap(tmp_path: Path) -> None:
    crash = (
        "import ctypes, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "print('here', flush=True)\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        "ctypes.string_at(0)\n"
    )
    with watching(tmp_path) as made, process(SLEEP) as well, process(crash) as ill:
        made.start(well.pid, ill.pid)
        assert made.watch.look() is JobAction.KEEP_RUNNING
        assert made.watch.observer.kernel_events == ()
        ill.send_signal(signal.SIGUSR1)
        made.look_until(JobAction.RESTART)
        screen = made.screen.getvalue()
        assert f"[{ill.pid}]: segfault" in screen or "kernel log not readable" in screen


def test_a_machine_that_slept_is_no_fault(tmp_path: Path) -> None:
    """Everything is stopped for longer than a frozen rank is given, the launcher too."""
    with job(tmp_path, "--nproc-per-node", "2", "--patience", "8", str(DDP), "60") as running:
        wait_until(lambda: bool(running.records("progress")), seconds=90)
        everybody = [running.process.pid, *running.pids()]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        woken = time.monotonic() + 5
        wait_until(lambda: time.monotonic() > woken)
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        assert running.finish() == 0, running.err
        assert running.said() == []
        assert running.actions() == []


def test_a_stall_of_hours_is_looked_at_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here an hour passes in a thousand ticks."""
    with watching(tmp_path) as made, process(SLEEP) as child:
        made.start(child.pid)
        now = made.watch.observer.started_at
        taken: list[float] = []
        monkeypatch.setattr(
            made.watch.observer, "take_evidence", lambda *_, **__: taken.append(now)
        )
        for _ in range(1000):
            now += 3.6
            made.watch.observer.evidence_at = taken[-1] if taken else 0.0
            made.watch._with_evidence(made.watch._scene(now))
        gaps = [later - before for before, later in itertools.pairwise(taken)]
        assert gaps[0] == pytest.approx(3.6)
        assert pace.LOOK_AT_LEAST <= gaps[-1] <= pace.LOOK_AT_LEAST + 3.6
        assert len(taken) < 100
