"""The recorder's document, from real Gloo ranks and from nothing at all."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import stacks
from holdfast.analysis.collectives.recorder import parse
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Collective, Recorder, Stack
from holdfast.system import activity, pyspy, recorder_query
from holdfast.system.proc import row_of
from tests.analysis.collectives.nccl_documents import Written
from tests.analysis.collectives.ranks import Rank, both, two_ranks
from tests.system.sockets import wait_for


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a Unix socket's path may have 107 characters, and pytest's folders are long."""
    with tempfile.TemporaryDirectory(prefix="hf") as name:
        yield Path(name)


def waiting(rank: Rank, group: str) -> Collective:
    """The collective this rank is in."""

    def unfinished() -> list[Collective]:
        return [c for c in rank.recorder().collectives if not c.finished and c.group == group]

    wait_for(unfinished, seconds=60)
    return unfinished()[-1]


def settles(rank: Rank, finished: dict[str, int]) -> None:
    """Gloo's thread retires an entry a moment after the collective has returned."""
    wait_for(lambda: rank.recorder().finished == finished, seconds=60)


def stack_of(pid: int) -> Stack:
    stack = pyspy.dump(pid, seconds=30)
    assert isinstance(stack, Stack), stack
    return stack


def still_while_its_threads_poll(pid: int) -> bool:
    before = activity.read(pid)
    spent = time.clock_gettime((~pid << 3) | 2)  # the whole process's clock
    wait_for(lambda: time.clock_gettime((~pid << 3) | 2) > spent + 0.002, seconds=60)
    return before is not None and activity.read(pid) == before


@pytest.mark.long  # the jobs of two groups below show the same
def test_positions_tell_who_is_behind_and_who_differs(folder: Path) -> None:
    with two_ranks(folder) as ranks:
        first, second = ranks
        assert first.recorder() == Recorder(collectives=(), entered={}, finished={})
        both(ranks, "all_reduce 4", "second 2", "all_reduce 4")
        for rank in ranks:
            assert rank.recorder().entered == {"0": 2, "1": 1}
            settles(rank, {"0": 2, "1": 1})

        # Point-to-point is not recorded, but moves torch's other counters.
        first.tell("send 1")
        second.tell("recv 0")
        assert (first.answer(), second.answer()) == ("done", "done")

        # Rank 0 waits; rank 1 never comes, and even holds the GIL.
        first.tell("all_reduce 4")
        os.mkfifo(folder / "fifo")
        second.tell(f"gil {folder}/fifo")
        with open(folder / "fifo", "wb") as release:
            wait_for(lambda: stack_of(second.pid).holds_gil, seconds=60)
            assert waiting(first, "0").sequence == 3
            assert second.recorder().entered == {"0": 2, "1": 1}
            settles(second, {"0": 2, "1": 1})
            assert stacks.where(stack_of(second.pid)).startswith("in hold_the_gil() at obedient_r")
            line = next(f for f in stack_of(first.pid).frames if f.function == "reduce_some").line
            place = f"in all_reduce() at obedient_rank.py:{line}"
            assert stacks.where(stack_of(first.pid)) == place
            assert stacks.collective_of(stack_of(first.pid)) == "all_reduce"
            release.write(b".")
        assert second.answer() == "done"

        # Rank 1 skips that one; the next has the same size, so sums are wrong but nothing hangs.
        second.tell("all_reduce 4")
        assert (first.answer(), second.answer()) == ("done", "done")
        for rank in ranks:
            settles(rank, {"0": 3, "1": 1})

        # The next of rank 1 has another size: the same number, two shapes.
        first.tell("all_reduce 4")
        asked = waiting(first, "0")
        second.tell("all_reduce 8")
        assert second.answer().startswith("failed")
        other = second.recorder().collectives[-1]
        assert (asked.sequence, asked.op, asked.backend) == (4, "all_reduce", "gloo")
        assert (other.sequence, other.op) == (4, "all_reduce")
        assert (asked.shape, other.shape) == ("[4] Float", "[8] Float")
        assert asked.timeout == 1800


def test_two_ranks_in_two_groups_and_one_stopped(folder: Path) -> None:
    with two_ranks(folder) as ranks:
        first, second = ranks
        first.tell("all_reduce 4")
        second.tell("second 4")
        assert (waiting(first, "0").sequence, waiting(second, "1").sequence) == (1, 1)
        assert "1" not in first.recorder().entered
        assert "0" not in second.recorder().entered
        for pid in (first.pid, second.pid):  # Gloo's own polling is no sign of life
            wait_for(partial(still_while_its_threads_poll, pid), seconds=60)
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: (row := row_of(first.pid)) is not None and row.state == "T", seconds=60)
        silent = recorder_query.ask(first.socket_path, seconds=0.3)
        assert isinstance(silent, Unread)
        assert "did not answer within 0.3 s" in silent.why
        assert stacks.in_collective(stack_of(first.pid))
        family = pyspy.dump_many([first.pid, second.pid], seconds=30).values()
        assert all(isinstance(s, Stack) and stacks.in_collective(s) for s in family)


# --- documents -----------------------------------------------------------------------------------


def entry(sequence: int, **changes: object) -> dict[str, object]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "completed" if changes.get("retired") else "scheduled",
        "retired": False,
        "is_p2p": False,
        "time_created_ns": sequence * 1_000_000_000,
        "timeout_ms": 600_000,
        **changes,
    }


