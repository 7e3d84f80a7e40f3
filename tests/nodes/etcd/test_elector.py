"""Elections with a real etcd: among four, after a death, while etcd itself is away."""

from __future__ import annotations

import concurrent.futures
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.nodes.etcd import elector
from holdfast.nodes.etcd.client import EtcdClient, Put
from holdfast.nodes.etcd.election import LEASE, Await, Follow, JobEnded, keys_of, view_of
from holdfast.nodes.etcd.elector import Elected, Elector
from holdfast.nodes.etcd.etcd_errors import EtcdUnreachable
from tests.drill.lab.etcd import Etcd

pytestmark = pytest.mark.xdist_group("etcd")


class Launchers:
    """Electors of one run; those that `die` leave their leases to etcd."""

    def __init__(self, etcd: Etcd, run: str) -> None:
        self._etcd, self._run = etcd, run
        self.client = EtcdClient(etcd.access())
        self.keys = keys_of(run)
        self.said: list[str] = []
        self.made: list[Elector] = []

    def elector(self, name: str) -> Elector:
        client = EtcdClient(self._etcd.access())
        made = Elector(
            client, self._run, name, f"{name}-{len(self.made)}", token="", say=self.said.append
        )
        self.made.append(made)
        return made

    def newest_round(self) -> int:
        """That a successor would find."""
        job = view_of(self.client.read(self.keys.prefix), self.keys).job
        return job.round if job else -1

    def end_lease_of_coordinator(self) -> None:
        self.client.revoke(self.client.read(self.keys.prefix)[self.keys.coordinator].lease)

    def close(self) -> None:
        for one in self.made:
            one.end_job("done")
            one.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as made:
        yield made


@pytest.fixture
def launchers(etcd: Etcd, request: pytest.FixtureRequest) -> Iterator[Launchers]:
    made = Launchers(etcd, request.node.name)
    yield made
    made.close()


