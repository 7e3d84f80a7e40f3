"""A process that sent a tensor exited before the tensor was received.

What you see   `ConnectionRefusedError: [Errno 111] Connection refused` or `FileNotFoundError` out
               of `rebuild_storage_fd` and `multiprocessing/resource_sharer.py`, when a tensor is
               taken from a queue. Or, from the sender: `Producer process has been terminated before
               all shared CUDA tensors released`.
Why            A queue carries no tensor, only a handle: with the strategy `file_descriptor`, the
               default on Linux, the receiver fetches the memory from the sender over a Unix socket.
               Once the sender has exited, that socket is gone. CUDA tensors stay in the sender's
               memory altogether. Ports and the network are not involved.
How to be sure The traceback passes through `rebuild_storage_fd`. The sender's exit code and last
               lines show whether it finished early or crashed.
Fix            Keep the sender alive until the receiver has taken everything: join it after the last
               get, or let it wait for an Event that the receiver sets. If it crashed, fix the
               crash. Or send copies: `tensor.numpy()`, or
               `torch.multiprocessing.set_sharing_strategy('file_system')`.
Known limits   The log of the receiver does not show why the sender exited. `lint` sees senders and
               receivers of one file only.
Sources        https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies
               torch/multiprocessing/reductions.py: rebuild_storage_fd
               torch/csrc/CudaIPCTypes.cpp: warnProducerTerminatedBeforeSharedTensorsReleased
               https://github.com/pytorch/pytorch/issues/12860
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import LoggedException, Sighting, Wreckage
from holdfast.analysis.source.processes import queue_senders
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD115",
    slug="dead-producer",
    related=("fd-limit", "dataloader-killed", "rank-killed"),
)

FETCH = FAULT.log_pattern(
    "fetch",
    r"in rebuild_storage_fd|multiprocessing/resource_sharer\.py\S*, line \d+, in (?:detach|get_)",
    anchors=("rebuild_storage_fd", "resource_sharer.py"),
    example='  File "/opt/venv/site-packages/torch/multiprocessing/reductions.py", line 541, in '
    "rebuild_storage_fd",
    # The same frames precede 'received 0 items of ancdata', which is another fault.
    role=Role.CONTEXT,
)
FETCH_ERROR = FAULT.log_pattern(
    "fetch-error",
    r"^(?:\w+Error: )?.*(?:ConnectionRefusedError|ConnectionResetError|FileNotFoundError|EOFError)"
    r"(?::|$)"
    # Python 2
    r"|^(?:socket\.)?error: \[Errno (?:2|104|111)\]",
    anchors=(
        *("ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError", "EOFError"),
        "error: [Errno ",
    ),
    example="ConnectionRefusedError: [Errno 111] Connection refused",
    role=Role.CONTEXT,
)
CUDA_PRODUCER = FAULT.log_pattern(
    "cuda-producer",
    r"Producer process has been terminated before all shared CUDA tensors released",
    anchors=("Producer process has been terminated",),
    example="[W CudaIPCTypes.cpp:15] Producer process has been terminated before all shared CUDA "
    "tensors released. See Note [Sharing CUDA tensors]",
)
FETCH_ERRORS = ("ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError", "EOFError")
TRACEBACK_LINES = 60
"""a traceback is not longer"""
FIX = (
    "keep the sending process alive until the receiver has taken everything (join it after the "
    "last get), or send copies: `torch.multiprocessing.set_sharing_strategy('file_system')`"
)


@FAULT.explain
def sender_had_exited(wreckage: Wreckage) -> Diagnosis | None:
    fetches = wreckage.seen(FETCH)
    ended = [s for s in wreckage.seen(FETCH_ERROR) if any(_belongs(s, fetch) for fetch in fetches)]
    raised = next((r for r in wreckage.raised if _is_fetch(r)), None)
    if not fetches or not (ended or raised):
        return None
    line = raised.line if raised else ended[0].line
    who = f"rank {line.rank}" if line.rank is not None else "a process"
    return FAULT.diagnosis(
        f"{who} took a tensor from a queue and could not fetch its memory: the process that sent "
        "it had exited",
        confidence=0.93 if _refused(raised, ended) else 0.75,
        seen=[*ended[:1], *fetches],
        culprit=Culprit(what="the process that sent the tensor", host=line.host),
        victims=[line.rank] if line.rank is not None else [],
        fix=FIX,
        next="grep -nE 'Process.*exit|Killed|Traceback' *.log",
        unknown=[
            "why the sender exited (too early, or by a crash): see its own exit code and last lines"
        ],
    )


@FAULT.explain
def owner_of_cuda_memory_exited(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(CUDA_PRODUCER)
    if not seen or wreckage.seen(FETCH):
        return None
    return FAULT.diagnosis(
        "a process exited while others still used CUDA tensors that it had shared: the memory was "
        "freed with it",
        # It is also printed at a normal exit, when no process uses them any more.
        confidence=0.3 if wreckage.roots(but=[FAULT.slug]) else 0.6,
        seen=seen,
        fix="make the sender exit last: CUDA tensors live in the process that created them",
    )


def _belongs(seen: Sighting, fetch: Sighting) -> bool:
    return (
        seen.line.source == fetch.line.source
        and seen.rank == fetch.rank
        and 0 < seen.line.number - fetch.line.number <= TRACEBACK_LINES
    )


def _is_fetch(raised: LoggedException) -> bool:
    return raised.kind.rpartition(".")[2] in FETCH_ERRORS and any(
        frame.function == "rebuild_storage_fd" for frame in raised.frames
    )


def _refused(raised: LoggedException | None, ended: list[Sighting]) -> bool:
    """A cut stream has other explanations; a refusal or a missing socket has none."""
    words = [raised.kind] if raised else []
    words += [s.line.text for s in ended]
    return any(re.search(r"ConnectionRefused|FileNotFound|Errno 111\b", w) for w in words)


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint_python
def sender_ends_before_the_receiver_gets(program: Program, _: Source) -> Iterator[Finding]:
    for one in queue_senders.short_lived_senders(program):
        tell = FAULT.error if one.joined else FAULT.warning
        after = "is joined before" if one.joined else "may have exited by the time"
        yield tell(
            f"the process that puts a tensor here {after} {one.get.written} (line "
            f"{one.get.node.lineno}) takes it",
            reason="the queue carries only a handle: the receiver fetches the memory from the "
            "sender, and if that has exited it gets ConnectionRefusedError or FileNotFoundError "
            "(strategy file_descriptor, the default on Linux)",
            fix="get everything first and join afterwards, with an Event that the receiver sets "
            "and the sender waits for before it exits; or send a copy: `tensor.numpy()`",
            at=program.place(one.put.node),
        )
