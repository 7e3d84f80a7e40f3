"""One question to one member of etcd, over its JSON gateway, with a deadline."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.errors import ConfigError
from holdfast.nodes.channel_errors import endpoint as in_words
from holdfast.nodes.etcd.access import EtcdAccess
from holdfast.nodes.etcd.etcd_errors import EtcdDenied, EtcdUnreachable, NotEtcd
from holdfast.nodes.framed_stream import quoted

LARGEST = 4 << 20
"""bytes of an answer; what we keep there is a few KiB"""
_CLOSED = (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionResetError)
_PLAIN_TO_TLS = b"HTTP request to an HTTPS server"


class GatewayAnswer(NamedTuple):
    status: int
    document: dict[str, Any]


def context(access: EtcdAccess) -> ssl.SSLContext | None:
    """For https; the system's authorities where no other is named."""
    if not access.tls:
        return None
    try:
        made = ssl.create_default_context(cafile=access.ca or None)
        if access.cert:
            made.load_cert_chain(access.cert, access.key or None)
    except (OSError, ssl.SSLError) as problem:
        files = ", ".join(name for name in (access.ca, access.cert, access.key) if name)
        why = getattr(problem, "strerror", None) or problem
        raise ConfigError(f"--rdzv-conf: cannot use {files} for etcd: {why}") from None
    return made


def ask(
    where: tuple[str, int],
    path: str,
    question: dict[str, Any] | None = None,
    *,
    tls: ssl.SSLContext | None,
    seconds: float,
    token: str = "",
) -> GatewayAnswer:
    """POST where there is a question, else GET."""
    name = in_words(*where)
    until = time.monotonic() + seconds
    connection = http.client.HTTPConnection(*where)
    try:
        connection.sock = _connected(where, tls, until)
        headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
        body = None if question is None else json.dumps(question)
        connection.request("GET" if question is None else "POST", path, body, headers)
        response = connection.getresponse()
        return GatewayAnswer(response.status, _document(name, response, connection.sock, until))
    except (*_CLOSED, ssl.SSLEOFError):
        raise _closed(name, tls=tls is not None) from None
    except ssl.SSLError as problem:
        raise _tls_failed(name, problem) from None
    except http.client.HTTPException as problem:
        said = quoted(str(problem).encode()[:120])
        raise NotEtcd(f"{name} answers, but it is not etcd: it sent {said}", hint=_LOOK) from None
    except TimeoutError:
        raise EtcdUnreachable(f"{name} does not answer within {seconds:g} s") from None
    except OSError as problem:
        raise EtcdUnreachable(f"{name}: {problem.strerror or problem}") from None
    finally:
        connection.close()


def _connected(where: tuple[str, int], tls: ssl.SSLContext | None, until: float) -> socket.socket:
    """http.client's own way gives every address of a name the whole time, and the resolver more."""
    problem = OSError("it has no address")
    for family, _, _, _, address in _resolved(*where, until):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.settimeout(max(0.01, until - time.monotonic()))
            made.connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(max(0.01, until - time.monotonic()))
            return tls.wrap_socket(made, server_hostname=where[0]) if tls else made
        except OSError as reason:
            made.close()
            problem = reason
    raise problem


def _resolved(host: str, port: int, until: float) -> Sequence[tuple[Any, ...]]:
    """In a thread: a resolver whose server is gone may block for half a minute."""
    with contextlib.suppress(OSError):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    answers: queue.SimpleQueue[Sequence[tuple[Any, ...]] | Exception] = queue.SimpleQueue()

    def look() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as problem:
            answers.put(problem)

    threading.Thread(target=look, name="etcd-name", daemon=True).start()
    try:
        answer = answers.get(timeout=max(0.01, until - time.monotonic()))
    except queue.Empty:
        raise EtcdUnreachable(
            f"{in_words(host, port)}: the name is not resolved in time: no name server answers"
        ) from None
    if isinstance(answer, Exception):
        why = getattr(answer, "strerror", None) or "not a possible host name"
        raise EtcdUnreachable(f"{in_words(host, port)}: the name does not resolve: {why}")
    return answer


_LOOK = (
    "check --rdzv-endpoint: it must be a client address of etcd; `curl http://HOST:2379/version`"
)


def _document(
    name: str, response: http.client.HTTPResponse, sock: socket.socket | None, until: float
) -> dict[str, Any]:
    raw = b""
    while len(raw) <= LARGEST:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if sock is not None:
            sock.settimeout(left)
        part = response.read1(1 << 16)
        if not part:
            break
        raw += part
    if _PLAIN_TO_TLS in raw:
        raise NotEtcd(
            f"{name} wants TLS, and was asked over http", hint="--rdzv-conf protocol=https"
        )
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        if response.status == http.HTTPStatus.NOT_FOUND:
            return {}
        said = quoted(raw[:120])
        raise NotEtcd(f"{name} answers, but it is not etcd: it sent {said}", hint=_LOOK)
    return document


def _closed(name: str, *, tls: bool) -> EtcdUnreachable:
    """etcd that stops does so; one that wants TLS, or none, and is not spoken to so, too."""
    if tls:
        hint = "does it speak https? If not, leave out `protocol=https`"
    else:
        hint = "does it want TLS? `--rdzv-conf protocol=https,cacert=FILE`"
    return EtcdUnreachable(f"{name} closed the connection without an answer", hint=hint)


def _tls_failed(name: str, problem: ssl.SSLError) -> EtcdUnreachable | NotEtcd | EtcdDenied:
    reason = problem.reason or str(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return NotEtcd(
            f"{name}: its certificate is not valid here: {problem.verify_message}",
            hint="name the authority that signed it: `--rdzv-conf protocol=https,cacert=FILE`",
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return NotEtcd(f"{name} does not speak TLS", hint="leave out `protocol=https`")
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason:
        return EtcdDenied(
            f"{name} wants a client certificate",
            hint="`--rdzv-conf protocol=https,cacert=FILE,cert=FILE,key=FILE`",
        )
    return EtcdUnreachable(f"{name}: TLS failed: {reason}")
