"""Against a real etcd, and against what is not one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.nodes.etcd.access import EtcdAccess, etcd_access
from holdfast.nodes.etcd.client import Absent, Delete, EtcdClient, Put, Unchanged
from holdfast.nodes.etcd.etcd_errors import (
    EtcdDenied,
    EtcdError,
    EtcdTooOld,
    EtcdUnreachable,
    LeaseExpired,
    NoLeader,
    NotEtcd,
)
from tests.drill.lab.etcd import Etcd

pytestmark = pytest.mark.xdist_group("etcd")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as made:
        yield made


@pytest.fixture
def client(etcd: Etcd) -> EtcdClient:
    return EtcdClient(etcd.access())


@contextlib.contextmanager
def answering(reply: bytes) -> Iterator[EtcdClient]:
    """Something that listens and sends this, whatever it is asked; b'' says nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ones: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = server.accept()
                    open_ones.append(one)
                    if reply:
                        one.recv(65536)
                        one.sendall(reply)
                        one.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        yield EtcdClient(EtcdAccess((("127.0.0.1", server.getsockname()[1]),)))
        server.shutdown(socket.SHUT_RDWR)
        for one in open_ones:
            one.close()


def http_reply(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def test_a_key_is_created_once_changed_and_removed(client: EtcdClient) -> None:
    assert client.version().startswith("3.")
    key = "/holdfast/once/key ü"
    assert client.change([Absent(key)], [Put(key, "1")])
    assert not client.change([Absent(key)], [Put(key, "2")])
    stored = client.read("/holdfast/once/")[key]
    assert stored.value == "1"
    assert client.change([Unchanged(key, stored.created)], [Put(key, "3")])
    assert client.read("/holdfast/once/")[key].value == "3"
    assert client.change([], [Delete(key)])
    assert client.read("/holdfast/once/") == {}
    assert not client.change([Unchanged(key, stored.created)], [Put(key, "4")])


def test_a_lease_takes_its_keys_with_it(client: EtcdClient) -> None:
    lease = client.grant(60)
    client.change([], [Put("/holdfast/lease/key", "", lease)])
    assert client.read("/holdfast/lease/")["/holdfast/lease/key"].lease == lease
    assert client.keep_alive(lease)
    client.revoke(lease)
    assert client.read("/holdfast/lease/") == {}
    assert not client.keep_alive(lease)
    client.revoke(lease)
    with pytest.raises(LeaseExpired):
        client.change([], [Put("/holdfast/lease/key", "", lease)])


def test_a_member_that_is_gone_is_passed_over(etcd: Etcd) -> None:
    access = EtcdAccess((("127.0.0.1", 1), *etcd.access().endpoints))
    assert EtcdClient(access).version()


def test_nothing_listens() -> None:
    with pytest.raises(EtcdUnreachable, match=r"127.0.0.1:1: Connection refused; \[::1\]:1: "):
        EtcdClient(EtcdAccess((("127.0.0.1", 1), ("::1", 1)))).version()


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(EtcdUnreachable, match=r"no-such-host\.invalid:2379: the name does not"):
        EtcdClient(EtcdAccess((("no-such-host.invalid", 2379),))).version()


def test_a_name_server_that_does_not_answer_holds_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    real, free = socket.getaddrinfo, threading.Event()

    def slow(host: str, *rest: Any, **named: Any) -> Any:
        if host == "etcd.invalid" and not named.get("flags"):
            free.wait(60)
        return real(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with pytest.raises(EtcdUnreachable, match="not resolved in time"):
            EtcdClient(EtcdAccess((("etcd.invalid", 2379),))).version()
    finally:
        free.set()


def test_something_that_says_nothing_is_given_up() -> None:
    with answering(b"") as silent:
        began = time.monotonic()
        with pytest.raises(EtcdUnreachable, match=r"does not answer within 2 s"):
            silent.version()
        assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", NotEtcd, "is not etcd: it sent SSH-2.0-OpenSSH_9.2"),
        (http_reply("<html>hello</html>"), NotEtcd, "is not etcd: it sent <html>hello</html>"),
        (http_reply("{}"), NotEtcd, "is not etcd"),
        (http_reply("Client sent an HTTP request to an HTTPS server."), NotEtcd, "wants TLS"),
        (http_reply('{"etcdserver":"2.3.8"}'), EtcdTooOld, "etcd 2.3.8 at .* has no v3 API"),
    ],
)
def test_what_is_not_the_etcd_we_need_is_named(
    reply: bytes, kind: type[EtcdError], words: str
) -> None:
    with answering(reply) as client, pytest.raises(kind, match=words):
        client.version()


def test_https_to_one_that_speaks_http(etcd: Etcd) -> None:
    client = EtcdClient(EtcdAccess(etcd.access().endpoints, tls=True))
    with pytest.raises(EtcdUnreachable, match="does it speak https"):
        client.version()
    with answering(http_reply("{}")) as other:
        client = EtcdClient(EtcdAccess(other.access.endpoints, tls=True))
        with pytest.raises(NotEtcd, match="does not speak TLS"):
            client.version()


