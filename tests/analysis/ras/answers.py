"""Answers of RAS for tests, through the real reader."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.analysis.ras import reading
from holdfast.analysis.ras.answer import RasAnswer
from tests.system import ras_server
from tests.system.ras_server import FakeJob, job


def answer(made: FakeJob, *, at: float = 0.0, text: bool = False, **fields: object) -> RasAnswer:
    data = (ras_server.as_text if text else ras_server.as_json)(made)
    found = reading.read(data.encode(), source="NCCL RAS")
    assert found is not None
    return msgspec.structs.replace(found, at=at, **fields)


def launched(
    *counts: int,
    at: float = 0.0,
    silent: Sequence[int] = (),
    dead: Sequence[int] = (),
    hosts: Sequence[str] = (),
    states: dict[int, str] | None = None,
) -> RasAnswer:
    """One communicator, pids from 600."""
    made = job(*counts, silent=silent, dead=dead, hosts=hosts)
    return answer(made, at=at, states=states or {})
