"""What is said once of how a job was started, and ranks that stand in for the one that waits."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.rank import heartbeat_page
from holdfast.run.watch import remarks, spawned_ranks
from holdfast.run.watch.launcher_below import EVERY, LauncherSearch
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.system import activity
from tests.cli.holdfast_command import wait_until
from tests.faults.joiners import a_claim
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
        first = one.members[0]
        assert first.beat
        first.beat = a_beat(claim=None, former_claim=first.beat.claim)
        assert len(one.view().started) == 2, "one that trained, and has destroyed its group, too"
        assert "--nproc-per-node 1" in remarks.own_ranks_clash([one, same])
        assert remarks.own_ranks_clash([one, other]) == ""
        assert remarks.own_ranks_clash([one]) == ""


LAUNCHER = (
    "import os, subprocess, sys\n"
    "ranks = [subprocess.Popen([sys.executable, '-u', sys.argv[-1], 'a b'],\n"
    "         env={**os.environ, 'RANK': str(n)}) for n in range(int(sys.argv[1]))]\n"
    "[rank.wait() for rank in ranks]\n"
)


@contextlib.contextmanager
def launching(folder: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """`accelerate COUNT acc.py`, below a shell as most wrappers are."""
    (folder / "accelerate").write_text(LAUNCHER)
    (folder / "acc.py").write_text("import time\ntime.sleep(600)\n")
    line = f"{sys.executable} accelerate {count} acc.py; true"
    started = subprocess.Popen(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env={**os.environ, "RANK": "0"},
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(activity.descendants(started.pid)) == 1 + count)
        yield started
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_a_launcher_of_its_own_is_named_with_what_to_type_instead(tmp_path: Path) -> None:
    with launching(tmp_path, 2) as shell, watched(tmp_path, shell.pid) as rank:
        search = LauncherSearch()
        said: list[str] = []
        looks = itertools.count(rank.started_at, EVERY)

        def looked() -> bool:
            said.append(search.sentence([rank], next(looks)))
            return bool(said[-1])

        wait_until(looked)
        assert said[0] == "", "at the first look there may be more to come"
        assert said[-1] == (
            "rank 0 (`accelerate`) is a launcher of its own: it started 2 processes with a RANK of "
            "their own, which cannot be restarted one by one; use `holdfast run --nproc-per-node 2 "
            "acc.py 'a b'` instead"
        )
        rank.beat = a_beat(claim=a_claim(0))
        assert search.sentence([rank], next(looks)) == "", "it is in a group itself"


def test_children_that_have_the_number_of_their_rank_are_its_helpers(tmp_path: Path) -> None:
    with launching(tmp_path, 1) as shell, watched(tmp_path, shell.pid) as rank:
        search = LauncherSearch()
        assert {search.sentence([rank], rank.started_at + EVERY * n) for n in range(4)} == {""}


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