def read(*entries: dict[str, object]) -> Recorder:
    return parse(json.dumps({"entries": entries}).encode())


def test_only_a_retired_entry_is_finished() -> None:
    seen = read(entry(1, retired=True), entry(2, state="completed"), entry(3, state="started"))
    assert (seen.entered, seen.finished) == ({"0": 3}, {"0": 1})
    assert [c.finished for c in seen.collectives] == [True, False, False]


def test_an_entry_that_was_given_up_is_not_finished() -> None:
    """Aborted or timed out: NCCL's watchdog retires it, and it still misses a rank."""
    seen = read(entry(1, retired=True), entry(2, retired=True, state="started"))
    assert seen.finished == {"0": 1}


def test_nothing_finished_yet_is_zero() -> None:
    assert read(entry(1)).finished == {"0": 0}


def test_point_to_point_is_left_out() -> None:
    seen = read(entry(1, retired=True), entry(7, is_p2p=True, profiling_name="nccl:send 0->1"))
    assert seen.entered == {"0": 1}


def test_the_parts_of_a_coalesced_collective_end_with_the_whole() -> None:
    whole = entry(1, profiling_name="nccl:coalesced", input_sizes=[], input_dtypes=[], retired=True)
    seen = read(entry(1), entry(1), whole)
    assert [c.finished for c in seen.collectives] == [True, True, True]
    assert seen.collectives[-1].shape == ""


def test_a_group_that_was_destroyed_and_made_again_starts_anew() -> None:
    """As Gloo's ring has it (torch 2.13): the same name, sequences from 1, another pg_id."""
    old = [entry(n, pg_id=0, retired=True) for n in range(998, 1001)]
    made_again = [entry(1, pg_id=2, retired=True), entry(2, pg_id=2)]
    other = entry(7, pg_id=1, process_group=["1", "undefined"], retired=True)
    seen = read(*old, other, *made_again)
    assert (seen.entered, seen.finished) == ({"1": 7, "0": 2}, {"1": 7, "0": 1})
    assert [c.sequence for c in seen.collectives if c.group == "0"] == [1, 2]


def test_shapes_of_several_tensors() -> None:
    two = entry(1, input_sizes=[[4], [2, 3]], input_dtypes=["Float", "Half"])
    assert read(two).collectives[0].shape == "[[4], [2, 3]] Float, Half"


@pytest.mark.parametrize("knows_nccl2", [True, False])
def test_nccl_groups_since_torch_2_15_have_a_recorder_of_their_own(*, knows_nccl2: bool) -> None:
    """A torch before 2.14 ignores which one is asked for, and sends the others' again."""
    gloo = {"entries": [entry(1, profiling_name="gloo:barrier")]}
    nccl2 = json.loads(Written(backend="nccl2").past(2).collective("scheduled").document())
    third = nccl2 if knows_nccl2 else gloo
    seen = parse(json.dumps([{"entries": []}, gloo, third]).encode())
    assert [c.sequence for c in seen.collectives if c.backend == "gloo"] == [1]
    assert seen.entered == ({"0": 3, "0 (gloo)": 1} if knows_nccl2 else {"0 (gloo)": 1})
    assert seen.members == ({"0": (0, 1, 2, 3)} if knows_nccl2 else {})


def test_two_recorders_of_one_rank_keep_their_sequences_apart() -> None:
    nccl = {"entries": [entry(90, retired=True)]}
    other = {"entries": [entry(3, profiling_name="gloo:barrier")]}
    seen = parse(json.dumps([nccl, other]).encode())
    assert seen.entered == {"0": 90, "0 (gloo)": 3}
    assert seen.finished == {"0": 90, "0 (gloo)": 2}  # the ring has lost the first two
    assert [c.sequence for c in seen.collectives] == [3, 90]


def test_a_recorder_that_holds_nothing() -> None:
    """As torch 2.13 answers before init_process_group."""
    document = b'{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{}}'
    assert parse(document) == Recorder(collectives=(), entered={}, finished={})


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"7",
        b"\xff\xfe",
        b'{"entries": 7}',
        b'{"entries": [{}]}',
        b'{"entries": [{"process_group": [], "collective_seq_id": 1}]}',
        b'{"entries": [{"process_group": ["0"], "collective_seq_id": "x"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_recorder_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="flight recorder"):
        parse(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.binary()
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.lists(st.dictionaries(st.sampled_from(sorted(entry(1))), json_values)).map(
        lambda entries: json.dumps({"entries": entries}).encode()
    )
)
def test_any_document_is_read_or_refused(document: bytes) -> None:
    try:
        seen = parse(document)
    except ValueError:
        return
    assert seen.entered.keys() == seen.finished.keys()


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from("ab"), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_positions_follow_from_the_entries(rows: list[tuple[int, str, bool, bool]]) -> None:
    seen = read(
        *(entry(n, process_group=[g, ""], retired=over, is_p2p=p2p) for n, g, over, p2p in rows)
    )
    kept = [(n, g, over) for n, g, over, p2p in rows if not p2p]
    for group in {g for _, g, _ in kept}:
        assert seen.entered[group] == max(n for n, g, _ in kept if g == group)
        lost = min(n for n, g, _ in kept if g == group) - 1  # by the ring, since they are over
        over = [n for n, g, over in kept if g == group and over]
        assert seen.finished[group] == max([0, lost, *over])
    assert len(seen.collectives) == len(kept)
