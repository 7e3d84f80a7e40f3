"""The lab itself: every fault it can make, beside the same path while it is well."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from holdfast.drill.lab import Host, Lab, LabError, LabInterface, LabUnavailableError
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab")]

IP_MTU_DISCOVER, PROBE = 10, 3


@pytest.fixture(scope="module")
def four() -> Iterator[tuple[Lab, list[Host]]]:
    with lab_or_skip() as lab:
        yield lab, lab.hosts(4, mtu=9000)


@pytest.fixture
def healthy(four: tuple[Lab, list[Host]]) -> Iterator[tuple[Lab, list[Host]]]:
    yield four
    four[0].restore()


@contextlib.contextmanager
def listener(host: Host, port: int = 29500) -> Iterator[socket.socket]:
    with host.inside():
        server = socket.create_server((host.address, port))
    with server:
        yield server


def connect(host: Host, to: Host, port: int = 29500, seconds: float = 10.0) -> str:
    with host.inside():
        client = socket.socket()
    with client:
        client.settimeout(seconds)
        try:
            client.connect((to.address, port))
        except TimeoutError:
            return "timeout"
        except OSError as problem:
            return errno.errorcode[problem.errno or 0]
        return "ok"


def is_silent(host: Host, to: Host, port: int = 29500) -> bool:
    return connect(host, to, port, seconds=0.3) == "timeout"


def datagrams(host: Host, to: Host, sizes: list[int], port: int = 5000) -> list[int]:
    """The sizes that arrive of those sent, in their order, and a last one of 1 byte: what is
    not there before it was lost."""
    with to.inside():
        receiver = socket.socket(type=socket.SOCK_DGRAM)
    with host.inside():
        sender = socket.socket(type=socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        receiver.bind((to.address, port))
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PROBE)
        for size in sizes:
            sender.sendto(bytes(size), (to.address, port))
        arrived: list[int] = []
        while 1 not in arrived:
            sender.sendto(bytes(1), (to.address, port))
            while select.select([receiver], [], [], 0.1)[0]:
                arrived.append(len(receiver.recv(65535)))
                if arrived[-1] == 1:
                    break
        return arrived[:-1]


def test_hosts_have_their_own_name_files_and_processes(
    healthy: tuple[Lab, list[Host]],
) -> None:
    lab, (a, b, *_) = healthy
    looks = ["hostname", "cat /proc/sys/kernel/random/boot_id", "ls /sys/class/net",
             "getent hosts b", "touch /dev/shm/own /run/own", "ps -e -o comm="]  # fmt: skip
    done = lab.run(a, ["sh", "-c", "; ".join(looks)])
    assert done.stdout.split() == [
        "a", a.boot_id, "e0", "lo", b.address, "b", "cat", "sh", "ps",
    ], done  # fmt: skip
    assert a.boot_id != b.boot_id
    assert a.path("/run/own").exists()
    assert not b.path("/run/own").exists()
    assert not b.path("/dev/shm/own").exists()
    assert socket.gethostname() != "a"


def test_a_host_may_believe_a_name_of_its_own(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, *_) = healthy
    a.resolves("a", "127.0.1.1")
    try:
        assert lab.run(a, ["getent", "hosts", "a"]).stdout.split() == ["127.0.1.1", "a"]
        assert lab.run(b, ["getent", "hosts", "a"]).stdout.split() == [a.address, "a"]
        a.resolves("a", None)
        assert lab.run(a, ["getent", "hosts", "a"]).returncode == 2
    finally:
        a.resolves("a", a.address)


def test_processes_are_real_children_with_signals_and_input(
    healthy: tuple[Lab, list[Host]], tmp_path: object
) -> None:
    lab, (a, *_) = healthy
    assert lab.run(a, ["cat"], input="x").stdout == "x"
    assert lab.run(a, ["sh", "-c", "echo $X $HOME; pwd; exit 3"], cwd=str(tmp_path),
                   env={"X": "7", "HOME": None}).stdout == f"7\n{tmp_path}\n"  # fmt: skip
    process = lab.start(a, ["sleep", "100"])
    process.terminate()
    assert process.wait(10) == -15
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run(a, ["sleep", "100"], timeout=0.1)


def test_a_drop_is_silent_and_in_one_direction(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, c, _) = healthy
    with listener(a), listener(b), listener(b, 29501):
        assert connect(a, b) == connect(b, a) == "ok"
        lab.link(a, b).drop(29500, to=b)
        assert is_silent(a, b)
        assert connect(b, a) == connect(c, b) == connect(a, b, 29501) == "ok"
        lab.link(b, a).restore()
        assert connect(a, b) == "ok"


def test_a_drop_of_one_protocol_leaves_the_other(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, *_) = healthy
    assert datagrams(a, b, [9]) == [9]
    lab.link(a, b).drop(protocol="tcp")
    with listener(b):
        assert is_silent(a, b)
    assert datagrams(a, b, [9]) == [9]


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("icmpx port-unreachable", "ECONNREFUSED"),
        ("icmpx admin-prohibited", "EHOSTUNREACH"),
        ("tcp reset", "ECONNREFUSED"),
    ],
)
def test_a_reject_answers(healthy: tuple[Lab, list[Host]], answer: str, seen: str) -> None:
    lab, (a, b, c, _) = healthy
    with listener(b), listener(a):
        lab.link(a, b).reject(29500, to=b, answer=answer)
        assert connect(a, b) == seen
        assert connect(b, a) == connect(c, b) == "ok"
        lab.restore()
        assert connect(a, b) == "ok"


def test_a_hosts_own_firewall(healthy: tuple[Lab, list[Host]]) -> None:
    _, (a, b, *_) = healthy
    with listener(b), listener(a):
        b.firewall("tcp dport 29500 drop")
        assert is_silent(a, b)
        assert connect(b, a) == "ok"
        b.firewall(outgoing=("tcp dport 29500 reject with tcp reset",))
        assert connect(a, b) == "ok"
        assert connect(b, a) == "ECONNREFUSED"
        b.firewall()
        assert connect(b, a) == "ok"
        with pytest.raises(LabError, match="syntax error"):
            b.firewall("tcp dprt 1 drop")


def test_a_small_mtu_on_the_way_is_a_black_hole(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, c, _) = healthy
    sizes = [1472, 1473, 8972]
    assert datagrams(a, b, sizes) == sizes
    lab.link(a, b).mtu(1500)
    assert datagrams(a, b, sizes) == datagrams(b, a, sizes) == [1472]
    assert datagrams(a, c, sizes) == sizes
    lab.restore()
    lab.link(a, b).mtu(1500, to=b)
    assert datagrams(a, b, sizes) == [1472]
    assert datagrams(b, a, sizes) == sizes


def test_a_black_hole_stops_tcp_after_the_handshake(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, *_) = healthy
    for black_hole in (False, True):
        if black_hole:
            lab.link(a, b).mtu(1500)
        with listener(b) as server, a.inside():
            client = socket.create_connection((b.address, 29500), 5)
            accepted, _ = server.accept()
            with client, accepted:
                client.sendall(bytes(1000))
                assert len(accepted.recv(1 << 16)) == 1000
                client.sendall(bytes(8000))
                arrived = select.select([accepted], [], [], 0.5)[0]
                assert bool(arrived) != black_hole


def test_loss_is_a_share_of_the_packets(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, *_) = healthy
    assert len(datagrams(a, b, [100] * 600)) == 600
    lab.link(a, b).loss(30, to=b)
    assert 0.6 < len(datagrams(a, b, [100] * 600)) / 600 < 0.8
    assert len(datagrams(b, a, [100] * 600)) == 600


def test_a_cut_link_and_a_partition(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, c, d) = healthy
    with listener(a), listener(b), listener(c):
        lab.link(a, b).cut()
        assert is_silent(a, b)
        assert is_silent(b, a)
        assert connect(a, c) == connect(b, c) == "ok"
        lab.restore()
        lab.partition([a, b], [c, d])
        assert connect(a, b) == connect(d, c) == "ok"
        assert is_silent(a, c)
        assert is_silent(d, b)
        lab.restore()
        lab.partition([a, b], [c, d], but_port=29500)
        assert connect(a, c) == connect(d, b) == "ok"
        assert is_silent(a, c, 29501)


def test_a_host_is_cut_off_and_joined_again(healthy: tuple[Lab, list[Host]]) -> None:
    _, (a, b, *_) = healthy
    with listener(b):
        b.cut()
        assert is_silent(a, b)
        assert b.path("/sys/class/net/e0/carrier").read_text() == "0\n"
        b.restore()
        assert connect(a, b) == "ok"


def test_a_delay_holds_packets_up_each_way(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, c, _) = healthy
    lab.link(a, b).delay(150)
    for to, least, most in ((b, 0.3, 5.0), (c, 0.0, 0.3)):
        with listener(to):
            start = time.monotonic()
            assert connect(a, to) == "ok"
            assert least <= time.monotonic() - start < most
    assert datagrams(b, a, [100, 8972]) == [100, 8972]
    with pytest.raises(LabError, match="does not add up"):
        lab.link(a, b).loss(3)


def test_a_rate_limits_what_arrives(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, *_) = healthy
    lab.link(a, b).rate(1, to=b)
    start = time.monotonic()
    arrived = sum(datagrams(a, b, [1000] * 4000))
    assert arrived < (1 << 20) * (time.monotonic() - start + 1.1)
    assert sum(datagrams(b, a, [1000] * 2000)) == 2000_000


def test_a_hosts_wall_clock_is_set_and_its_other_clocks_go_on(lab: Lab) -> None:
    a, b = lab.hosts(2)
    try:
        a.clock(3600)
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    ask = [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"]
    (ahead, since_boot), (right, _) = (
        [float(word) for word in lab.run(host, ask).stdout.split()] for host in (a, b)
    )
    assert abs(ahead - right - 3600) < 30
    assert abs(since_boot - time.monotonic()) < 30
    stepped = lab.start(a, [sys.executable, "-c", "import time; input(); print(time.time())"],
                        stdin=subprocess.PIPE)  # fmt: skip
    a.clock(-60)
    assert abs(float(stepped.communicate("\n", 30)[0]) - time.time() + 60) < 30


def test_hosts_with_more_interfaces() -> None:
    docker = LabInterface("docker0", ("172.17.0.1/16",), bridge=True)
    idle = LabInterface("br-idle", ("172.18.0.1/16",), bridge=True, carrier=False)
    with lab_or_skip() as lab:
        a, b = (
            lab.host(name, [LabInterface(), LabInterface("ib0", switch=1), docker, idle], ipv6=True)
            for name in ("a", "b")
        )
        assert a.addresses["ib0"] == ("10.78.0.1", "fd77:78::1")
        assert b.addresses["docker0"] == ("172.17.0.1",)
        state = lab.run(b, ["cat", "/sys/class/net/docker0/operstate",
                            "/sys/class/net/br-idle/operstate"]).stdout.split()  # fmt: skip
        assert state == ["up", "down"]
        with b.inside():
            servers = [socket.create_server((at, 29500), family=socket.AF_INET6 if ":" in at
                                            else socket.AF_INET)
                       for name in ("e0", "ib0") for at in b.addresses[name]]  # fmt: skip
        lab.link(a, b, "ib0").cut()
        reached = []
        for server in servers:
            with a.inside(), contextlib.suppress(TimeoutError):
                socket.create_connection(server.getsockname()[:2], 0.3).close()
                reached.append(server.getsockname()[0])
            server.close()
        assert reached == list(b.addresses["e0"])


def test_a_crashed_host_is_down_and_takes_its_processes_along(lab: Lab) -> None:
    a, b = lab.hosts(2)
    process = lab.start(b, ["sleep", "100"])
    with listener(b):
        assert connect(a, b) == "ok"
        b.crash()
        assert is_silent(a, b)
    assert process.wait(10) == -9
    with pytest.raises(LabError, match="host b is down"):
        lab.run(b, ["true"])
    assert lab.run(a, ["true"]).returncode == 0


def test_a_lab_of_eight_hosts_waits_for_no_timer() -> None:
    """Eight hosts take 0.08 s here; the limit is for a busy machine."""
    start = time.monotonic()
    with lab_or_skip() as lab:
        assert len(lab.hosts(8)) == 8
    assert time.monotonic() - start < 5


def test_the_machines_own_network_is_left_alone(lab: Lab) -> None:
    before = socket.if_nameindex()
    a, *_ = lab.hosts(2)
    with a.inside():
        assert [name for _, name in socket.if_nameindex()] == ["lo", "e0"]
    assert socket.if_nameindex() == before
