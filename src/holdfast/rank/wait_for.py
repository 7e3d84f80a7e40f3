"""`holdfast.wait_for`: a collective with a timeout, and one exception for all the wordings.

torch speaks of a timeout as RuntimeError, DistBackendError or DistStoreError, in a different
sentence for every backend and path.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Protocol

from holdfast.errors import CollectiveTimeout
from holdfast.rank.durations import Duration, in_seconds


class Work(Protocol):
    """What torch's asynchronous collectives return."""

    def wait(self, timeout: timedelta, /) -> object: ...


# Gloo: 'Timed out waiting 6000ms for recv operation', 'Application timeout caused pair closure';
# torch's own Work: 'Operation timed out!'; monitored_barrier: '… timed out in monitoredBarrier';
# NCCL: 'Watchdog caught collective operation timeout', '… ran for 600000 milliseconds before
# timing out'; the store: 'wait timeout after 1000ms', 'Socket Timeout'.
_TIMEOUT = re.compile(r"tim(?:ed|ing) out|\btimeout\b", re.IGNORECASE)


def says_timeout(text: str) -> bool:
    return bool(_TIMEOUT.search(text.partition("\nException raised from")[0]))


def wait_for(work: Work | None, timeout: Duration) -> None:
    """Wait for an asynchronous collective, at most `timeout`.

    Args:
        work: what a collective returned with `async_op=True`. None, which torch returns to ranks
            outside the group, is done already.
        timeout: seconds, a timedelta, or a text such as "30s".

    Raises:
        CollectiveTimeout: it did not finish in time, whichever way the backend says so.
        ConfigError: `timeout` is not a duration greater than 0.
    """
    seconds = in_seconds("timeout", timeout)
    if work is None:
        return
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError as problem:  # torch's DistError is one too
        if not says_timeout(str(problem)):
            raise
        raise CollectiveTimeout(
            f"the collective did not finish within {seconds:g} s",
            hint="a rank has not entered it, or is slower than that; "
            "the report of `holdfast run` names it",
        ) from problem
