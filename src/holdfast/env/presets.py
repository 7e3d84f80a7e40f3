"""What helps in a first run, and what in production; only what the installed versions read. Pure.

NCCL_DEBUG_SUBSYS replaces NCCL's default list, so the preset names BOOTSTRAP and ENV again, which
came into it with 2.23 (NVIDIA/nccl src/debug.cc). torch 2.13 records and dumps by default.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.versions import release
from holdfast.env.job import Job

NAMES = ("first-run", "production")
RECORDS_BY_ITSELF = (2, 13)
"""the torch whose defaults we read: recorder on, dump on a timeout"""
RENAMED = (2, 2)
BOOTSTRAP_SINCE = (2, 23)


class ExportLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line to put into a shell."""

    name: str
    value: str | None
    """None: to be unset"""
    reason: str


def lines(preset: str, job: Job, folder: str) -> Iterator[ExportLine]:
    if preset == "first-run":
        yield from _first_run(job, folder)
    elif preset == "production":
        yield from _production(job, folder)


def wanted() -> tuple[str, ...]:
    """The names whose readers decide: searched for in the installed programs beforehand."""
    return ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def _first_run(job: Job, folder: str) -> Iterator[ExportLine]:
    if job.has_nccl:
        yield ExportLine(name="NCCL_DEBUG", value="INFO", reason="NCCL says what it chose, and why")
        version = release(job.version("nccl"))
        new = not version or version >= BOOTSTRAP_SINCE
        yield ExportLine(
            name="NCCL_DEBUG_SUBSYS",
            value="INIT,BOOTSTRAP,ENV,NET" if new else "INIT,ENV,NET",
            reason="the start, the interface, the variables it read, and the network; naming "
            "some replaces the default",
        )
        yield ExportLine(
            name="NCCL_DEBUG_FILE",
            value=f"{folder}/nccl.%h.%p.log",
            reason="one file per process (%h host, %p pid), so that lines do not mix",
        )
    yield ExportLine(
        name="TORCH_DISTRIBUTED_DEBUG",
        value="INFO",
        reason="DDP names the parameters that got no gradient",
    )
    yield ExportLine(
        name="TORCH_CPP_LOG_LEVEL",
        value="INFO",
        reason="the store and the groups log their connections and the timeouts they really have",
    )
    yield from _recorder(job, folder)


def _production(job: Job, folder: str) -> Iterator[ExportLine]:
    if job.has_nccl:
        yield ExportLine(
            name="NCCL_DEBUG", value="WARN", reason="silent until NCCL has an error to tell"
        )
    yield from _recorder(job, folder)


def _recorder(job: Job, folder: str) -> Iterator[ExportLine]:
    """Where the last collectives of each rank are written when one times out."""
    torch = release(job.version("torch"))
    if not job.has_nccl or (torch and torch < RENAMED):
        return
    if torch and torch < RECORDS_BY_ITSELF:
        yield ExportLine(
            name="TORCH_NCCL_TRACE_BUFFER_SIZE",
            value="2000",
            reason="keep the last 2000 collectives of each rank in memory; cheap",
        )
        yield ExportLine(
            name="TORCH_NCCL_DUMP_ON_TIMEOUT",
            value="1",
            reason="and write them out when one times out: `holdfast explain` reads them",
        )
    yield ExportLine(
        name=_dump_name(job, torch),
        value=f"{folder}/nccl_trace_rank_",
        reason="where the flight recorder writes when a collective times out (the rank is added); "
        "the default, /tmp, may be gone with the container",
    )


def _dump_name(job: Job, torch: tuple[int, ...]) -> str:
    """The newer name where the installed torch holds it."""
    new, old = wanted()
    search = job.facts.variable_search
    if not isinstance(search, Unread) and new in search.found:
        return new if search.found[new] else old
    return new if not torch or torch >= RECORDS_BY_ITSELF else old
