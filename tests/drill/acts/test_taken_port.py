"""A real listener on a port that no outgoing connection takes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import TakePort
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.acts.taken_port import RANGE
from tests.drill.acts.stand_in import a_stage


def bound(port: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(("0.0.0.0", port))


def test_the_port_is_taken_until_it_is_lifted(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), TakePort()
    carrier = carrier_of(act)
    carrier.prepare(act, stage)
    option, port = stage.flags
    assert option == "--master-port"
    assert stage.checks_first
    assert int(port) < int(RANGE.read_text().split()[0])
    with pytest.raises(OSError, match="in use"):
        bound(int(port))
    carrier.lift(act, stage)
    bound(int(port))
    assert stage.undo() == []
