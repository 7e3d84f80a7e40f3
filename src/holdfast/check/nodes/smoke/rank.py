"""One rank of the smoke test between nodes: imports torch once, then does one test after another.

Tasks come as lines of JSON on stdin, answers go to a pipe. As in `check.smoke.rank`, nothing but
torch and the standard library is needed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import time
from datetime import timedelta
from typing import Any

from holdfast.check.smoke.rank import (
    CONNECT_SECONDS,
    ask_for_diagnostics,
    connect_plainly,
    nccl_version,
    own_words,
    shares_gpus,
)

REPEATS = 5
"""timed calls; the best counts, since a busy machine only ever adds to a time"""
ENOUGH_SECONDS = 2.0
"""for all timed calls: on a very slow path one is enough"""
PERIOD = 251
"""a prime, so that a chunk put in the wrong place does not match by accident"""
WEIGHTS = 7
"""ranks contribute 1 to 7 times the pattern: a sum over 9,000 ranks is still exact in float32"""
WORK = {"cpu": 192, "cuda": 4096}
"""size of the matrices of the work without network: about a millisecond"""


class WarmRank:
    """Its tasks are methods: `ready`, `host`, `meet`."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.hosted: Any = None
        self.during = ""
        """which size it was at, and which had passed: large ones alone fail at a small MTU"""

    def run(self) -> None:
        """Until stdin ends."""
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        for line in sys.stdin:
            task = json.loads(line)
            try:
                answer = getattr(self, task.pop("do"))(**task)
            except Exception as problem:  # noqa: BLE001 - whatever torch raises is the answer
                error = f"{_without_place(own_words(problem))}{self.during}"
                answer = {"error": error, "usable": self._usable()}
            os.write(self.pipe, json.dumps(answer).encode() + b"\n")

    def _usable(self) -> bool:
        """It got no further than the store: nothing of the group is left in this process."""
        torch = getattr(self, "torch", None)
        return torch is not None and not torch.distributed.is_initialized()

    def ready(self) -> dict[str, Any]:
        import torch  # noqa: PLC0415 - may fail, which is an answer
        import torch.distributed  # noqa: PLC0415

        self.torch = torch
        why = os.environ.get("HOLDFAST_SMOKE_NO_NCCL", "")
        gpus = 0 if why else torch.cuda.device_count()
        if not torch.distributed.is_nccl_available():
            why = why or "this build of torch has no NCCL"
        elif not gpus:
            why = why or "no GPU is visible to torch"
        version = "" if why else nccl_version(torch)
        ask_for_diagnostics(version)
        return {"torch": torch.__version__, "gpus": gpus, "nccl": version, "why_no_nccl": why}

    def host(self, address: str, seconds: float) -> dict[str, Any]:
        self.hosted = self._store(address, 0, seconds, listen=True)
        return {"port": self.hosted.port}

    def _store(self, address: str, port: int, seconds: float, *, listen: bool) -> Any:
        distributed: Any = self.torch.distributed  # which does not declare its C++ names
        limit = timedelta(seconds=seconds)
        return distributed.TCPStore(address, port, None, listen, limit, wait_for_workers=False)

    def meet(
        self,
        test: str,
        address: str,
        port: int,
        rank: int,
        world: int,
        backend: str,
        sizes: list[int],
        seconds: float,
    ) -> dict[str, Any]:
        self.during = ""
        device = self._device(backend)
        own = self._work_alone(device)
        if rank:
            connect_plainly(address, port, min(CONNECT_SECONDS, seconds))
            store = self._store(address, port, seconds, listen=False)
        else:
            store = self.hosted
        distributed = self.torch.distributed
        store = distributed.PrefixStore(test, store)
        self._gather(store, "here", rank, world, seconds)
        distributed.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=seconds),
            device_id=device if device.type == "cuda" else None,
        )
        took = 0.0
        passed = ""
        for size in sizes:
            self.during = f" (all_reduce of {size} bytes{passed})"
            took = self._all_reduce(size, rank, world, device)
            passed = f"; {size} bytes passed"
        # Leave together: a rank that goes first resets the others.
        self._gather(store, "done", rank, world, seconds)
        distributed.destroy_process_group()
        return {"seconds": took, "own_seconds": own}

    def _gather(self, store: Any, word: str, rank: int, world: int, seconds: float) -> None:
        store.set(f"{word}/{rank}", b"1")
        store.wait([f"{word}/{other}" for other in range(world)], timedelta(seconds=seconds))

    def _device(self, backend: str) -> Any:
        if backend != "nccl":
            return self.torch.device("cpu")
        number = self.local_rank
        if shares_gpus():
            os.environ.setdefault("NCCL_HOSTID", f"{os.uname().nodename}-{number}")
            number %= self.torch.cuda.device_count()
        device = self.torch.device(f"cuda:{number}")
        self.torch.cuda.set_device(device)
        return device

    def _work_alone(self, device: Any) -> float:
        """Seconds for a product of matrices: a throttled machine shows without any network."""
        edge = WORK[device.type]
        matrix = self.torch.ones(edge, edge, device=device)

        def multiply() -> None:
            self.torch.mm(matrix, matrix)
            self._finish(device)

        return min(_timed(multiply) for _ in range(4 * REPEATS))

    def _all_reduce(self, size: int, rank: int, world: int, device: Any) -> float:
        """Seconds of the best call; every sum is compared exactly."""
        pattern = self.torch.arange(size // 4, device=device) % PERIOD + 1
        mine = (pattern * (rank % WEIGHTS + 1)).to(self.torch.float32)
        total = sum(other % WEIGHTS + 1 for other in range(world))
        expected = (pattern * total).to(self.torch.float32)

        def once() -> float:
            row = mine.clone()
            self.torch.distributed.barrier()  # else we would time the filling of the row
            took = _timed(lambda: self._reduce(row, device))
            if not self.torch.equal(row, expected):
                raise ArithmeticError(f"holdfast: all_reduce of {size} bytes gave a wrong sum")
            return took

        first = self._slowest(once(), device)
        repeats = min(REPEATS, max(1, int(ENOUGH_SECONDS / first)))
        return min(once() for _ in range(repeats))

    def _slowest(self, seconds: float, device: Any) -> float:
        """Of all ranks, so that all do the same number of calls."""
        row = self.torch.tensor([seconds], device=device)
        self.torch.distributed.all_reduce(row, op=self.torch.distributed.ReduceOp.MAX)
        return float(row.item())

    def _reduce(self, row: Any, device: Any) -> None:
        self.torch.distributed.all_reduce(row)
        self._finish(device)

    def _finish(self, device: Any) -> None:
        if device.type == "cuda":
            self.torch.cuda.synchronize(device)


def _without_place(words: str) -> str:
    """Its first line, less the path of a source file at the place where torch was built."""
    return re.sub(r"\[/\S+\] ", "", words.splitlines()[0]) if words else words


def _timed(act: Any) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    WarmRank(int(sys.argv[1])).run()
