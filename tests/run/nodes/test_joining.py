"""A launcher looks for its coordinator on real hosts: what it sees, and what it says meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.drill.lab import Host
from holdfast.nodes.channel_errors import ChannelError, Refused, WrongToken
from holdfast.nodes.reach.meeting import MeetingPlan
from holdfast.nodes.reach.shared_token import handed_token
from holdfast.nodes.token import Token, fresh_token, open_token
from holdfast.run.nodes.joining import (
    NOTHING_CHANGES,
    MayChange,
    ThisNodeIsMeant,
    join_coordinator,
    look,
)
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.meeting_sight import MeetingSight
from holdfast.run.nodes.messages import NodeCard
from holdfast.system.filesystem import filesystem_at
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("joining-lab")]

PORT = 29400
TOKEN = open_token("holdfast run")
Two = tuple[Host, Host]


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with lab_or_skip() as lab:
        a, b = lab.hosts(2)
        a.firewall(f"tcp dport {PORT + 2} drop", f"tcp dport {PORT + 3} reject")
        yield a, b


@contextlib.contextmanager
def coordinator(host: Host, port: int, *, token: Token = TOKEN, run: str = "") -> Iterator[None]:
    with host.inside():
        link = ListeningLink(
            [host.address], port, token=token, node=host.name, run="r", rendezvous_id=run
        )
    try:
        yield
    finally:
        link.close()


def join(
    here: Host,
    there: str,
    port: int,
    say: Callable[[str], None],
    *,
    run: str = "",
    token: Token = TOKEN,
    seconds: float,
    may_change: MayChange = NOTHING_CHANGES,
) -> str:
    """The name that it was admitted by."""
    plan = MeetingPlan(
        nodes=2,
        nodes_source="--nnodes",
        port=port,
        port_source="--rdzv-endpoint",
        host=there,
        host_source="--rdzv-endpoint",
    )
    with here.inside():
        link = join_coordinator(
            plan,
            token=token,
            card=NodeCard(name=here.name, identity="1", nproc=1),
            rendezvous_id=run,
            seconds=seconds,
            own=(here.address,),
            say=say,
            may_change=may_change,
        )
    name = link.admitted.name
    link.close()
    return name


def test_what_is_at_the_meeting_place_is_seen(two: Two) -> None:
    a, b = two
    with a.inside():
        stranger = socket.create_server((a.address, PORT + 4))
    places = {
        "nothing listens": (a.address, PORT + 1),
        "dropped": (a.address, PORT + 2),
        "rejected": (a.address, PORT + 3),
        "another program": (a.address, PORT + 4),
        "nobody's address": ("10.77.0.99", PORT),
        "no route": ("192.0.2.1", PORT),
    }

    def seen(place: tuple[str, int]) -> MeetingSight:
        with b.inside():
            return look(*place)

    with stranger, ThreadPoolExecutor(len(places)) as threads:
        sights = dict(zip(places, threads.map(seen, places.values()), strict=True))
    nobody = sights.pop("nobody's address")
    assert nobody.error in ("ETIMEDOUT", "EHOSTUNREACH")  # as the kernel gives up before us or not
    assert nobody.no_neighbour or nobody.error == "EHOSTUNREACH"
    assert not any(sight.no_neighbour for sight in sights.values())
    assert {name: (sight.error, sight.answered) for name, sight in sights.items()} == {
        "nothing listens": ("ECONNREFUSED", ""),
        "dropped": ("ETIMEDOUT", ""),
        "rejected": ("ECONNREFUSED", ""),
        "another program": ("", "something else"),
        "no route": ("ENETUNREACH", ""),
    }


def test_a_launcher_of_another_run_is_refused_and_told_why(two: Two) -> None:
    a, b = two
    said: list[str] = []
    with coordinator(a, PORT + 5, run="x"), pytest.raises(Refused, match="it belongs to run y"):
        join(b, a.address, PORT + 5, said.append, run="y", seconds=0.1)
    assert said[0].endswith("refused this node: it belongs to run y, this is run x")


def test_a_launcher_without_the_token_is_told_how_to_get_it(two: Two) -> None:
    a, b = two
    said: list[str] = []
    with coordinator(a, PORT + 6, token=fresh_token()), pytest.raises(WrongToken):
        join(b, a.address, PORT + 6, said.append, seconds=0.1)
    assert said[1] == "hint: set HOLDFAST_TOKEN to the same secret on every node"


def test_a_token_that_node_0_hands_over_late_is_used(two: Two, tmp_path: Path) -> None:
    a, b = two
    said: list[str] = []
    named: list[str] = []
    environment = {"HOME": str(tmp_path)}
    shared = {filesystem_at(str(tmp_path))}  # for this test it is a file server
    later = MayChange(
        lambda: handed_token("4711.0", environment, seconds=0, shared=shared), waits_for_token=True
    )
    secret = fresh_token()
    with coordinator(a, PORT + 8, token=secret):
        waiting = threading.Thread(
            target=lambda: named.append(
                join(b, a.address, PORT + 8, said.append, seconds=60, may_change=later)
            )
        )
        waiting.start()
        end = time.monotonic() + 30
        while not said and time.monotonic() < end:
            time.sleep(0.05)
        (tmp_path / ".holdfast-check-4711.0").touch(mode=0o600)
        (tmp_path / ".holdfast-check-4711.0").write_bytes(secret.secret)
        waiting.join(30)
    assert named == ["b"]
    assert "wants a token, and this node has none" in said[0]


def test_a_name_that_resolves_later_may_be_that_of_this_node(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = two
    said: list[str] = []
    real = socket.getaddrinfo

    def late(host: str, *rest: Any, **named: Any) -> Any:
        if host != "late.invalid":
            return real(host, *rest, **named)
        if not said:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(b.address, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    meant = MayChange(is_meant=lambda resolved: b.address in resolved)
    with pytest.raises(ThisNodeIsMeant) as found:
        join(b, "late.invalid", PORT + 1, said.append, seconds=60, may_change=meant)
    assert found.value.resolved == (b.address,)
    assert "does not resolve on this node" in said[0]


def test_a_coordinator_that_comes_late_is_waited_for(two: Two) -> None:
    a, b = two
    said: list[str] = []
    named: list[str] = []
    waiting = threading.Thread(
        target=lambda: named.append(join(b, a.address, PORT + 7, said.append, seconds=60))
    )
    waiting.start()
    end = time.monotonic() + 30
    while not said and time.monotonic() < end:
        time.sleep(0.05)
    with coordinator(a, PORT + 7):
        waiting.join(30)
    assert named == ["b"]
    assert "refuses connections: that machine is up" in said[0]


def test_what_was_seen_is_in_the_error_when_the_time_is_over(two: Two) -> None:
    a, b = two
    with pytest.raises(ChannelError, match=r"refuses connections.*\(waited 0.1 s\)"):
        join(b, a.address, PORT + 1, lambda _: None, seconds=0.1)
