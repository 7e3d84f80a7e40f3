"""Ask a rank for its flight recorder, over the Unix socket of torch's worker server.

The server runs in its own threads, which never need the GIL, so it answers while the rank
sleeps in C with the GIL held; only a stopped process stays silent.
"""

from __future__ import annotations

import re
import socket
import time

from holdfast.analysis.machine import Unread

NCCL = "dump_nccl_trace_json"
"""the recorder of torch's older NCCL groups, in CUDA builds only"""
OTHERS = "fr_trace_json"
"""that of Gloo and of every other backend"""
NCCL2 = "fr_trace_json?backend=nccl2"
"""that of the NCCL groups which torch makes since 2.15 (`TORCH_DIST_USE_NCCL2=0`: the older ones).
A torch that does not know them ignores the question and answers with the others' once more."""

LARGEST = 64 << 20


class _NoAnswerError(Exception):
    """Why there is no answer, in a user's words."""


def ask(socket_path: str, *, seconds: float = 1.0) -> bytes | Unread:
    """The recorder as JSON: one document, or a list of all in a CUDA build of torch."""
    end = time.monotonic() + seconds
    try:
        answers = [_post(socket_path, handler, end) for handler in (NCCL, OTHERS)]
        if None not in answers:
            answers.append(_post(socket_path, NCCL2, end))
    except TimeoutError:
        return Unread(why=f"the rank's recorder did not answer within {seconds:g} s")
    except (FileNotFoundError, ConnectionRefusedError):
        return Unread(why="the rank serves no recorder (not started yet, ended, or HOLDFAST=off)")
    except OSError as problem:
        return Unread(why=f"the rank's recorder could not be asked: {problem}")
    except _NoAnswerError as reason:
        return Unread(why=str(reason))
    documents = [answer for answer in answers if answer is not None]
    if not documents:
        return Unread(why="this version of torch has no flight recorder to ask")
    return documents[0] if len(documents) == 1 else b"[" + b",".join(documents) + b"]"


def _post(path: str, handler: str, end: float) -> bytes | None:
    """The body of the answer; None when this torch has no such handler."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_left(end))
        link.connect(path)
        link.sendall(
            f"POST /handler/{handler} HTTP/1.1\r\nHost: rank\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        head, body = _head(link, end)
        status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
        if not status:
            raise _NoAnswerError("the rank's recorder did not answer in HTTP")
        if status[1] == b"404":
            return None
        if status[1] != b"200":
            raise _NoAnswerError(f"the rank's recorder answered with status {status[1].decode()}")
        return _body(link, head, body, end)


def _head(link: socket.socket, end: float) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        # Before the next chunk, not after: the first one may bring a megabyte of body along.
        if len(received) > 1 << 16:
            raise _NoAnswerError("the rank's recorder did not answer in HTTP")
        chunk = _receive(link, end)
        if not chunk:
            raise _NoAnswerError("the rank's recorder hung up before it answered")
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def _body(link: socket.socket, head: bytes, body: bytes, end: float) -> bytes:
    length = re.search(rb"(?im)^content-length:\s*(\d{1,18})\s*$", head)
    if not length:
        raise _NoAnswerError("the rank's recorder did not say how long its answer is")
    size = int(length[1])
    if size > LARGEST:
        raise _NoAnswerError(f"the rank's recorder is {size >> 20} MB, more than we read")
    parts, have = [body], len(body)
    while have < size:
        chunk = _receive(link, end)
        if not chunk:
            raise _NoAnswerError("the rank's recorder hung up in the middle of its answer")
        parts.append(chunk)
        have += len(chunk)
    return b"".join(parts)[:size]


def _receive(link: socket.socket, end: float) -> bytes:
    link.settimeout(_left(end))
    return link.recv(1 << 20)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
