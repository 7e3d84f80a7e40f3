"""NCCL's own timeouts, which no torch timeout knows of.

NVIDIA/nccl docs/userguide/source/env.rst (NCCL_IB_TIMEOUT, NCCL_SOCKET_RETRY_SLEEP_MSEC), 2.30.7.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.variables.status import Timeout
from holdfast.analysis.versions import release
from holdfast.env.job import Job
from holdfast.text import exact_duration

ENV_RST = "NVIDIA/nccl docs/userguide/source/env.rst (2.30.7)"
IB_TICK = 4.096e-6
IB_RETRIES = 7
IB_DEFAULTS = (("2.23", 20), ("2.14", 18), ("", 14))
"""since which version, the exponent"""
RETRIES_SINCE = "2.24"
SOCKET_RETRIES, SOCKET_PAUSE = 34, 100


def timeouts(job: Job) -> Iterator[Timeout]:
    if not job.has_nccl:
        return
    version = job.version("nccl")
    if not version or release(version) >= release(RETRIES_SINCE):
        yield _socket(job)
    rdma = job.facts.rdma_devices
    if isinstance(rdma, tuple) and rdma:
        yield _rdma(job, version)


def _number(job: Job, name: str, default: int) -> tuple[int, str]:
    """NCCL reads its files too, so any origin counts."""
    setting = job.setting(name)
    if setting is None:
        return default, ""
    return nccl_int(setting.value), f"{name}={setting.value} ({job.origin(setting)})"


def _socket(job: Job) -> Timeout:
    retries, by_count = _number(job, "NCCL_SOCKET_RETRY_CNT", SOCKET_RETRIES)
    pause, by_pause = _number(job, "NCCL_SOCKET_RETRY_SLEEP_MSEC", SOCKET_PAUSE)
    total = (retries + 1) * retries / 2 * pause / 1000
    return Timeout(
        name="NCCL sockets: connect",
        key="nccl-socket",
        stage="start",
        seconds=max(total, 0.0),
        origin=", ".join(part for part in (by_count, by_pause) if part)
        or f"default of NCCL: {retries} tries, {pause} ms longer apart each",
        does="NCCL fails where a rank's address refuses, times out or has no route; "
        "it waits forever for a rank that never connects",
        source=ENV_RST,
    )


def ib_seconds(exponent: int, retries: int) -> float | None:
    """Of all tries together; None for never: 0, and 32 and above, are infinite."""
    if not 0 < exponent < 32:
        return None
    return IB_TICK * (1 << exponent) * retries


def _rdma(job: Job, version: str) -> Timeout:
    usual = next(n for since, n in IB_DEFAULTS if not version or release(version) >= release(since))
    exponent, by_timeout = _number(job, "NCCL_IB_TIMEOUT", usual)
    retries, by_retry = _number(job, "NCCL_IB_RETRY_CNT", IB_RETRIES)
    once = ib_seconds(exponent, 1)
    how = f"4.096 µs · 2^{exponent} = {exact_duration(once)} a try, {retries} tries"
    return Timeout(
        name="NCCL RDMA: acknowledge",
        key="nccl-rdma",
        stage="run",
        seconds=ib_seconds(exponent, retries),
        origin=", ".join(part for part in (by_timeout, by_retry) if part)
        or f"default of NCCL {version}".rstrip(),
        does=f"a card that gets no answer reports error 12 and NCCL fails ({how})",
        source=ENV_RST,
    )
