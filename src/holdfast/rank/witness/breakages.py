"""What a rank does to itself in a drill, by name: what cannot be done to it from outside."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.rank.witness import exhaustion, slowness

FOREVER = 24 * 3600.0
"""seconds: as long as a hang lasts where the drill says nothing; more than any patience"""
ODD_SIZE = 12_347
"""numbers in a collective that no other rank calls"""


class BreakageOrder(NamedTuple):
    how: str
    seconds: float
    step: int
    waits: bool = False
    """first, until the drill has done its part from outside"""
    go: str = ""
    """a file that ends what can end"""


class InjectedFault(RuntimeError):  # noqa: N818 - as it is called in a traceback
    """Raised by `holdfast drill` in the script, as a bug in it would be."""


def break_by_exception(order: BreakageOrder) -> None:
    """An exception that the script does not expect."""
    raise InjectedFault(f"injected by holdfast drill after step {order.step}")


def break_by_exit(_order: BreakageOrder) -> None:
    """The script ends as if it were done, while the others train."""
    sys.exit(0)


def break_by_exit_at_once(_order: BreakageOrder) -> None:
    """The same, without anything that Python does at its end."""
    os._exit(0)


def break_by_hang(order: BreakageOrder) -> None:
    """Waits in Python for something that does not come."""
    until = time.monotonic() + (order.seconds or FOREVER)
    while time.monotonic() < until:
        time.sleep(0.1)


def break_by_spinning(order: BreakageOrder) -> None:
    """Computes in Python and comes to no end."""
    until = time.monotonic() + (order.seconds or FOREVER)
    rounds = 0
    while time.monotonic() < until:
        rounds += 1


def break_by_holding_the_gil(order: BreakageOrder) -> None:
    """Native code that does not return and does not give the GIL away: no thread of Python runs."""
    ctypes.PyDLL(None).sleep(int(order.seconds or FOREVER))  # CDLL would give it away


def break_by_slowness(order: BreakageOrder) -> None:
    """Every later step takes several times as long."""
    slowness.begin(order.seconds or FOREVER, order.go)


def break_by_memory(_order: BreakageOrder) -> None:
    """Takes memory until the limit that the drill has set ends the process."""
    exhaustion.allocate()


def break_by_descriptors(_order: BreakageOrder) -> None:
    """Opens files until no more can be opened, which raises: as a script that leaks them does."""
    exhaustion.open_files()


def break_by_mismatch(_order: BreakageOrder) -> None:
    """A collective of a size that no other rank calls, in place of the next one."""
    torch = _torch()
    torch.distributed.all_reduce(torch.ones(ODD_SIZE, device=_device_of_group(torch)))


def break_by_a_lonely_barrier(_order: BreakageOrder) -> None:
    """A collective that no other rank calls: this one is one ahead of the others from here."""
    _torch().distributed.barrier()


def break_by_endless_kernel(order: BreakageOrder) -> None:
    """A GPU kernel that does not end; the script goes on until it waits for the GPU."""
    cycles = int(order.seconds * 1e9) or 2**62
    _torch().cuda._sleep(cycles)  # noqa: SLF001


def break_by_device_assert(_order: BreakageOrder) -> None:
    """An index out of range on the GPU; whatever the script does there next raises."""
    torch = _torch()
    table = torch.zeros(4, 4, device="cuda")
    torch.nn.functional.embedding(torch.tensor([4_000], device="cuda"), table)


def break_by_gpu_memory(_order: BreakageOrder) -> None:
    """Allocates on the GPU until torch says that there is no more."""
    exhaustion.allocate_on_gpu(_torch())


def _torch() -> Any:
    return sys.modules["torch"]


def _device_of_group(torch: Any) -> str:
    backend = torch.distributed.get_backend()
    return "cuda" if "nccl" in backend and torch.cuda.is_available() else "cpu"


BREAKAGES: dict[str, Callable[[BreakageOrder], None]] = {
    "raise": break_by_exception,
    "exit": break_by_exit,
    "exit-now": break_by_exit_at_once,
    "hang": break_by_hang,
    "spin": break_by_spinning,
    "hold-gil": break_by_holding_the_gil,
    "slow": break_by_slowness,
    "allocate": break_by_memory,
    "open-files": break_by_descriptors,
    "mismatch": break_by_mismatch,
    "skip": break_by_a_lonely_barrier,
    "endless-kernel": break_by_endless_kernel,
    "device-assert": break_by_device_assert,
    "gpu-oom": break_by_gpu_memory,
}
