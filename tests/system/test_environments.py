"""Environments of other processes: read once, and never longer than a second."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from holdfast.system import environments
from holdfast.system.environments import EnvironmentReader
from holdfast.system.proc import row_of


def test_what_a_process_was_started_with() -> None:
    with subprocess.Popen(["sleep", "60"], env={"A": "1", "RANK": "3"}) as child:
        row = row_of(child.pid)
        assert row
        reader = EnvironmentReader()
        assert environments.value(reader.of([row])[child.pid], b"RANK") == b"3"
        child.kill()
        child.wait()
        assert reader.of([row])[child.pid], "what was read stays known"
        assert EnvironmentReader().of([row]) == {child.pid: []}


def test_one_that_hangs_costs_a_second_once_and_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a page fault of it waits for a dead file server: the reader waits with it."""

    def read(pid: int) -> list[bytes]:
        if pid == 1:
            signal.pause()
        return [b"A=1"]

    monkeypatch.setattr(environments, "environment", read)
    monkeypatch.setattr(environments, "SECONDS", 0.5)
    me, first = row_of(os.getpid()), row_of(1)
    assert me
    assert first
    reader = EnvironmentReader()
    assert reader.of([me, first]) == {me.pid: [b"A=1"], 1: []}
    monkeypatch.setattr(environments, "_read", lambda _: pytest.fail("asked again"))
    assert reader.of([me, first]) == {me.pid: [b"A=1"], 1: []}
