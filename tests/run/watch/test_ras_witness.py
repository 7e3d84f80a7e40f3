"""NCCL's RAS beside a run: asked without waiting, one job among several, two answers compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.machine import Unread
from holdfast.analysis.ras import judge
from holdfast.analysis.scene.ras_look import RasLook
from holdfast.run.launch.places import RunPlaces
from holdfast.run.watch import observer as observing
from holdfast.run.watch import ras_witness
from holdfast.run.watch.observer import Observer
from holdfast.run.watch.ras_witness import RasWitness
from tests.run.watched import SLEEP, process, watched
from tests.system import ras_server
from tests.system.ras_server import job

PLENTY = 20.0


def at(port: int, **more: str) -> RasWitness:
    return RasWitness({"NCCL_RAS_ADDR": f"127.0.0.1:{port}", **more})


def seen(witness: RasWitness) -> RasLook:
    look = witness.look
    assert isinstance(look, RasLook), look
    return look


def test_two_answers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "APART", 0.01)
    with ras_server.serving(job(7, 7, 6)) as port:
        witness = at(port)
        witness.ask([602])
        assert json.loads(witness.wait(PLENTY))["nccl_version"] == "2.28.9"
        assert seen(witness).before is None
        time.sleep(0.02)
        witness.ask([602])
        witness.wait(PLENTY)
    look = seen(witness)
    assert look.before is not None
    assert judge.lasting(look.before, look.answer)
    witness.begin()
    assert witness.look is None


def test_it_never_waits_longer_than_it_may_and_asks_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ras_witness, "SECONDS", 0.5)
    with ras_server._listener(0) as stopped:
        witness = at(stopped.getsockname()[1])
        begun = time.monotonic()
        for _ in range(3):
            witness.ask([602])
            assert witness.wait(0.01) == b""
        assert time.monotonic() - begun < 0.4
        assert witness.look is None
        witness.wait(PLENTY)
    look = witness.look
    assert isinstance(look, Unread)
    assert "did not answer" in look.why


def test_an_answer_stays_until_there_is_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_witness, "SECONDS", 0.3)
    with ras_server.serving(job(7, 7, 6)) as port:
        witness = at(port)
        witness.ask([602])
        witness.wait(PLENTY)
    answer = seen(witness).answer
    with ras_server._listener(port):
        witness.ask([602])
        assert seen(witness).answer == answer
        witness.wait(PLENTY)
    assert seen(witness).answer == answer


@pytest.mark.parametrize("more", [{"NCCL_RAS_ENABLE": "0"}, {"NCCL_RAS_ADDR": "node1:28028"},
                                  {"NCCL_RAS_ADDR": "what ever"}])  # fmt: skip
def test_it_is_not_asked_where_it_is_off_or_needs_a_name_server(more: dict[str, str]) -> None:
    with ras_server.serving(job(7, 7)) as port:
        witness = RasWitness({"NCCL_RAS_ADDR": f"127.0.0.1:{port}", **more})
        witness.ask([600])
        assert witness.wait(PLENTY) == b""
        assert witness.look is None


def test_another_job_on_the_port_is_no_witness() -> None:
    with ras_server.serving(job(7, 6, first_pid=900)) as port:
        witness = at(port)
        witness.ask([600, 601])
        assert witness.wait(PLENTY) == b""
        assert witness.look is None


def test_only_what_listens_may_know_more() -> None:
    with ras_server.serving(job(7, 6)) as port:
        assert at(port).may_know_more()
        assert not at(port, NCCL_RAS_ENABLE="0").may_know_more()
    assert not at(port).may_know_more()


@pytest.fixture
def places(tmp_path: Path) -> Iterator[RunPlaces]:
    made = RunPlaces(RunPaths(str(tmp_path), "run"), lambda news: None)
    yield made
    made.close()


def test_evidence_has_it_in_the_report_and_in_the_folder(
    places: RunPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "RAS_WAIT", PLENTY)
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        with ras_server.serving(job(7, 6, first_pid=child.pid)) as port:
            monkeypatch.setenv("NCCL_RAS_ADDR", f"localhost:{port}")
            observer = Observer(places=places, memory_kills=lambda: 0)
            observer.ranks = [rank]
            observer.take_evidence()
            assert observer.ras.look is None
            assert observer.ras.may_know_more()
            observer.take_evidence(ask_ras=True)
            assert not observer.ras.may_know_more()
        observer.ranks = []
        observer.close()
        kept = Path(observer.evidence_folder) / "ncclras.txt"
        assert json.loads(kept.read_text())["communicators_count"] == 1
        assert child.pid in seen(observer.ras).answer.pids
