"""What a rank reports: whole lines, also beside other writers, and never an exception."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.rank import delivery, events, own_page


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "events.jsonl"
    monkeypatch.setenv(delivery.EVENTS, str(file))
    yield file
    events.forget()


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_one_line_an_event(told: Path) -> None:
    events.tell("saved", step=40, path="/c/step-000000040", stall=0.25)
    events.tell("odd", value=Path("/x"), text="a\nb", name="\udcff")
    first, second = lines(told)
    assert (first["kind"], first["step"], first["stall"]) == ("saved", 40, 0.25)
    assert isinstance(first["t"], float)
    assert (second["value"], second["text"]) == ("/x", "a\nb")


def test_a_field_cannot_pretend_to_be_the_kind(told: Path) -> None:
    events.tell("saved", t="never")
    (event,) = lines(told)
    assert (event["kind"], event["t"]) != ("saved", "never")


def test_lines_of_many_threads_stay_whole(told: Path) -> None:
    def tell(number: int) -> None:
        for step in range(50):
            events.tell("saved", step=step, who=number, pad="x" * 3000)

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(told)) == 200


def test_without_a_launcher_nothing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(delivery.EVENTS, raising=False)
    monkeypatch.chdir(tmp_path)
    events.tell("saved", step=1)
    assert list(tmp_path.iterdir()) == []


def test_it_never_breaks_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(own_page, "_complained", False)
    monkeypatch.setenv(delivery.EVENTS, str(tmp_path / "no" / "such" / "folder"))
    events.tell("saved", step=1)
    events.tell("saved", step=2)
    assert capfd.readouterr().err.count("monitoring is disabled in this rank") == 1


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="fork with threads warns")
def test_a_forked_child_does_not_speak_for_its_rank(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events.adopt(str(file))
    try:
        child = os.fork()
        if not child:
            events.tell("saved", step=1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not file.exists()
        events.tell("saved", step=2)
        assert [event["step"] for event in lines(file)] == [2]
    finally:
        events.forget()
