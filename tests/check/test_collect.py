"""A reader that hangs costs its deadline, is shown as skipped, and the rest is there."""

from __future__ import annotations

import signal
import time
from typing import get_type_hints

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.machine import MachineFacts, Plan, Shm, Unread, known
from holdfast.check.collect import Reader, collect, longest
from holdfast.check.reader_list import READERS, readers, readers_for
from holdfast.findings import Status
from holdfast.system import deadline
from tests.faults.machines import a_machine, a_plan


def hang(_plan: Plan) -> object:
    signal.pause()
    return None


def fake_readers(**changes: Reader) -> dict[str, Reader]:
    """Readers that answer with a healthy machine."""
    healthy = a_machine()
    names = set(get_type_hints(MachineFacts)) - {"plan", "host", "smoke"}

    def reader(name: str) -> Reader:
        return lambda _plan: getattr(healthy, name)

    return {**{name: reader(name) for name in names}, **changes}


def test_there_is_one_reader_per_fact() -> None:
    assert set(READERS) == set(get_type_hints(MachineFacts)) - {"plan", "host", "smoke"}


def test_only_the_facts_of_the_chosen_faults_are_read() -> None:
    chosen = catalogue.choose(["port-in-use"], [])
    assert set(readers_for(chosen)) == {"port", "port_ranges"}
    assert set(readers_for(chosen, also=["software"])) == {"port", "port_ranges", "software"}


def test_every_fact_that_is_read_is_needed_by_a_fault() -> None:
    assert set(readers_for(catalogue.choose([], []))) == set(READERS)


def test_a_fact_that_was_not_asked_for_is_a_gap() -> None:
    facts = collect(a_plan(), readers(["port"]), seconds=20)
    assert facts.shm == Unread(why="not asked for")


def test_typed_facts_survive_the_way_through_the_pipe() -> None:
    facts = collect(a_plan(), fake_readers(), seconds=10)
    healthy = a_machine()
    for name in READERS:
        assert getattr(facts, name) == getattr(healthy, name)
    assert not facts.timed_out


def test_a_hanging_reader_is_skipped_and_the_rest_is_there() -> None:
    facts = collect(a_plan(), fake_readers(shm=hang), seconds=3)
    assert facts.shm == Unread(why="no answer within 3 s", timed_out=True)
    assert facts.timed_out
    by_slug = {f.slug: f for f in catalogue.check(facts, catalogue.choose([], []))}
    assert by_slug["shm-too-small"].status is Status.SKIPPED
    assert by_slug["shm-too-small"].reason == "no answer within 3 s"
    assert by_slug["port-in-use"].status is Status.OK


def test_a_reader_that_answers_nonsense_is_refused() -> None:
    facts = collect(a_plan(), fake_readers(shm=lambda _plan: "a string"), seconds=10)
    assert isinstance(facts.shm, Unread)
    assert "not understood" in facts.shm.why


@pytest.mark.parametrize("name", sorted(READERS))
def test_each_real_reader_answers_here(name: str) -> None:
    """Nothing on an ordinary machine may make a reader raise something unexpected."""
    facts = collect(a_plan(), fake_readers(**readers([name])), seconds=20)
    answer = getattr(facts, name)
    if isinstance(answer, Unread):  # only what a machine may honestly refuse
        assert name in {"kernel_log", "clock", "security", "cgroup", "own_name"}, answer
    if name == "shm":
        assert isinstance(answer, Shm)


def test_names_that_are_no_text_do_not_cost_the_answer() -> None:
    folder = known(a_machine().folders)[0]
    odd = msgspec.structs.replace(folder, path="/data/caf\udce9")
    facts = collect(a_plan(), fake_readers(folders=lambda _plan: (odd,)), seconds=10)
    assert facts.folders == (msgspec.structs.replace(folder, path="/data/caf�"),)


def test_a_driver_has_more_time_than_the_rest() -> None:
    def slow_driver(_plan: Plan) -> object:
        time.sleep(1.0)
        return a_machine().nvidia

    facts = collect(a_plan(), fake_readers(nvidia=slow_driver, shm=hang), seconds=0.5)
    assert facts.nvidia == a_machine().nvidia
    assert isinstance(facts.shm, Unread)


def test_gpus_are_tried_only_when_the_driver_has_been_asked() -> None:
    """A program that tries them would be seen as one that holds their memory."""

    def probe(_plan: Plan) -> object:
        return msgspec.structs.replace(known(a_machine().cuda), version=str(time.monotonic()))

    def slow_driver(_plan: Plan) -> object:
        time.sleep(0.5)
        return msgspec.structs.replace(known(a_machine().nvidia), cuda=str(time.monotonic()))

    facts = collect(a_plan(), fake_readers(nvidia=slow_driver, cuda=probe), seconds=10)
    assert float(known(facts.cuda).version) > float(known(facts.nvidia).cuda)


def test_other_nodes_wait_as_long_as_a_driver_may_take() -> None:
    assert longest(0.8) > deadline.DRIVER_SECONDS
    assert longest(100) > 100


def test_what_takes_long_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "SLOW", 0.05)
    monkeypatch.setattr(deadline, "DRIVER_SECONDS", 0.4)
    said: list[str] = []
    slow: dict[str, Reader] = {"nvidia": hang, "rdma_ports": hang, "cuda": hang}
    collect(a_plan(), slow, seconds=0.3, say=said.append)
    assert said == ["waiting for NVIDIA's driver, the RDMA cards, up to 1 s"]


def test_nothing_is_said_of_what_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "SLOW", 20.0)
    said: list[str] = []
    collect(a_plan(), fake_readers(), seconds=20, say=said.append)
    assert said == []
