"""Which NCCL groups a torch makes: since 2.15 `nccl` is the backend that 2.14 called nccl2. Pure.

It has a watchdog of its own and no heartbeat monitor, reads fewer variables (those in the state
`older groups` not), and has its own flight recorder. TORCH_DIST_USE_NCCL2=0 brings the older ones.
"""

from __future__ import annotations

from holdfast.analysis.versions import release

NEWER_SINCE = "2.15"
SWITCH = "TORCH_DIST_USE_NCCL2"


def are_newer(torch: str, switch: str) -> bool:
    """`switch` is the value of the variable, '' where it is not set; not known is not newer."""
    return bool(torch) and release(torch) >= release(NEWER_SINCE) and switch != "0"
