"""`config=vars(args)` as scripts have it: a restart of the same command is never refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints.manifest import MANIFEST, decode
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.config_texts import PER_RANK
from holdfast.checkpoint.run_config import differing
from holdfast.checkpoint.state import State
from holdfast.errors import ResumeRefused
from tests.checkpoint.thread_ranks import ThreadRanks


def start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: Callable[[int], Any], size: int = 2
) -> list[int]:
    """One start of the job: resumes, makes a step, saves."""

    def rank(number: int) -> int:
        with Checkpoint(folder, State(), every="1h", config=config(number)) as ckpt:
            step = ckpt.resume(accept="world-size")
            ckpt.step()
            assert ckpt.save()
        return step

    return ThreadRanks(size, monkeypatch).run(rank)


def arguments(rank: int, **more: Any) -> dict[str, Any]:
    """As argparse gives them; the objects are other ones at every start."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.set_defaults(
        func=lambda: None, local_rank=rank, device=f"cuda:{rank}", logger=object(), **more
    )
    return vars(parser.parse_args([]))


def test_the_same_command_resumes_whatever_its_arguments_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, monkeypatch, arguments) == [0, 0]
    said = capfd.readouterr().err
    assert said.count("config: logger is not compared at a resume") == 1, "at the first start"
    start(tmp_path, monkeypatch, arguments)
    said = capfd.readouterr().err
    assert said.count("config: device, local_rank differ between ranks: not compared") == 1
    assert start(tmp_path, monkeypatch, arguments) == [2, 2]
    stored = decode((tmp_path / "step-000000003" / MANIFEST).read_bytes()).config
    assert stored["lr"] == "0.1"
    assert stored["local_rank"] == stored["device"] == PER_RANK


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 1, 2)])
def test_also_with_another_number_of_ranks(
    sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, size in enumerate(sizes):
        assert start(tmp_path, monkeypatch, arguments, size) == [step] * size


def test_a_real_change_is_still_refused_on_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path, monkeypatch, arguments)
    refused: list[str] = []

    def rank(number: int) -> None:
        config = arguments(number) | {"lr": 0.2}
        with Checkpoint(tmp_path, State(), config=config) as ckpt:
            with pytest.raises(ResumeRefused, match=r"\(lr: 0\.1 then, 0\.2 now\)"):
                ckpt.resume()
            refused.append("config")

    ThreadRanks(2, monkeypatch).run(rank)
    assert len(refused) == 2


def test_only_rank_0_has_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(2):
        given_to_0 = lambda rank: None if rank else {"lr": 0.1}  # noqa: E731
        assert start(tmp_path, monkeypatch, given_to_0) == [step, step]
    stored = decode((tmp_path / "step-000000002" / MANIFEST).read_bytes()).config
    assert stored == {"lr": "0.1"}


def test_a_rank_that_is_late_is_not_waited_for_by_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a resume nobody has heard from all ranks; the next start still resumes."""

    def rank(number: int) -> None:
        with Checkpoint(tmp_path, State(), every="1h", config=arguments(number)) as ckpt:
            ckpt.step()
            assert ckpt.save()

    ThreadRanks(2, monkeypatch).run(rank)
    assert start(tmp_path, monkeypatch, arguments) == [1, 1]


keys = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xy"))


@given(own=keys, others=st.lists(keys, max_size=4))
def test_what_differs_on_any_rank(own: dict[str, str], others: list[dict[str, str]]) -> None:
    found = differing(own, others)
    for key in "abcd":
        assert (key in found) == any(own.get(key) != other.get(key) for other in others)
