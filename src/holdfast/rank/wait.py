"""`holdfast.wait`: a collective with a time limit, and one exception for all the wordings.

torch speaks of a timeout as RuntimeError, DistBackendError or DistStoreError, in a different
sentence for every backend and path.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Protocol

from holdfast.errors import ConfigError, Error


class Work(Protocol):
    """What torch's asynchronous collectives return."""

    def wait(self, timeout: timedelta, /) -> object: ...


class CollectiveTimeout(Error, TimeoutError):  # noqa: N818 - its name is what it is
    """A collective did not end in time. The group is no longer in step: do not use it again."""


# Gloo: 'Timed out waiting 6000ms for recv operation', 'Application timeout caused pair closure';
# torch's own Work: 'Operation timed out!'; monitored_barrier: '… timed out in monitoredBarrier';
# NCCL: 'Watchdog caught collective operation timeout', '… ran for 600000 milliseconds before
# timing out'; the store: 'wait timeout after 1000ms', 'Socket Timeout'.
_TIMEOUT = re.compile(r"tim(?:ed|ing) out|\btimeout\b", re.IGNORECASE)


def says_timeout(text: str) -> bool:
    return bool(_TIMEOUT.search(text.partition("\nException raised from")[0]))


def wait(work: Work | None, seconds: float) -> None:
    """Wait for `work` (from `async_op=True`) at most so long, else raise CollectiveTimeout.

    None, which torch returns to ranks outside the group, is done already.
    """
    if not seconds > 0:
        raise ConfigError(f"wait: {seconds} seconds is no time at all")
    if work is None:
        return
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError as problem:  # torch's DistError is one too
        if not says_timeout(str(problem)):
            raise
        raise CollectiveTimeout(
            f"the collective did not end within {seconds:g} s",
            hint="some rank did not enter it, or is slower than that; "
            "under `holdfast run` the report names it",
        ) from problem
