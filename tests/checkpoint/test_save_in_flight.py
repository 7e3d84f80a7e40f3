"""`ckpt.save()` on all ranks: each call is a question of its own, and all ranks answer the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.messages import SaveAnswer, SaveFailure
from holdfast.checkpoint.saver import Saver
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, EnvironmentFailure
from tests.checkpoint.thread_ranks import ThreadRanks


def saved_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """At the end of an epoch and of the training, at one step; rank 0 comes late each time."""
    asked = [threading.Event(), threading.Event()]

    def rank(number: int) -> list[bool]:
        answers = []
        with Checkpoint(folder, State(note=number, per_rank=("note",)), every="1h") as ckpt:
            ckpt.step()
            for event in asked:
                if number == 0:
                    assert event.wait(20)
                    event.wait(0.3)  # until rank 1 has looked for an answer that is not there yet
                else:
                    event.set()
                answers.append(ckpt.save())
            assert ckpt.last_committed == (1 if answers[-1] else None)
        return answers

    return ThreadRanks(2, monkeypatch).run(rank)


def test_two_saves_at_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_twice(tmp_path, monkeypatch) == [[True, True], [True, True]]
    left = {path.name for path in tmp_path.iterdir()} - {".holdfast-lock"}
    assert left == {"step-000000001"}


def test_a_second_try_at_the_same_step_after_the_first_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, answers = Saver.outcome, []

    def outcome(self: Saver, timeout: float | None = 0.0) -> SaveAnswer | None:
        answer = real(self, timeout)
        if answer is not None and answer.committed is not None:
            answers.append(answer)
            if len(answers) == 1:
                (tmp_path / "step-000000001").rename(tmp_path / "gone")
                full = SaveFailure(step=1, errno=28, what="No space left", where=str(tmp_path))
                return SaveAnswer(failed=full)
        return answer

    monkeypatch.setattr(Saver, "outcome", outcome)
    assert saved_twice(tmp_path, monkeypatch) == [[False, True], [False, True]]
    assert (tmp_path / "step-000000001" / "rank-1.json").exists()


def test_a_save_at_another_step_than_rank_0_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Saver, "save", lambda *_, **__: None)  # else rank 0 waits for rank 1

    def rank(number: int) -> str:
        with Checkpoint(tmp_path, State(), every="1h") as ckpt:
            ckpt.state.step = 5 - number
            try:
                ckpt.save()
            except ConfigError as problem:
                return problem.sentence
        return ""

    said = ThreadRanks(2, monkeypatch).run(rank)
    assert said[1] == "ckpt.save() was called at step 4 on rank 1, and at step 5 on rank 0"


def test_a_save_of_rank_0_alone_does_not_confuse_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rank(number: int) -> bool:
        with Checkpoint(tmp_path, State(), every="1h") as ckpt:
            ckpt.state.step = 1
            if number == 0:
                with monkeypatch.context() as patched:
                    patched.setattr(Saver, "save", lambda *_, **__: None)
                    assert not ckpt.save()
            ckpt.state.step = 2
            return ckpt.save()

    assert ThreadRanks(2, monkeypatch).run(rank) == [True, True]


def test_a_folder_that_rank_0_cannot_take_fails_on_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.checkpoint.lock.PATIENCE", 0.0)
    other = FolderLock(str(tmp_path))
    other.take()

    def rank(_: int) -> str:
        ckpt = Checkpoint(tmp_path, State(), every="1h")
        try:
            ckpt.save()
        except EnvironmentFailure as problem:
            return problem.sentence
        return ""

    try:
        said = ThreadRanks(2, monkeypatch).run(rank)
    finally:
        other.release()
    assert said[0] == said[1] != ""
