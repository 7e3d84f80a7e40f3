"""Whether a rank serves the store: by the address that is asked for, in a process with torch."""

from __future__ import annotations

import socket
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.rank import agent_store
from holdfast.rank.torch_hooks import group_timeout
from tests.rank.ranks import free_port

GIVEN = 29400


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(agent_store, "_given_port", str(GIVEN))


def asked(port: int, rank: int) -> dict[str, Any]:
    return {"hostname": "127.0.0.1", "port": port, "rank": rank}


def test_the_launchers_store_is_never_served_by_a_rank() -> None:
    assert not agent_store._rank_must_serve(asked(GIVEN, 0))
    assert agent_store.is_agents(GIVEN)


def test_rank_0_serves_an_address_of_the_scripts_own_where_nothing_listens() -> None:
    port = free_port()
    assert agent_store._rank_must_serve(asked(port, 0))
    assert not agent_store._rank_must_serve(asked(port, 1))
    with socket.create_server(("127.0.0.1", port)):
        assert not agent_store._rank_must_serve(asked(port, 0)), "a launcher of the script's own"


def test_without_the_flag_nothing_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert not agent_store.is_agents(GIVEN)


class Mute:
    @property
    def options(self) -> object:
        raise RuntimeError("Backend mpi does not implement getBackendOptions")


SAYS = SimpleNamespace(options=SimpleNamespace(_timeout=timedelta(seconds=30)))


class Group:
    def __init__(self, **backends: object) -> None:
        self._device_types = list(backends)
        self._get_backend = backends.__getitem__


@pytest.mark.parametrize(
    ("group", "seconds"),
    [
        (Group(cpu=SAYS), 30.0),
        (Group(cpu=Mute(), cuda=SAYS), 30.0),
        (Group(cpu=Mute()), 0.0),
        (Group(cpu=SimpleNamespace()), 0.0),  # 2.8's wrapper for TORCH_DISTRIBUTED_DEBUG=DETAIL
        (SimpleNamespace(), 0.0),
        (None, 0.0),
    ],
)
def test_a_backend_that_does_not_say_costs_no_more_than_its_timeout(
    group: object, seconds: float
) -> None:
    assert group_timeout(group) == seconds
