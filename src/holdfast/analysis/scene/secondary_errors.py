"""The words of a rank that fell because another one did: they are never the headline.

Gloo, the store and NCCL all report at the rank that *waited*: it lost a connection, or its
timeout ran out. Such text says that a rank is gone or late, never which one or why. Everything
here is recognised from what torch itself writes; a user's own `ConnectionResetError` (a download,
a database) is a cause like any other.
"""

from __future__ import annotations

import re

from holdfast.analysis.scene.scene import LastWords

LOST_PEER = "lost-peer"
"""a connection to another rank, or to the store, broke"""
TIMED_OUT = "timed-out"
"""another rank did not come in time"""
MISMATCH = "mismatch"
"""what another rank sent does not fit what this one expected"""
TEARDOWN = "teardown"
"""the process was already on its way out"""
SURVIVED = "survived"
"""the program continued after it; only a log shows that"""

_TORCH_KINDS = re.compile(r"RuntimeError|Dist\w*Error|c10::\w*Error|gloo::\w+|std::\w+|terminate")
"""Python's own ConnectionResetError, BrokenPipeError and TimeoutError are not among them"""

_STORE_TIMEOUT = re.compile(r"The client socket has timed out after")
"""which torch 1.9 to 2.0 raises as Python's TimeoutError"""

_GLOO = r"gloo/transport/\w+/\w+\.cc:\d+\]"

# The first match decides, so the more telling wordings come first.
_WORDINGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MISMATCH, re.compile(r"Received data size doesn't match expected size")),
    (MISMATCH, re.compile(r"op\.preamble\.length <= op\.nbytes")),
    (MISMATCH, re.compile(r"Detected mismatch between collectives on ranks")),
    (TIMED_OUT, re.compile(r"failed to pass monitoredBarrier in")),
    (LOST_PEER, re.compile(r"successfully reached monitoredBarrier, but received errors")),
    (TIMED_OUT, re.compile(r"Timed out waiting \d+ms for (recv|send) operation")),
    (TIMED_OUT, re.compile(rf"{_GLOO} .*[Tt]imed out")),
    (TIMED_OUT, re.compile(r"^\s*Operation timed out!")),
    (TIMED_OUT, re.compile(r"wait timeout after \d+ms, keys:")),
    (TIMED_OUT, re.compile(r"Timed out after \d+ seconds waiting for clients")),
    (TIMED_OUT, re.compile(r"Timed out initializing process group in store based barrier")),
    (TIMED_OUT, re.compile(r"The client socket has timed out after")),
    (TIMED_OUT, re.compile(r"store->get\('.*'\) got error: Socket Timeout")),
    (TIMED_OUT, re.compile(r"[Ww]atchdog caught collective operation timeout")),
    (TIMED_OUT, re.compile(r"dump signal .*from (another|local) rank|taking the entire process")),
    (LOST_PEER, re.compile(rf"{_GLOO} .*(Connection (reset|closed) by peer|Broken pipe)")),
    (LOST_PEER, re.compile(rf"{_GLOO} (Read|Write) error|Connection closed by peer \[")),
    (LOST_PEER, re.compile(r"Application timeout caused pair closure|connectFullMesh failed")),
    (LOST_PEER, re.compile(r"[Ff]ailed to recv, got 0 bytes|Connection was likely closed")),
    (LOST_PEER, re.compile(r"(send|recv)(Bytes|Value\w*|Vector) failed on")),
    (LOST_PEER, re.compile(r"store->get\('.*'\) got error|should dump. flag on TCPStore")),
    (LOST_PEER, re.compile(r"ncclRemoteError|remote process exited or there was a network error")),
    (LOST_PEER, re.compile(r"(?i)nccl communicator (was|is) aborted|socketProgress: Connection")),
    # The store of torch before 2.0; Python's own are a ConnectionResetError and a TimeoutError.
    (TIMED_OUT, re.compile(r"^\s*Socket Timeout\s*$")),
    (
        LOST_PEER,
        re.compile(
            r"^\s*(Connection (reset by peer|closed|refused|timed out)|Broken pipe|No route to host"
            r"|Network is unreachable|Host is down)\s*$"
        ),
    ),
    (TEARDOWN, re.compile(r"terminate called without an active exception")),
)


def consequence(words: LastWords) -> str:
    """Which kind of consequence these words are, '' when they name a cause. An exception raised
    for another one is what that one is."""
    return _consequence(words.kind, words.text) or _consequence(words.root_kind, words.root_text)


def _consequence(kind: str, text: str) -> str:
    if kind == "TimeoutError" and _STORE_TIMEOUT.match(text):
        return TIMED_OUT
    if not _TORCH_KINDS.fullmatch(kind.rpartition("torch.distributed.")[2]):
        return ""
    # Inside DistNetworkError and its like, the plain words of the system are about a peer too.
    if kind.endswith("DistNetworkError") and re.search(
        r"Connection reset by peer|Broken pipe|Connection closed", text
    ):
        return LOST_PEER
    return next((name for name, wording in _WORDINGS if wording.search(text)), "")


_THROWN = re.compile(
    r"terminate called after throwing an instance of '(?P<kind>[^']+)'"
    r"(?:\s+what\(\):\s*(?P<text>[^\n]*))?"
)


def words_of_abort(stderr: str, *, at: float) -> LastWords | None:
    """What C++ wrote before it called abort(), from the tail of a rank's stderr.

    An exception in a thread of Gloo or NCCL never reaches Python: no excepthook runs, and these
    lines are the only last words.
    """
    thrown = list(_THROWN.finditer(stderr))
    if thrown:
        last = thrown[-1]
        return LastWords(kind=last["kind"], text=last["text"] or "", where="", at=at)
    if "terminate called without an active exception" in stderr:
        text = "terminate called without an active exception"
        return LastWords(kind="terminate", text=text, where="", at=at)
    return None


_WATCHDOG_LOST = re.compile(
    r"raised the following async exception: NCCL error: remote process exited"
)


def watchdog_lost_peer(stderr: str) -> bool:
    """NCCL noticed that a peer is gone: its watchdog says so, writes dumps, and aborts the process
    only a minute later. Until then the recorders may show every collective as over."""
    return bool(_WATCHDOG_LOST.search(stderr))
