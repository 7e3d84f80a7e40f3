"""Acts on lab hosts, on real namespaces: what they break, and that lifting makes it whole."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.drill.injection import Act
from holdfast.analysis.drill.network_acts import (
    BlockPort,
    BreakName,
    BreakPath,
    KeepAway,
    LoseHost,
    ShiftClock,
    SplitNetwork,
    TypeOnHost,
)
from holdfast.analysis.drill.records import BeganRecord
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.lab import Host, Lab, LabInterface
from holdfast.drill.lab_stage import ENDPOINT_PORT
from holdfast.drill.layout import JobFolder
from holdfast.drill.stage import CannotInjectHere, Stage, wait_until
from tests.drill.acts.lab_scene import a_rehearsal, a_stage
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab")]
IP_MTU_DISCOVER, PROBE = 10, 3


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Lab, list[Host]]]:
    with lab_or_skip() as lab:
        yield lab, [lab.host(name, [LabInterface(mtu=9000)]) for name in ("alpha", "bravo")]


@pytest.fixture
def stage(two: tuple[Lab, list[Host]], tmp_path: Path) -> Iterator[Stage]:
    lab, hosts = two
    yield a_stage(lab, hosts, tmp_path)
    lab.restore()
    for host in hosts:
        host.firewall()
        host.restore()
        host.kill_all()


def inject(act: Act, stage: Stage) -> None:
    carrier_of(act).prepare(act, stage)
    carrier_of(act).inject(act, stage)


def lift(act: Act, stage: Stage) -> None:
    carrier_of(act).lift(act, stage)


def connects(a: Host, b: Host, port: int = ENDPOINT_PORT) -> bool:
    with b.inside():
        server = socket.create_server((b.address, port))
    with a.inside():
        client = socket.socket()
    with server, client:
        client.settimeout(0.5)
        with contextlib.suppress(OSError):
            client.connect((b.address, port))
            return True
    return False


def arrived(a: Host, b: Host, *, size: int = 100, count: int = 1) -> int:
    """Datagrams from a to b."""
    with b.inside():
        receiver = socket.socket(type=socket.SOCK_DGRAM)
        receiver.bind((b.address, 0))
    with a.inside():
        sender = socket.socket(type=socket.SOCK_DGRAM)
    with receiver, sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PROBE)
        receiver.settimeout(0.5)
        for _ in range(count):
            sender.sendto(bytes(size), receiver.getsockname())
        got = 0
        with contextlib.suppress(TimeoutError):
            while got < count:
                receiver.recv(65536)
                got += 1
        return got


def both(stage: Stage) -> tuple[Host, Host]:
    return stage.hosts["alpha"], stage.hosts["bravo"]


@pytest.mark.parametrize("power", [False, True])
def test_a_host_is_lost_and_comes_back_with_a_launcher(stage: Stage, *, power: bool) -> None:
    alpha, bravo = both(stage)
    stage.start_launcher("alpha")
    stage.start_launcher("bravo")
    lost, other = stage.launchers["bravo"].process, stage.launchers["alpha"].process
    act = LoseHost(host="bravo", power=power)
    inject(act, stage)
    assert not connects(alpha, bravo)
    assert stage.folder.go(0).exists()  # the rank that waits goes on, into the fault
    if power:
        assert lost.wait(30) == -9
    else:
        assert lost.poll() is None
        lost.kill()
    lift(act, stage)
    assert wait_until(lambda: connects(alpha, bravo), seconds=30)
    assert stage.launchers["bravo"].process is not lost
    assert stage.launchers["bravo"].process.poll() is None
    assert stage.launchers["alpha"].process is other
    assert other.poll() is None


def test_no_packet_passes_a_partition_until_it_heals(stage: Stage) -> None:
    alpha, bravo = both(stage)
    stage.start_launcher("alpha")
    act = SplitNetwork(groups=(("alpha",), ("bravo",)))
    inject(act, stage)
    assert not connects(alpha, bravo)
    assert stage.launchers.keys() == {"alpha"}
    lift(act, stage)
    assert wait_until(lambda: connects(alpha, bravo), seconds=30)
    assert stage.launchers.keys() == {"alpha", "bravo"}


def test_a_path_loses_some_packets(stage: Stage) -> None:
    alpha, bravo = both(stage)
    act = BreakPath(ends=("alpha", "bravo"), how="loss", amount=30)
    inject(act, stage)
    assert 40 < arrived(alpha, bravo, count=200) < 195
    lift(act, stage)
    assert arrived(alpha, bravo, count=200) == 200


def test_a_path_loses_large_packets(stage: Stage) -> None:
    alpha, bravo = both(stage)
    assert arrived(alpha, bravo, size=4000)
    act = BreakPath(ends=("alpha", "bravo"), how="mtu", amount=1500)
    inject(act, stage)
    assert not arrived(alpha, bravo, size=4000)
    assert arrived(alpha, bravo, size=1000)
    lift(act, stage)
    assert arrived(alpha, bravo, size=4000)


def test_one_direction_is_broken(stage: Stage) -> None:
    alpha, bravo = both(stage)
    assert arrived(alpha, bravo)  # so that both know each other's address
    act = BreakPath(ends=("alpha", "bravo"), how="drop", one_way=True)
    inject(act, stage)
    assert not arrived(alpha, bravo)
    assert arrived(bravo, alpha)
    lift(act, stage)
    assert arrived(alpha, bravo)


@pytest.mark.parametrize("answer", ["drop", "reject"])
def test_a_firewall_blocks_the_endpoint_or_all_else(stage: Stage, answer: str) -> None:
    alpha, bravo = both(stage)
    only_it = BlockPort(host="alpha", blocked="endpoint", answer=answer)  # type: ignore[arg-type]
    inject(only_it, stage)
    assert not connects(bravo, alpha)
    assert connects(bravo, alpha, 29999)
    lift(only_it, stage)
    all_else = BlockPort(host="alpha", blocked="all but the endpoint", answer=answer)  # type: ignore[arg-type]
    inject(all_else, stage)
    assert connects(bravo, alpha)
    assert not connects(bravo, alpha, 29999)
    assert connects(alpha, bravo, 29999)
    lift(all_else, stage)
    assert connects(bravo, alpha, 29999)


def test_a_name_is_wrong_on_one_host_only(stage: Stage) -> None:
    alpha, bravo = both(stage)
    right = alpha.address

    def known(host: Host) -> str:
        assert stage.lab
        return stage.lab.run(host, ["getent", "hosts", "alpha"]).stdout.partition(" ")[0]

    for address in ("127.0.1.1", ""):
        act = BreakName(host="bravo", name="alpha", address=address)
        inject(act, stage)
        assert known(bravo) == address
        assert known(alpha) == right
        lift(act, stage)
        assert known(bravo) == right


def test_a_clock_is_ahead_and_its_times_are_corrected(stage: Stage) -> None:
    act = ShiftClock(host="bravo", seconds=90)
    inject(act, stage)
    assert stage.lab
    ahead = stage.lab.run(stage.hosts["bravo"], ["date", "+%s"])
    assert ahead.stderr == ""
    there = float(ahead.stdout)
    assert there - time.time() > 60
    began = BeganRecord(t=there, rank=1, world=2, attempt=0, pid=4, host="bravo")
    line = json.dumps({"kind": "began", **{f: getattr(began, f) for f in began.__struct_fields__}})
    (stage.folder.witness / "rank-1.attempt-0.4.jsonl").write_text(line + "\n")
    assert stage.attempts()[0].began.t == there - 90


def test_a_host_stays_away_until_it_is_called(stage: Stage) -> None:
    stage.start_launcher("alpha")
    act = KeepAway(host="bravo")
    inject(act, stage)
    assert stage.absent == {"bravo"}
    lift(act, stage)
    assert not stage.absent
    assert stage.launchers.keys() == {"alpha", "bravo"}


def test_a_job_that_is_over_is_started_as_a_whole_not_host_by_host(stage: Stage) -> None:
    act = KeepAway(host="bravo")
    inject(act, stage)
    lift(act, stage)
    assert not stage.absent
    assert not stage.launchers


def test_one_host_is_told_something_else(stage: Stage) -> None:
    act = TypeOnHost(
        host="bravo", environment=(("GLOO_SOCKET_IFNAME", "eth7"),), flags=("--rdzv-id", "other")
    )
    inject(act, stage)
    assert stage.environment_on == {"bravo": {"GLOO_SOCKET_IFNAME": "eth7"}}
    assert stage.flags_on == {"bravo": ["--rdzv-id", "other"]}
    lift(act, stage)
    assert not stage.environment_on
    assert not stage.flags_on


@pytest.mark.parametrize(
    "act", [LoseHost(host="bravo"), SplitNetwork(groups=(("alpha",), ("bravo",)))]
)
def test_on_one_machine_none_of_it_can_be_done(act: Act, tmp_path: Path) -> None:
    stage = Stage(a_rehearsal(("",)), JobFolder(tmp_path / "job").make(), checkpoints=None)
    with pytest.raises(CannotInjectHere, match="--hosts 2"):
        inject(act, stage)
