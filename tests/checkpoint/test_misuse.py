"""Mistakes in a script are told at its first steps, not at its first resume."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.checkpoint import message_board, misuse, sync_points
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.sampler import Sampler
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, ResumeRefused
from tests.checkpoint.thread_ranks import ThreadRanks, small_model, train


def small_sampler() -> Sampler:
    return Sampler(8, global_batch_size=4, micro_batch_size=2, rank=0, world_size=1)


def test_a_run_that_does_not_resume_is_refused_beside_checkpoints(tmp_path: Path) -> None:
    def run(*, resume: bool, start: int = 0) -> None:
        with Checkpoint(tmp_path, State(), every="1h") as ckpt:
            ckpt.state.step = start
            if resume:
                ckpt.resume()
            ckpt.step()
            assert ckpt.save()

    run(resume=False)
    run(resume=True)
    with pytest.raises(ConfigError, match=r"up to step 2, and this run starts at step 0 without"):
        run(resume=False)
    run(resume=False, start=2)  # a script that restores by itself


def test_a_bare_number_of_seconds_cannot_be_taken_for_steps(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Checkpoint(tmp_path, State(), every=10).close()
    told = capfd.readouterr().err
    assert 'every=10 means 10 seconds: write every="10s", or every_steps=10' in told
    Checkpoint(tmp_path, State(), every="10s").close()
    Checkpoint(tmp_path, State(), every_steps=10).close()
    assert "seconds" not in capfd.readouterr().err


def test_a_loader_that_is_not_followed_is_refused_at_the_first_step(tmp_path: Path) -> None:
    sampler = small_sampler()
    with Checkpoint(tmp_path, State(data=sampler), every="1h") as ckpt:
        for _ in sampler:
            with pytest.raises(ResumeRefused, match=r"iterate with sampler\.follow\(loader\)"):
                ckpt.step()
            break


def test_a_sampler_that_is_not_iterated_is_reported_at_the_first_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Checkpoint(tmp_path, State(data=small_sampler()), every="1h") as ckpt:
        for _ in range(3):
            ckpt.step()
    assert capfd.readouterr().err.count("was given is not iterated: make the loader with") == 1


@pytest.mark.parametrize(
    ("environment", "state", "said"),
    [
        ({"HOLDFAST_NODES": "2:4"}, {}, "the data position is unknown; use State(data="),
        ({"HOLDFAST_NODES": "2:4"}, {"data": torch.nn.Linear(1, 1)}, "position is saved per rank"),
        ({"HOLDFAST_NODES": "2:4"}, {"data": small_sampler()}, ""),
        ({"HOLDFAST_NODES": "2:4", "HOLDFAST_ACCEPT": "world-size"}, {}, ""),
        ({}, {}, ""),
        (
            {"HOLDFAST_NODES": "2:4"},
            {"model": torch.nn.Linear(1, 1), "per_rank": ("model",)},
            "each rank saves its own model; use a fixed --nnodes",
        ),
    ],
)
def test_a_state_that_fits_no_other_number_of_ranks_is_named_where_it_may_change(
    environment: dict[str, str],
    state: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with Checkpoint(tmp_path, State(**state), every="1h") as ckpt:
        for _ in range(3):
            ckpt.step()
    told = capfd.readouterr().err
    assert told.count("the number of ranks may change") == bool(said)
    assert said in told


@pytest.mark.parametrize(
    ("calls", "optimizer_steps", "is_wrong"),
    [(20, 20, False), (20, 17, False), (20, 11, False), (20, 10, True), (40, 10, True),
     (20, 40, False), (20, 0, False)],
)  # fmt: skip
def test_how_many_calls_are_too_many(calls: int, optimizer_steps: int, *, is_wrong: bool) -> None:
    """A scaler skips some; another optimizer may make more; one in a CUDA graph shows none."""
    assert misuse.too_many_calls(calls, optimizer_steps) == is_wrong


@pytest.mark.parametrize(
    ("calls", "said"), [(1, ""), (2, "ckpt.step() was called 20 times for 10 optimizer steps")]
)
def test_several_calls_a_step_are_reported_once(
    calls: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = small_model()
    with Checkpoint(tmp_path, State(model=model, optimizer=optimizer), every="1h") as ckpt:
        for _ in range(60):
            train(model, optimizer)
            for _ in range(calls):
                ckpt.step()
    out = capfd.readouterr().err
    assert out.count("ckpt.step() was called") == (1 if said else 0)
    assert said in out


def test_no_call_at_all_is_reported_and_every_save_saves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = small_model()
    with Checkpoint(tmp_path / "never", State(model=model, optimizer=optimizer)):
        for _ in range(60):
            train(model, optimizer)
    assert capfd.readouterr().err.count("50 optimizer steps, and ckpt.step() was not called") == 1
    with Checkpoint(tmp_path / "saves", State(model=model, optimizer=optimizer)) as ckpt:
        assert ckpt.save()
        train(model, optimizer)
        assert ckpt.save()
        assert ckpt.save()
    again, other = small_model()
    with Checkpoint(tmp_path / "saves", State(model=again, optimizer=other)) as ckpt:
        ckpt.resume()
    assert torch.equal(again.state_dict()["weight"], model.state_dict()["weight"])
    kept = [path.name for path in (tmp_path / "saves").glob("step-*")]
    assert kept == ["step-000000000.2"], "the third call found nothing new to save"
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.long
@pytest.mark.parametrize("caller", [0, 1])
def test_ranks_that_never_call_step_are_named(
    caller: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(misuse, "SECONDS_FOR_RANKS", 0.0)
    monkeypatch.setattr(sync_points, "FIRST_SECONDS", 0.1)
    done = threading.Event()

    def rank(number: int) -> Any:
        with Checkpoint(tmp_path, State(), every="1h") as ckpt:
            if number != caller:
                return done.wait(30)
            for _ in range(20):
                ckpt.step()
            done.set()
            return ckpt.state.step

    assert ThreadRanks(3 if caller == 0 else 2, monkeypatch).run(rank)[caller] == 20
    said = capfd.readouterr().err
    if caller == 0:
        assert said.count("ranks 1-2 have not called ckpt.step(): call it on every rank") == 1
    else:
        assert said.count("step 2: rank 0 has not called ckpt.step(); training continues") == 1


def test_rank_0_waits_by_name_for_a_rank_that_does_not_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`if rank == 0: ckpt.save()`: only so can `run` tell that the rank it waits for has left."""
    is_waiting = threading.Event()

    @contextlib.contextmanager
    def noted(rank: int) -> Iterator[None]:
        if rank == 1:
            is_waiting.set()
        yield

    monkeypatch.setattr(message_board, "waiting_for", noted)

    def rank(number: int) -> bool:
        with Checkpoint(tmp_path, State(), every="1h") as ckpt:
            ckpt.resume()
            if number == 1:
                assert is_waiting.wait(30)
            return ckpt.save()

    assert ThreadRanks(2, monkeypatch).run(rank) == [True, True]
