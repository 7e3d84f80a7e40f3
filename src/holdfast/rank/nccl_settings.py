"""Whether torch ends a process whose NCCL collective has timed out, by the environment.

Scripts set these variables themselves, so each rank says it when it joins its group. Without
msgspec: a rank may lack it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HANDLING = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")


def aborts(environment: Mapping[str, str]) -> bool:
    """With blocking wait only an explicit `work.wait()` raises: see async-handling-off."""
    handling = next((environment[name] for name in HANDLING if name in environment), "")
    blocking = next((environment[name] for name in BLOCKING if name in environment), "")
    off = re.match(r"\s*[+-]?0+(?!\d)", handling)  # as std::stoi reads it
    return not off and blocking.lower() not in ("y", "yes", "1", "t", "true")
