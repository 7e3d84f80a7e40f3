"""A fake of NCCL's RAS: its protocol and its answers, made from a small model of a job.

The words are those that a real job gave (tests/system/ras_recorded: NCCL 2.28.9, three ranks on one
GPU) and that src/ras/client_support.cc prints; a test compares both byte by byte.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECORDED = Path(__file__).parent / "ras_recorded"
OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_ERRORS = {6: "Remote process error", 2: "System error"}


@dataclass(frozen=True)
class FakeRank:
    rank: int
    pid: int
    host: str = "192.0.2.2"
    gpu: int = 0
    state: str = "answers"
    """'answers', 'silent', 'dead', 'left'"""
    error: int = 0
    init: int = 0
    finalizing: bool = False
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeCommunicator:
    ranks: Sequence[FakeRank]
    hash: int = 0x1A3AA6D2A4391217
    others: tuple[int, int] = (0xC8C8F2B6559389FE, 0xA2A3B2C773D326C9)

    @property
    def there(self) -> list[FakeRank]:
        return [one for one in self.ranks if one.state == "answers"]

    @property
    def missing(self) -> list[FakeRank]:
        return [one for one in self.ranks if one.state != "answers"]


@dataclass(frozen=True)
class FakeJob:
    communicators: Sequence[FakeCommunicator]
    nccl: str = "2.28.9"
    at: str = "2026-11-16 10:16:10"
    diagnostics: Sequence[str] = ()

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(map(int, self.nccl.split(".")))


def job(*counts: int, silent: Sequence[int] = (), dead: Sequence[int] = (), nccl: str = "2.28.9",
        hosts: Sequence[str] = (), first_pid: int = 600) -> FakeJob:  # fmt: skip
    """One communicator, whose ranks have launched so many AllReduce."""
    ranks = [
        FakeRank(
            rank=number,
            pid=first_pid + number,
            host=hosts[number] if hosts else "192.0.2.2",
            state="dead" if number in dead else "silent" if number in silent else "answers",
            counts={"AllReduce": count},
        )
        for number, count in enumerate(counts)
    ]
    return FakeJob(communicators=(FakeCommunicator(ranks),), nccl=nccl)


# --- its answers ---------------------------------------------------------------------------------


def as_json(job: FakeJob) -> str:
    told = ",\n".join(_communicator(one, job) for one in job.communicators)
    return (
        f'{{\n  "nccl_version": "{job.nccl}",\n  "cuda_runtime_version": 13000,\n'
        f'  "cuda_driver_version": 13000,\n  "timestamp": "{job.at}",\n'
        f'  "communicators_count": {len(job.communicators)},\n  "communicators": [\n{told}\n  ],\n'
        '  "ras": {\n    "collection_time_sec": 0.000,\n    "timeouts_count": 0\n  }\n}\n'
    )


def _communicator(one: FakeCommunicator, job: FakeJob) -> str:
    there = ",\n".join(map(_answering, one.there))
    missing = ",\n".join(_missing(rank, job) for rank in one.missing)
    return (
        f'    {{\n      "hash": "{one.hash:#x}",\n'
        f'      "secondary_hash": "{one.others[0]:#x}:{one.others[1]:#x}",\n'
        f'      "size": {len(one.ranks)},\n      "ranks_count": {len(one.there)},\n'
        f'      "missing_ranks_count": {len(one.missing)},\n      "ranks": [\n{there}\n      ],\n'
        f'      "missing_ranks": [\n{missing}\n      ]\n    }}'
    )


def _head(rank: FakeRank, *, comma: bool = True) -> str:
    return (
        f'        {{\n          "rank": {rank.rank},\n          "host": "{rank.host}",\n'
        f'          "pid": {rank.pid},\n          "cuda_dev": {rank.gpu},\n'
        f'          "nvml_dev": {rank.gpu}{"," if comma else ""}\n          "status": {{\n'
    )


def _answering(rank: FakeRank) -> str:
    counts = ",\n".join(f'            "{op}": {rank.counts.get(op, 0)}' for op in OPERATIONS)
    return _head(rank) + (
        f'            "init_state": {rank.init},\n            "async_error": {rank.error},\n'
        f'            "finalize_called": {"true" if rank.finalizing else "false"},\n'
        '            "destroy_flag": false,\n            "abort_flag": false\n          },\n'
        f'          "collective_counts": {{\n{counts}\n          }}\n        }}'
    )


def _missing(rank: FakeRank, job: FakeJob) -> str:
    """2.28.7 to 2.28.9 forget a comma."""
    return _head(rank, comma=job.version >= (2, 29)) + (
        f'            "unresponsive": {"false" if rank.state == "left" else "true"},\n'
        f'            "considered_dead": {"true" if rank.state == "dead" else "false"}\n'
        "          }\n        }"
    )


def as_text(job: FakeJob) -> str:
    """One communicator of the whole job, on one node."""
    one = job.communicators[0]
    there, total = len(one.there), len(one.ranks)
    silent = [r for r in one.ranks if r.state == "silent"]
    dead = [r for r in one.ranks if r.state == "dead"]
    wrong = [r for r in one.there if r.error]
    uneven = len({tuple(r.counts.items()) for r in one.there}) > 1
    errors = [name for name, holds in (("INCOMPLETE", silent or dead), ("ERROR", wrong),
                                       ("MISMATCH", uneven)) if holds]  # fmt: skip
    state = ",".join(errors) or "OK"
    lines = [
        f"NCCL version {job.nccl} compiled with CUDA 13.0",
        "CUDA runtime version 13000, driver version 13000", "",
        "Job summary", "===========", "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{1:7}  {total:9}  {1:11}  {total:9}  {total:7}", "",
        "Communicators... (0.000s)", "=============", "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        f"{0:5}  {1:8}  {1:8}  {there:8}  {total:8}  {there:8}   RUNNING  {state:>6}", "",
        "Errors", "======", "",
    ]  # fmt: skip
    for name, ranks, words in (
        ("INCOMPLETE", silent, "Missing communicator data from {} job process{}"),
        ("DEAD", dead, "{} job process{} considered dead (unreachable via the RAS network)"),
    ):
        if ranks:
            many = "es" if len(ranks) > 1 else ""
            many += (" are" if many else " is") if name == "DEAD" else ""
            lines += [name, f"  {words.format(len(ranks), many)}"]
            lines += [f"  Process {r.pid} on node {r.host} managing GPU {r.gpu}" for r in ranks]
            lines.append("")
    label = f"#0-0 ({one.hash:016x})"
    if gone := [*silent, *dead]:
        lines += [f"{label} INCOMPLETE",
                  f"  Missing communicator data from {len(gone)} rank{'s' * (len(gone) > 1)}",
                  *(f"  Rank {r.rank} -- {_of(r)}" for r in gone), ""]  # fmt: skip
    if wrong:
        lines += [f"{label} ERROR", f"  Asynchronous error on {len(wrong)} rank"]
        lines += [f"  Rank {r.rank} reported {_ERRORS[r.error]} -- {_of(r)}" for r in wrong]
        lines.append("")
    lines += ["Warnings", "========", ""]
    lines += _mismatch(one, label) if uneven else []
    return "\n".join(lines) + "\n"


def _of(rank: FakeRank) -> str:
    return f"GPU {rank.gpu} managed by process {rank.pid} on node {rank.host}"


def _mismatch(one: FakeCommunicator, label: str) -> list[str]:
    lines = [f"{label} MISMATCH"]
    for op in OPERATIONS:
        groups: dict[int, list[FakeRank]] = {}
        for rank in one.there:
            groups.setdefault(rank.counts.get(op, 0), []).append(rank)
        if len(groups) < 2:
            continue
        lines.append(f"  Communicator ranks have different {op} operation counts")
        for count, ranks in sorted(groups.items(), key=lambda pair: -len(pair[1])):
            told = f"launched up to operation {count}" if count else "not launched any operations"
            if len(ranks) > 1:
                lines.append(f"  {len(ranks)} ranks have {told}")
                if len(ranks) < len(one.ranks) / 2:
                    lines += [f"  Rank {r.rank} -- {_of(r)}" for r in ranks]
            else:
                lines.append(f"  Rank {ranks[0].rank} has {told} -- {_of(ranks[0])}")
        lines.append("")
    return lines


# --- its protocol --------------------------------------------------------------------------------


class _Client:
    """One connection: commands in, answers out; True when it is over."""

    def __init__(self, now: Callable[[], FakeJob], asked: list[str]) -> None:
        self._now, self._asked = now, asked
        self._json, self._received = False, b""

    def take(self, chunk: bytes, link: socket.socket) -> bool:
        self._received += chunk
        while b"\n" in self._received:
            command, self._received = self._received.split(b"\n", 1)
            answer, over = self._answer(command.decode("latin-1").rstrip("\r"))
            link.sendall(answer.encode())
            if over:
                return True
        return len(self._received) >= 1024

    def _answer(self, command: str) -> tuple[str, bool]:
        self._asked.append(command)
        job, asked = self._now(), command.lower()
        if asked.startswith("client protocol "):
            return "SERVER PROTOCOL 2\n", False
        if asked.startswith("timeout "):
            fits = asked[8:].isdigit()
            return ("OK\n" if fits else f"ERROR: Invalid timeout value {command[8:]}\n"), False
        if asked.startswith("set format ") and job.version >= (2, 28, 7):
            self._json = asked.endswith(" json")
            return "OK\n", False
        if asked in ("status", "verbose status"):
            return (as_json if self._json else as_text)(job), True
        if asked == "diagnostics" and job.version >= (2, 31):
            return "".join(f"{line}\n" for line in job.diagnostics), True
        return f"ERROR: Unknown command {command}\n", False


@contextlib.contextmanager
def serving(
    now: Callable[[], FakeJob] | FakeJob, *, stopped: int = 0, asked: list[str] | None = None
) -> Iterator[int]:
    """The port it listens on; `stopped`: processes that listen there too and never answer;
    `asked`: takes every command."""
    told: list[str] = [] if asked is None else asked
    ask = now if callable(now) else lambda: now
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(_listener(0))
        port = int(first.getsockname()[1])
        for _ in range(stopped):
            opened.enter_context(_listener(port))
        wake, woken = map(opened.enter_context, socket.socketpair())
        thread = threading.Thread(target=_serve, args=(first, woken, ask, told), daemon=True)
        thread.start()
        try:
            yield port
        finally:
            wake.send(b"x")
            thread.join(10)


def _listener(port: int) -> socket.socket:
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    link.bind(("127.0.0.1", port))
    link.listen(128)
    return link


def _serve(
    listener: socket.socket, woken: socket.socket, now: Callable[[], FakeJob], asked: list[str]
) -> None:
    with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as opened:
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is woken:
                    return
                if key.fileobj is listener:
                    link = opened.enter_context(listener.accept()[0])
                    waiting.register(link, selectors.EVENT_READ, _Client(now, asked))
                    continue
                link = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(OSError):
                    chunk = link.recv(4096)
                    if chunk and not key.data.take(chunk, link):
                        continue
                waiting.unregister(link)
                link.close()