def outcome(elector: Elector, *, seconds: float = 20) -> Elected | Follow | JobEnded:
    """Once it is not Await any more, also while etcd cannot be asked."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = elector.campaign()
        except EtcdUnreachable as problem:
            answer = Await(problem.sentence)
        if not isinstance(answer, Await):
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def die(elector: Elector) -> None:
    """As by SIGKILL: its thread is gone, its leases run out."""
    elector._closing = True
    elector._wake.set()
    assert elector._thread
    elector._thread.join()


def test_one_of_four_is_elected_and_the_others_learn_where_it_is(launchers: Launchers) -> None:
    four = [launchers.elector(name) for name in "abcd"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:

        def take_part(one: Elector) -> Elected | Follow | JobEnded:
            answer = outcome(one)
            if isinstance(answer, Elected):
                one.announce(("10.0.0.1",), 29400)
            return answer

        answers = list(pool.map(take_part, four))
    elected = [one for one in answers if isinstance(one, Elected)]
    following = [one for one in answers if isinstance(one, Follow)]
    assert len(elected) == 1
    assert len(following) == 3
    assert {(one.coordinator.addresses, one.coordinator.port) for one in following} == {
        (("10.0.0.1",), 29400)
    }
    assert {one.token for one in following} == {elected[0].token} != {""}


@pytest.mark.long
def test_a_member_takes_over_from_one_that_died_and_the_old_one_follows(
    launchers: Launchers,
) -> None:
    a, b, spare = (launchers.elector(name) for name in ("a", "b", "spare"))
    first = outcome(a)
    assert isinstance(first, Elected)
    assert not first.took_over
    a.announce(("10.0.0.1",), 1)
    assert isinstance(outcome(b), Follow)
    b.in_round(1)
    a.publish(1, {"restarts": 2})
    until(lambda: launchers.newest_round() == 1)
    die(a)
    assert isinstance(spare.campaign(), Follow)
    second = b.campaign()
    deadline = time.monotonic() + 60
    while not isinstance(second, Elected):
        assert time.monotonic() < deadline, second
        time.sleep(0.1)
        second = b.campaign()
    assert second == Elected(first.token, 1, {"restarts": 2}, took_over=True)
    b.announce(("10.0.0.2",), 2)
    until(lambda: isinstance(spare.campaign(), Follow))
    back = outcome(launchers.elector("a"))  # its node is back, with another launcher
    assert isinstance(back, Follow)
    assert back.coordinator.name == "b"


def test_a_coordinator_that_was_away_learns_that_another_took_over(launchers: Launchers) -> None:
    a, b = launchers.elector("a"), launchers.elector("b")
    assert isinstance(outcome(a), Elected)
    a.announce(("10.0.0.1",), 1)
    assert isinstance(outcome(b), Follow)
    b.in_round(1)
    a.publish(1, {})
    until(lambda: launchers.newest_round() == 1)
    launchers.end_lease_of_coordinator()
    while not isinstance(b.campaign(), Elected):  # a was quicker and put it back
        launchers.end_lease_of_coordinator()
    until(lambda: a.overruled == "b")
    a.step_down()
    b.announce(("10.0.0.2",), 2)
    assert isinstance(outcome(a), Follow)


def test_a_member_keeps_the_job_while_its_coordinator_cannot_reach_etcd(
    launchers: Launchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = launchers.elector("a"), launchers.elector("b")
    assert isinstance(outcome(a), Elected)
    a.announce(("10.0.0.1",), 1)
    assert isinstance(outcome(b), Follow)  # before the first round, as nodes do
    a.publish(1, {})
    b.in_round(1)
    until(lambda: launchers.newest_round() == 1)
    die(a)
    launchers.end_lease_of_coordinator()
    kept: list[int] = []
    keep_alive = b._client.keep_alive

    def noted(lease: int) -> bool:
        kept.append(lease)
        return keep_alive(lease)

    monkeypatch.setattr(b._client, "keep_alive", noted)
    job = view_of(launchers.client.read(launchers.keys.prefix), launchers.keys).job
    assert job
    until(lambda: job.lease in kept)
    spare = launchers.elector("spare").campaign()
    assert isinstance(spare, Await)
    assert "etcd does not hear the coordinator" in spare.why


def test_a_newcomer_to_which_etcd_comes_back_does_not_end_the_job_that_runs(
    tmp_path: Path,
) -> None:
    with Etcd(tmp_path) as etcd:
        launchers = Launchers(etcd, "run")
        a, newcomer = launchers.elector("a"), launchers.elector("newcomer")
        assert isinstance(outcome(a), Elected)
        a.announce(("10.0.0.1",), 1)
        a.publish(1, {})
        until(lambda: launchers.newest_round() == 1)
        etcd.members[0].kill()
        with pytest.raises(EtcdUnreachable):
            newcomer.campaign()
        shutil.rmtree(tmp_path / "m0")  # it has forgotten everything
        etcd.members[0].start()
        etcd.wait()
        followed = outcome(newcomer)
        assert isinstance(followed, Follow)
        assert followed.coordinator.name == "a"
        assert not a.overruled
        launchers.close()


def test_who_was_overruled_does_not_end_the_job_of_its_successor(launchers: Launchers) -> None:
    a, b = launchers.elector("a"), launchers.elector("b")
    assert isinstance(outcome(a), Elected)
    a.announce(("10.0.0.1",), 1)
    assert isinstance(outcome(b), Follow)
    b.in_round(1)
    a.publish(1, {})
    until(lambda: launchers.newest_round() == 1)
    die(a)
    launchers.end_lease_of_coordinator()
    assert isinstance(outcome(b), Elected)
    a.end_job("it did not know better")
    job = view_of(launchers.client.read(launchers.keys.prefix), launchers.keys).job
    assert job
    assert job.ended == ""


def test_what_cannot_be_read_in_etcd_is_said_and_leases_are_kept(
    launchers: Launchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elector, "SAID_AFTER", 0.0)
    a = launchers.elector("a")
    assert isinstance(outcome(a), Elected)
    launchers.client.change((), (Put(launchers.keys.coordinator, "{"),))
    a.publish(1, {})
    until(lambda: any("cannot be read" in said for said in launchers.said))
    assert a._thread
    assert a._thread.is_alive()


def test_a_job_that_ended_is_not_taken_over(launchers: Launchers) -> None:
    a, b = launchers.elector("a"), launchers.elector("b")
    assert isinstance(outcome(a), Elected)
    a.announce(("10.0.0.1",), 1)
    assert isinstance(outcome(b), Follow)
    b.in_round(1)
    a.publish(1, {})
    until(lambda: launchers.newest_round() == 1)
    a.end_job("all ranks exited with 0")
    a.close()
    assert outcome(b) == JobEnded("all ranks exited with 0")
    assert isinstance(outcome(launchers.elector("c")), Elected)


def test_a_restart_of_etcd_changes_nothing(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        launchers = Launchers(etcd, "run")
        a, b = launchers.elector("a"), launchers.elector("b")
        assert isinstance(outcome(a), Elected)
        a.announce(("10.0.0.1",), 1)
        assert isinstance(outcome(b), Follow)
        etcd.members[0].kill()
        assert not a.unproven()
        etcd.members[0].start()
        etcd.wait()
        a.publish(1, {})
        until(lambda: launchers.newest_round() == 1)
        assert not a.overruled
        assert isinstance(outcome(b), Follow)
        launchers.close()


@pytest.mark.long
def test_etcd_that_is_away_for_long_is_said_once_and_everything_is_put_back(
    tmp_path: Path,
) -> None:
    with Etcd(tmp_path) as etcd:
        launchers = Launchers(etcd, "run")
        a = launchers.elector("a")
        assert isinstance(outcome(a), Elected)
        a.announce(("10.0.0.1",), 1)
        a.publish(1, {"restarts": 1})
        until(lambda: launchers.newest_round() == 1)
        etcd.members[0].stop()
        until(a.unproven, seconds=LEASE + 5)
        until(lambda: len(launchers.said) == 1)
        assert "etcd does not answer since" in launchers.said[0]
        etcd.members[0].go_on()
        until(lambda: not a.unproven())
        until(lambda: len(launchers.said) == 2)
        assert "etcd answers again" in launchers.said[1]
        b = launchers.elector("b")
        followed = outcome(b)
        assert isinstance(followed, Follow)
        assert followed.coordinator.name == "a"
        assert not a.overruled
        launchers.close()


@pytest.mark.long
def test_the_death_of_etcds_leader_changes_nothing(tmp_path: Path) -> None:
    with Etcd(tmp_path, members=3) as etcd:
        launchers = Launchers(etcd, "run")
        a = launchers.elector("a")
        assert isinstance(outcome(a), Elected)
        a.announce(("10.0.0.1",), 1)
        etcd.leader().kill()
        deadline = time.monotonic() + 2 * LEASE
        while time.monotonic() < deadline:
            assert not a.unproven()
            assert not a.overruled
            time.sleep(0.1)
        a.publish(1, {})
        until(lambda: launchers.newest_round() == 1)
        assert isinstance(outcome(launchers.elector("b")), Follow)
        assert launchers.said == []
        launchers.close()
