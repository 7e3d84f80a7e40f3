"""A job of several ranks saves, ends, and resumes: real writers, real folders."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.analysis.checkpoints.manifest import MANIFEST, decode
from holdfast.checkpoint import staging
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.compare import Accept
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.memory_room import NoRoomError
from holdfast.checkpoint.messages import SaveAnswer, SaveFailure
from holdfast.checkpoint.sampler import Sampler
from holdfast.checkpoint.saver import Saver
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, EnvironmentFailure, ResumeRefused
from tests.checkpoint.thread_ranks import ThreadRanks, job


def launch(
    monkeypatch: pytest.MonkeyPatch, size: int, folder: Path, steps: int, **options: Any
) -> list[dict[str, Any]]:
    return ThreadRanks(size, monkeypatch).run(job(folder, steps, **options))


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name[5:14]) for path in folder.glob("step-*"))


def test_every_rank_resumes_with_its_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = launch(monkeypatch, 3, tmp_path, 5)
    assert [(r["first"], r["safe"], r["last"]) for r in first] == [(0, True, 5)] * 3
    again = launch(monkeypatch, 3, tmp_path, 0)
    assert [(r["first"], r["note"]) for r in again] == [(5, 0), (5, 1), (5, 2)]
    assert all(torch.equal(r["weights"], first[0]["weights"]) for r in again)
    said = capfd.readouterr().err
    assert f"no checkpoint in {tmp_path}: starting at step 0" in said
    assert f"resumed at step 5 from {tmp_path}/step-000000005" in said


def test_what_fewer_ranks_leave_behind_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 3, tmp_path, 2)
    assert "the data position is not in the checkpoint" not in capfd.readouterr().err
    launch(monkeypatch, 1, tmp_path, 0, accept="world-size")
    said = capfd.readouterr().err
    assert said.count("not used, as this job has world size 1: note of ranks 1-2\n") == 1
    assert said.count("the data position is not in the checkpoint (State has no data=)") == 1


def test_the_manifest_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, 2, tmp_path, 3, config={"lr": 0.1, "api_key": "hush"})
    text = (tmp_path / "step-000000003" / MANIFEST).read_bytes()
    manifest = decode(text)
    assert (manifest.step, manifest.world_size, manifest.kind) == (3, 2, "plain")
    assert manifest.config["lr"] == "0.1"
    assert b"hush" not in text
    assert {entry.name for entry in manifest.files} == {
        "rank-0.safetensors", "rank-0.json", "rank-1.json",
    }  # fmt: skip


def test_steps_saved_on_the_way_are_the_multiples_and_only_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = launch(monkeypatch, 2, tmp_path, 30, every_steps=5, keep=2)
    assert ends[0]["last"] == 30
    assert len(steps_in(tmp_path)) == 2


@pytest.mark.parametrize("victim", ["rank-0.safetensors", "rank-1.json", MANIFEST])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 2, tmp_path, 2)
    launch(monkeypatch, 2, tmp_path, 2)
    newest = tmp_path / "step-000000004" / victim
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    again = launch(monkeypatch, 2, tmp_path, 0)
    assert [r["first"] for r in again] == [2, 2]
    why = (tmp_path / "damaged" / "step-000000004" / "why.txt").read_text()
    assert victim in why
    assert f"skipped checkpoint {newest.parent}: {why.strip()}; moved to" in capfd.readouterr().err


def test_another_number_of_ranks_is_refused_with_how_to_accept_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, 2, tmp_path, 2)
    with pytest.raises(ConfigError, match="saved by 2 ranks, this job has 3") as refused:
        launch(monkeypatch, 3, tmp_path, 0)
    assert "HOLDFAST_ACCEPT=world-size" in refused.value.hint
    again = launch(monkeypatch, 3, tmp_path, 0, accept={"world-size"})
    assert [r["first"] for r in again] == [2, 2, 2]
    monkeypatch.setenv("HOLDFAST_ACCEPT", "world-size")
    assert launch(monkeypatch, 1, tmp_path, 0)[0]["first"] == 2


def test_another_configuration_is_refused_by_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, 1, tmp_path, 2, config={"lr": 0.1, "layers": 2})
    with pytest.raises(ConfigError, match=r"lr: 0\.1 then, 0\.2 now") as refused:
        launch(monkeypatch, 1, tmp_path, 0, config={"lr": 0.2, "layers": 2})
    assert "layers" not in str(refused.value)
    launch(monkeypatch, 1, tmp_path, 0, config={"lr": 0.2, "layers": 2}, accept="config")


def test_another_model_is_always_refused_by_the_tensor_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, 1, tmp_path, 2)
    monkeypatch.setattr(
        "tests.checkpoint.thread_ranks.small_model",
        lambda: ((m := torch.nn.Linear(4, 3)), torch.optim.AdamW(m.parameters())),
    )
    with pytest.raises(ConfigError, match=r"model\.weight: float32 \[2, 4\] then"):
        launch(monkeypatch, 1, tmp_path, 0, accept={"config", "world-size"})


def test_a_second_job_in_the_same_folder_is_refused_on_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr("holdfast.checkpoint.lock.PATIENCE", 0.0)
    other = FolderLock(str(tmp_path))
    other.take()
    failed: list[str] = []
    work = job(tmp_path, 0)

    def rank(number: int) -> None:
        try:
            work(number)
        except EnvironmentFailure as problem:
            failed.append(problem.sentence)

    try:
        ThreadRanks(2, monkeypatch).run(rank)
    finally:
        other.release()
    assert len(failed) == 2
    assert all(f"pid {os.getpid()}" in sentence for sentence in failed)


def test_a_full_disk_is_reported_once_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A real full disk is in test_writer_disks.py: here is what a job makes of the answer."""
    real, full = Saver.outcome, [True]

    def outcome(self: Saver, timeout: float | None = 0.0) -> SaveAnswer | None:
        answer = real(self, timeout)
        if answer is None or answer.committed is None or not full[0]:
            return answer
        what = "No space left on device"
        step = answer.committed.step
        return SaveAnswer(failed=SaveFailure(step=step, errno=28, what=what, where=str(tmp_path)))

    monkeypatch.setattr(Saver, "outcome", outcome)
    ends = launch(monkeypatch, 2, tmp_path, 30, every_steps=3)
    assert [(r["safe"], r["last"]) for r in ends] == [(False, None)] * 2
    said = capfd.readouterr().err
    assert said.count("was not saved: No space left on device (ENOSPC)") == 1
    full[0] = False
    assert launch(monkeypatch, 2, tmp_path, 3, every_steps=3)[0]["safe"]