def test_a_certificate_is_checked_and_shown(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", key, "-out", cert),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    files = ("--cert-file", str(cert), "--key-file", str(key), "--trusted-ca-file", str(cert))
    etcd = Etcd(tmp_path, more=(*files, "--client-cert-auth"))
    member = etcd.members[0]
    member.start()
    try:
        named = {"protocol": "https", "cacert": str(cert), "cert": str(cert), "key": str(key)}
        good = EtcdClient(etcd_access(member.endpoint, named, {}))
        deadline = time.monotonic() + 20
        while True:
            try:
                good.version()
                break
            except EtcdUnreachable:
                assert time.monotonic() < deadline, member.log()
                time.sleep(0.1)
        assert good.read("/holdfast/") == {}
        with pytest.raises(NotEtcd, match="its certificate is not valid here"):
            EtcdClient(EtcdAccess(etcd.access().endpoints, tls=True)).version()
        without = EtcdAccess(etcd.access().endpoints, tls=True, ca=str(cert))
        with pytest.raises(EtcdDenied, match="wants a client certificate"):
            EtcdClient(without).version()
        with pytest.raises(EtcdUnreachable, match="does it want TLS"):
            EtcdClient(etcd.access()).version()
    finally:
        member.kill()


@pytest.mark.long
def test_a_user_is_asked_for(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        client = EtcdClient(etcd.access())
        client.version()
        call = client._call  # what only an administrator does
        call("/auth/role/add", {"name": "root"})
        call("/auth/user/add", {"name": "root", "password": "secret"})
        call("/auth/user/add", {"name": "nobody", "password": "secret"})
        call("/auth/user/grant", {"user": "root", "role": "root"})
        call("/auth/enable", {})
        with pytest.raises(EtcdDenied, match="wants a user"):
            client.read("/holdfast/")

        def as_user(said: str) -> EtcdClient:
            return EtcdClient(etcd_access(etcd.endpoint, {}, {"ETCDCTL_USER": said}))

        assert as_user("root:secret").read("/holdfast/") == {}
        with pytest.raises(EtcdDenied, match="authentication failed"):
            as_user("root:wrong").read("/holdfast/")
        with pytest.raises(EtcdDenied, match="does not let user nobody use the keys"):
            as_user("nobody:secret").read("/holdfast/")
        known = as_user("root:secret")
        known.read("/holdfast/")
        etcd.members[0].kill()  # forgets whom it had let in
        etcd.members[0].start()
        etcd.wait()
        assert known.read("/holdfast/") == {}


@pytest.mark.long
def test_members_without_a_majority_have_no_leader(tmp_path: Path) -> None:
    with Etcd(tmp_path, members=3) as etcd:
        client = EtcdClient(etcd.access())
        assert client.read("/holdfast/") == {}
        for member in etcd.members[1:]:
            member.kill()
        deadline = time.monotonic() + 30
        seen = problem_of(client)
        while not isinstance(seen, NoLeader):  # it takes a second to notice
            assert time.monotonic() < deadline, seen
            seen = problem_of(client)
        assert "fewer than a majority" in seen.sentence


def problem_of(client: EtcdClient) -> EtcdError | None:
    try:
        client.read("/holdfast/")
    except EtcdError as problem:
        return problem
    return None


@pytest.mark.parametrize(
    ("endpoint", "conf", "words"),
    [
        ("", {}, "needs the address of etcd"),
        ("a b:2379", {}, "is no address of etcd"),
        ("fd00::1:xx", {}, "is no address of etcd"),
        ("etcd", {"protocol": "ftp"}, "unknown value 'ftp' .http or https."),
        ("etcd", {"cacert": "x"}, "names a certificate for etcd, and the protocol is http"),
    ],
)
def test_settings_that_make_no_sense(endpoint: str, conf: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        etcd_access(endpoint, conf, {})


def test_settings_as_torch_names_them() -> None:
    both = [
        {"protocol": "https", "cert": "c", "key": "k", "cacert": "a"},
        {"protocol": "https", "ssl_cert": "c", "ssl_cert_key": "k", "ca_cert": "a"},
    ]
    for conf in both:
        access = etcd_access("e1, [fd00::1]:1234,https://e3:2390/", conf, {})
        assert access == EtcdAccess(
            (("e1", 2379), ("fd00::1", 1234), ("e3", 2390)), True, "c", "k", "a"
        )
    apart = etcd_access("e", {}, {"ETCDCTL_USER": "me", "ETCDCTL_PASSWORD": "secret"})
    assert apart == etcd_access("e", {}, {"ETCDCTL_USER": "me:secret"})
    assert "secret" not in repr(etcd_access("e", {}, {"ETCDCTL_USER": "me:secret"}))


def test_a_certificate_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot use /no/file for etcd: No such file"):
        EtcdClient(EtcdAccess((("e", 1),), tls=True, ca="/no/file"))
