"""What is verified is loaded from the same bytes; nothing of what fails reaches the job."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.checkpoints import manifest as manifests
from holdfast.analysis.checkpoints.manifest import FileEntry, PieceDigest, piece_ranges
from holdfast.checkpoint import load_ahead, loading, object_state, verify
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.choose_together import Question, RankDisk
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.load_ahead import LoadAhead, WantedBytes, WantedRange
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.rank_files import TensorFile
from holdfast.checkpoint.state import State
from tests.checkpoint.thread_ranks import SharedMemory, ThreadRanks, small_model, train

PIECE = 100
OLDER, NEWER = "step-000000002", "step-000000004"


class Reads(type(DISK)):  # type: ignore[misc]
    """How often each byte was read."""

    def __init__(self) -> None:
        self.count: Counter[tuple[str, int]] = Counter()

    def chunks(self, path: str, start: int = 0, end: int | None = None) -> Iterator[memoryview]:
        for chunk in super().chunks(path, start, end):
            name = os.path.basename(path)
            self.count.update((name, at) for at in range(start, start + len(chunk)))
            start += len(chunk)
            yield chunk


def in_small_pieces(step: Path) -> None:
    """Its manifest, as if large files had been cut: each rank gets a share of each."""
    saved = manifests.decode((step / manifests.MANIFEST).read_bytes())
    files = []
    for entry in saved.files:
        data = (step / entry.name).read_bytes()
        digests = [hashlib.sha256(data[a:b]).hexdigest() for a, b in piece_ranges(len(data), PIECE)]
        files.append(FileEntry(name=entry.name, size=len(data), piece_size=PIECE,
                               sha256=tuple(digests)))  # fmt: skip
    text = manifests.encode(msgspec.structs.replace(saved, files=tuple(files)))
    (step / manifests.MANIFEST).write_bytes(text)


def made() -> State:
    model, optimizer = small_model()
    state = State(model=model, optimizer=optimizer, table=np.arange(20_000), mean=torch.zeros(300))
    state.extras["mean"] = torch.arange(300.0)
    return state


def values(state: State) -> list[Any]:
    assert state.model is not None
    assert state.optimizer is not None
    of_optimizer = [each for one in state.optimizer.state.values() for each in one.values()]
    return [*(value.clone() for value in state.model.state_dict().values()),
            *(value.clone() for value in of_optimizer), state.extras["mean"],
            torch.from_numpy(state.extras["table"])]  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Two checkpoints of a job of two ranks; their values."""

    def work(_: int) -> dict[str, list[Any]]:
        found, state = {}, made()
        assert state.model is not None
        assert state.optimizer is not None
        with Checkpoint(tmp_path, state, every="1h") as ckpt:
            for step in range(1, 5):
                train(state.model, state.optimizer)
                state.extras["table"] = state.extras["table"] + 1
                state.extras["mean"] = state.extras["mean"] + 0.5
                ckpt.step()
                if step in (2, 4):
                    assert ckpt.save()
                    found[f"step-{step:09d}"] = values(state)
        return found

    found = ThreadRanks(2, monkeypatch).run(work)[0]
    for name in found:
        in_small_pieces(tmp_path / name)
    return found


def resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[Any]]]:
    def work(_: int) -> tuple[int, list[Any]]:
        state = made()
        with Checkpoint(folder, state, every="1h") as ckpt:
            return ckpt.resume(), values(state)

    return ThreadRanks(2, monkeypatch).run(work)


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) == 2 + 6 + 2
    assert all(map(torch.equal, found, expected))


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each rank had when all agreed."""
    counts: list[int] = []
    complete = WantedBytes.complete

    def noted(self: WantedBytes) -> set[int]:
        counts.append(len(found := complete(self)))
        return found

    monkeypatch.setattr(WantedBytes, "complete", noted)
    return counts


def test_all_that_is_new_memory_is_there_when_the_ranks_agree(
    saved: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: list[int],
) -> None:
    for step, found in resumed(tmp_path, monkeypatch):
        assert step == 4
        assert_equal(found, saved[NEWER])
    assert len(ahead) == 2
    assert min(ahead) >= 6 + 2, "the optimizer's and the extras, not the model's"


@pytest.mark.parametrize("rank", [0, 1], ids=["verified by rank 0", "verified by rank 1"])
def test_nothing_of_a_damaged_one_reaches_the_model(
    rank: int,
    saved: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: list[int],
) -> None:
    """Both ranks copy the damaged bytes; one of them sees that they are."""
    tensors = tmp_path / NEWER / "rank-0.safetensors"
    data = bytearray(tensors.read_bytes())
    entries = manifests.decode((tmp_path / NEWER / manifests.MANIFEST).read_bytes()).files
    mine = [piece for piece in verify.share(entries, rank, 2) if piece.name == tensors.name]
    data[mine[-1].end - 1] ^= 1
    tensors.write_bytes(data)
    given: list[dict[str, torch.Tensor]] = []
    load = object_state.load_module

    def noted(module: torch.nn.Module, state: Any) -> None:
        given.append({name: value.clone() for name, value in state.items()})
        load(module, state)

    monkeypatch.setattr(object_state, "load_module", noted)
    for step, found in resumed(tmp_path, monkeypatch):
        assert step == 2
        assert_equal(found, saved[OLDER])
    assert [list(one) for one in given] == [["weight", "bias"]] * 2
    for one in given:
        assert torch.equal(one["weight"], saved[OLDER][0])
    assert len(ahead) == 2, "asked for the older one only"
    assert (tmp_path / "damaged" / NEWER).is_dir()


@pytest.mark.parametrize("where", ["State", "WantedBytes", "is_unchanged"])
def test_what_fails_ahead_is_loaded_as_ever(
    where: str,
    saved: dict[str, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: list[int],
) -> None:
    def fails(*_: Any) -> Any:
        raise MemoryError("no room")

    if where == "State":
        begin = LoadAhead.begin

        def begin_badly(self: LoadAhead, *given: Any) -> Any:
            with monkeypatch.context() as patched:
                patched.setattr(self._state, "prepare", fails)
                return begin(self, *given)

        monkeypatch.setattr(LoadAhead, "begin", begin_badly)
    elif where == "WantedBytes":
        monkeypatch.setattr(load_ahead, "_places", fails)
    else:
        monkeypatch.setattr(TensorFile, "is_unchanged", lambda _: False)
    for step, found in resumed(tmp_path, monkeypatch):
        assert step == 4
        assert_equal(found, saved[NEWER])
    assert not ahead


def test_every_byte_is_read_once(
    saved: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each rank: what it verifies, and what it loads of the other's share."""
    disks = [Reads(), Reads()]
    filled: list[loading.Fill] = []
    monkeypatch.setattr(loading, "fill_all", filled.extend)

    def work(rank: int) -> None:
        board = MessageBoard(SharedMemory(), rank=rank, world_size=2)
        loads = LoadAhead(made(), None, rank)
        look = RankDisk(board, disks[rank], ahead=loads.begin).look(
            Question(path=str(tmp_path / NEWER))
        )
        assert look.problem is None
        assert loads.finish(str(tmp_path / NEWER)).state is not None

    ThreadRanks(2, monkeypatch).run(work)
    assert not filled, "nothing was left to be loaded"
    header = TensorFile(str(tmp_path / NEWER / "rank-0.safetensors"))
    size = (tmp_path / NEWER / "rank-0.safetensors").stat().st_size
    begin = header.offset_of(header.read("table"))
    assert begin is not None
    of_file = [Counter({at: n for (name, at), n in disk.count.items()
                        if name == "rank-0.safetensors"}) for disk in disks]  # fmt: skip
    for count in of_file:
        assert set(count.values()) == {1}
        assert all(at in count for at in range(begin, begin + 160_000))
    assert set(of_file[0]) | set(of_file[1]) == set(range(size)), "all of it is verified"
    assert saved


# --- who wants what ----------------------------------------------------------------------------


@given(st.data())
def test_bytes_come_to_their_place_in_whatever_order(data: st.DataObject) -> None:
    content = bytes(data.draw(st.lists(st.integers(1, 255), min_size=1, max_size=60)))
    edges = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    ranges = [(a, b) for a, b in itertools.pairwise(edges) if a < b]
    ranges = [one for one in ranges if data.draw(st.booleans())]
    memory = np.zeros(len(content), np.uint8)
    begin = memory.__array_interface__["data"][0]
    wanted = WantedBytes(
        [("f", WantedRange(a, b, begin + a, n)) for n, (a, b) in enumerate(ranges)]
    )
    cuts = sorted({0, len(content), *data.draw(st.lists(st.integers(0, len(content)), max_size=6))})
    chunks = data.draw(st.permutations(list(itertools.pairwise(cuts))))
    left_out = data.draw(st.sampled_from([None, *chunks]))
    for a, b in chunks:
        assert wanted.wants(PieceDigest("f", a, b, "")) == any(x < b and a < y for x, y in ranges)
        if (a, b) != left_out:
            part = bytearray(content[a:b]) if data.draw(st.booleans()) else content[a:b]
            wanted.take("f", a, memoryview(part))
    wanted.take("g", 0, memoryview(content))
    came = [
        n for n in range(len(content)) if left_out is None or not left_out[0] <= n < left_out[1]
    ]
    for number, (a, b) in enumerate(ranges):
        assert (number in wanted.complete()) == (set(range(a, b)) <= set(came))
        assert all(memory[n] == content[n] for n in range(a, b) if n in came)
    inside = {n for a, b in ranges for n in range(a, b)}
    assert not any(memory[n] for n in range(len(content)) if n not in inside)


def test_the_same_bytes_wanted_twice_come_once_and_the_rest_later() -> None:
    memory = np.zeros(20, np.uint8)
    begin = memory.__array_interface__["data"][0]
    places = [("f", WantedRange(0, 10, begin, 0)), ("f", WantedRange(0, 10, begin + 10, 1))]
    wanted = WantedBytes(places)
    wanted.take("f", 0, memoryview(b"0123456789"))
    assert wanted.complete() == {0}
    assert bytes(memory) == b"0123456789" + bytes(10)


@given(st.integers(0, 20), st.integers(0, 20))
def test_both_kinds_of_pieces_take_turns(mine: int, others: int) -> None:
    pieces = [[PieceDigest(name, n, n + 1, "") for n in range(count)]
              for name, count in (("mine", mine), ("others", others))]  # fmt: skip
    order = verify.in_turns(*pieces)
    assert [piece for piece, is_mine in order if is_mine] == pieces[0]
    assert [piece for piece, is_mine in order if not is_mine] == pieces[1]
    for at in range(1, len(order)):
        share = sum(is_mine for _, is_mine in order[:at]) / at
        assert abs(share - mine / len(order)) * at <= 1.5