def test_without_memory_for_a_copy_the_rank_writes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def none(self: staging.StagingBuffer, size: int, gpu: torch.device | None = None) -> None:
        raise NoRoomError("a copy of the state takes 9 GiB, 1 GiB are free")

    with monkeypatch.context() as patched:
        patched.setattr(staging.StagingBuffer, "reserve", none)
        first = launch(monkeypatch, 2, tmp_path, 4)
    assert all(r["safe"] for r in first)
    assert capfd.readouterr().err.count("training pauses while a checkpoint is written") == 2
    again = launch(monkeypatch, 2, tmp_path, 0)
    assert [r["first"] for r in again] == [4, 4]
    assert torch.equal(again[1]["weights"], first[0]["weights"])


def test_what_cannot_be_saved_is_refused_in_the_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    state = State(best=0.0)
    with Checkpoint(tmp_path, state, every="1h") as ckpt:
        ckpt.step()
        state.extras["best"] = object()
        with pytest.raises(ConfigError, match="best"):
            ckpt.step()


def test_a_requested_save_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = threading.Event()

    def rank(number: int) -> int | None:
        with Checkpoint(tmp_path, State(), every="2h") as ckpt:
            if number == 1:
                ckpt.request_save()
                requested.set()
            assert requested.wait(10)
            for _ in range(200):
                ckpt.step()
        return ckpt.last_committed

    assert ThreadRanks(2, monkeypatch).run(rank)[0] in steps_in(tmp_path)
    assert len(steps_in(tmp_path)) == 1


def test_rank_0_reports_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    def tell(kind: str, **fields: Any) -> None:
        told.append({"kind": kind, **json.loads(json.dumps(fields))})

    monkeypatch.setattr("holdfast.checkpoint.save_log.tell", tell)
    monkeypatch.setattr("holdfast.checkpoint.resume.tell", tell)
    launch(monkeypatch, 2, tmp_path, 2, every_steps=1000)
    launch(monkeypatch, 2, tmp_path, 0)
    assert [(event["kind"], event["step"]) for event in told] == [
        ("resume", 0), ("saved", 2), ("resume", 2),
    ]  # fmt: skip
    assert told[2]["saved_world"] == 2
    assert told[1]["path"] == str(tmp_path / "step-000000002")


def trained_on(folder: Path, *, step_inside: bool) -> None:
    """A loop over micro-batches: `ckpt.step()` after each of them, or after the last of a batch."""
    sampler = Sampler(8, global_batch_size=4, micro_batch_size=2, rank=0, world_size=1)
    with Checkpoint(folder, State(data=sampler), every="1h") as ckpt:
        for _ in sampler.follow(sampler):
            if sampler.is_last_micro_batch or step_inside:
                ckpt.step()


def test_a_step_inside_a_global_batch_is_warned_about_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trained_on(tmp_path / "wrong", step_inside=True)
    said = capfd.readouterr().err
    assert said.count("inside a global batch") == 1
    assert "if sampler.is_last_micro_batch: optimizer.step()" in said
    trained_on(tmp_path / "right", step_inside=False)
    assert capfd.readouterr().err == ""


def test_accumulation_without_our_sampler_is_not_our_business(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Checkpoint(tmp_path, State(data=torch.nn.Linear(1, 1)), every="1h") as ckpt:
        ckpt.step()
    assert capfd.readouterr().err == ""


def test_changed_data_is_refused_unless_accepted(tmp_path: Path) -> None:
    def start(length: int, *accept: Accept) -> Sampler:
        sampler = Sampler(length, global_batch_size=4, micro_batch_size=2, rank=0, world_size=1)
        with Checkpoint(tmp_path, State(data=sampler)) as ckpt:
            ckpt.resume(accept=accept)
            for _ in sampler.follow(sampler):
                if sampler.is_last_micro_batch:
                    ckpt.step()
                    break
            assert ckpt.save()
        return sampler

    assert start(16).position == 1
    with pytest.raises(ResumeRefused, match="length was 16 and is 20") as refused:
        start(20)
    assert refused.value.slugs == ("data-position-lost",)
    assert 'resume(accept={"data"})' in refused.value.hint
    assert start(20, "data").position == 1, "its epoch started from the beginning"
    assert start(20).position == 2
