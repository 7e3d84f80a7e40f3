"""All ranks act on the same announcements; a store in trouble stops saves, never the training."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import sync_points
from holdfast.checkpoint.answering_store import StoreTroubleError
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.save_schedule import Announcement, SaveInterval
from holdfast.checkpoint.state import State
from holdfast.checkpoint.sync_points import SyncPoints
from tests.checkpoint.thread_ranks import SharedMemory, ThreadRanks


class ShakyStore(MemoryStore):
    """One rank's connection; what is to be done later is done once it works again."""

    def __init__(self, shared: MemoryStore) -> None:
        super().__init__()
        self._values = shared._values
        self.is_down = False
        self._later: list[tuple[str, str]] = []

    def _answer(self) -> None:
        if self.is_down:
            raise StoreTroubleError("the job's store failed: Broken pipe")
        for key, value in self._later:
            MemoryStore.set(self, key, value)
        self._later.clear()

    def check(self, keys: list[str], /) -> bool:
        self._answer()
        return super().check(keys)

    def add(self, key: str, amount: int, /) -> int:
        self._answer()
        return super().add(key, amount)

    def set_later(self, key: str, value: str, /) -> None:
        self._later.append((key, value))
        if not self.is_down:
            self._answer()


def trained(steps: int, outages: dict[int, range]) -> tuple[list[dict[int, Announcement]], bool]:
    """What each of two ranks did at which step, and whether any is in trouble at the end."""
    shared = MemoryStore()
    stores = [ShakyStore(shared) for _ in range(2)]
    points = [
        SyncPoints(MessageBoard(store, rank=rank, world_size=2), SaveInterval(steps=4))
        for rank, store in enumerate(stores)
    ]
    done: list[dict[int, Announcement]] = [{}, {}]
    for each in points:
        each.start(0)
    for step in range(1, steps + 1):
        for rank, (store, each) in enumerate(zip(stores, points, strict=True)):
            store.is_down = step in outages.get(rank, range(0))
            if step < each.next:
                continue
            if (current := each.at(step)) is not None:
                done[rank][step] = current
            if rank == 0:
                each.announce_next(step, busy=lambda _: False, interval=0.0, committed=-1)
    return done, any(each.trouble for each in points)


@given(
    outages=st.dictionaries(
        st.sampled_from([0, 1]),
        st.builds(lambda start, length: range(start, start + length), st.integers(1, 60),
                  st.integers(0, 60)),
    )
)  # fmt: skip
def test_no_rank_raises_and_none_acts_on_another_announcement(outages: dict[int, range]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sync_points, "SYNC_SECONDS", 0.0)
        patched.setattr(sync_points, "FIRST_SECONDS", 0.0)
        patched.setattr(sync_points, "PATIENCE", 0.0)
        (first, second), is_troubled = trained(400, outages)
    assert not is_troubled
    assert all(first[step] == what for step, what in second.items())
    late = {step: what for step, what in first.items() if step > 200}
    assert {step: what for step, what in second.items() if step > 200} == late
    assert any(what.save for what in late.values())
    saves = {step for step, what in first.items() if what.save}
    if 0 in outages:  # what rank 0 planned before it knew is the only one
        assert len(saves & set(outages[0])) <= 1


def test_without_trouble_both_ranks_save_at_the_multiples() -> None:
    (first, second), _ = trained(40, {})
    saves = [step for step, what in first.items() if what.save]
    assert saves == [step for step, what in second.items() if what.save]
    assert saves == list(range(4, 44, 4))


def test_a_dead_store_is_reported_once_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = ThreadRanks(2, monkeypatch)
    shared = SharedMemory()
    monkeypatch.setattr("holdfast.checkpoint.process_group.job_store", lambda: ShakyStore(shared))

    def rank(number: int) -> int:
        with Checkpoint(tmp_path, State(), every_steps=5) as ckpt:
            ckpt.resume()
            for _ in range(3):
                ckpt.step()
            ckpt._board._store.is_down = True  # type: ignore[attr-defined]
            for _ in range(30):
                ckpt.step()
            ckpt.request_save()
            assert ckpt.save() is False
        return ckpt.state.step

    assert ranks.run(rank) == [33, 33]
    said = capfd.readouterr().err
    assert said.count("the job's store failed: Broken pipe; training continues") == 2
