"""What is said once of how a job was started, and ranks that stand in for the one that waits."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.rank import heartbeat_page
from holdfast.run.watch import remarks, spawned_ranks
from holdfast.run.watch.rank_state import ObservedRank
from tests.run.scenes import a_beat
from tests.run.watched import watched


@contextlib.contextmanager
def starting_its_own(folder: Path, rank: int, **members: str) -> Iterator[ObservedRank]:
    """A rank whose own ranks, by number, claim to be those of the store at that address."""
    descriptor, whole = heartbeat_page.create()
    with watched(folder, os.getpid(), rank) as observed:
        observed.page = whole
        for name, store in members.items():
            number = int(name[1:])
            buffer = heartbeat_page.attach_member(f"/proc/self/fd/{descriptor}", number)
            assert buffer is not None
            page = heartbeat_page.HeartbeatPage(buffer)
            page.announce(os.getpid())
            numbers = {"rank": number, "world_size": 2, "given_rank": number}
            places = {"store": store, "given_store": store, "own_store": False}
            others = {"given_world_size": 2, "agent_store": False, "timeout": 1.0, "device": ""}
            page.claim(json.dumps({**numbers, **places, **others}), time.monotonic())
        spawned_ranks.look(observed, time.monotonic())
        yield observed
        spawned_ranks.release(observed)
    whole.close()
    os.close(descriptor)


def test_ranks_that_let_nothing_in_are_named_after_a_while(tmp_path: Path) -> None:
    with watched(tmp_path, os.getpid()) as rank:
        late = rank.started_at + remarks.UNSEEN + 1
        assert remarks.unseen([rank], rank.started_at + 1, {}) == ""
        assert remarks.unseen([rank], late, {}).startswith("rank 0 cannot be watched from within")
        assert remarks.unseen([rank], late, {"HOLDFAST": "off"}) == ""
        rank.beat = a_beat()
        assert remarks.unseen([rank], late, {}) == ""


def test_ranks_that_a_rank_started_stand_in_for_it(tmp_path: Path) -> None:
    with starting_its_own(tmp_path, 0, _0="a:1", _3="a:1") as rank:
        standing = spawned_ranks.standing_in([rank])
        assert [(one.rank, one.local_rank, one.pid) for one in standing] == [
            (0, 0, os.getpid()),
            (3, 0, os.getpid()),
        ]
        assert remarks.unseen([rank], rank.started_at + remarks.UNSEEN + 1, {}) == ""
        rank.beat = a_beat(claim=standing[0].beat.claim if standing[0].beat else None)
        assert spawned_ranks.standing_in([rank]) == [rank], "it is in a group itself"


def test_ranks_that_start_the_same_ranks_are_told_so(tmp_path: Path) -> None:
    with (
        starting_its_own(tmp_path, 0, _0="a:1", _1="a:1") as one,
        starting_its_own(tmp_path, 1, _0="a:1", _1="a:1") as same,
        starting_its_own(tmp_path, 2, _0="a:2", _1="a:2") as other,
    ):
        assert spawned_ranks.standing_in([one, same]) == [one, same]
        assert "ranks 0-1 each started a rank 0 at a:1" in remarks.own_ranks_clash([one, same])
        told = [(each.store, each.rank) for each in one.view().started]
        assert told == [("a:1", 0), ("a:1", 1)], "for the verdict, once they have failed"
        assert "--nproc-per-node 1" in remarks.own_ranks_clash([one, same])
        assert remarks.own_ranks_clash([one, other]) == ""
        assert remarks.own_ranks_clash([one]) == ""


def test_there_are_pages_for_so_many_and_no_more() -> None:
    descriptor, whole = heartbeat_page.create()
    path = f"/proc/self/fd/{descriptor}"
    assert heartbeat_page.members(whole) == {}
    assert heartbeat_page.attach_member(path, heartbeat_page.MEMBERS) is None
    assert heartbeat_page.attach_member(path, -1) is None
    assert heartbeat_page.attach_unclaimed(path) is not None
    assert heartbeat_page.writer(whole) == os.getpid()
    assert heartbeat_page.attach_unclaimed(path) is None, "this process has it, and lives"
    whole.close()
    os.close(descriptor)
