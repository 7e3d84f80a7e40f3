"""One rank of the smoke test, started by `member.py` with the number of a pipe.

Beside torch it needs only the standard library, `stages` and `sums`, so that it starts wherever
torch does. It reports every stage on that pipe, waits on stdin for the word to begin the next one,
and stops at the first error, in its own words.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.check.smoke.stages import (
    NCCL_PATIENCE,
    PATIENCE,
    SHARED,
    STAGES,
    WORDS_KEPT,
    Record,
    encode,
)
from holdfast.check.smoke.sums import Sums

if TYPE_CHECKING:
    import torch

DIAGNOSTICS = ("NCCL_RUN_DIAGNOSTICS", "NCCL_RUN_RAS_DIAGNOSTICS")
DIAGNOSTICS_SINCE = (2, 31)
CONNECT_SECONDS = 5
"""for one plain TCP connection on a machine that we share with the listener"""


class Rank:
    """What one rank knows, and its stages as methods: `start`, `store`, `gloo`, `nccl`."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.stage = STAGES[0]
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.address = os.environ["MASTER_ADDR"]
        self.port = int(os.environ["MASTER_PORT"])
        self.token = os.environ["HOLDFAST_SMOKE_TOKEN"]
        self.one_transport = bool(os.environ.get("HOLDFAST_SMOKE_ROUND"))

    def report(self, kind: str, **details: Any) -> None:
        record = Record(rank=self.rank, kind=kind, stage=self.stage, **details)
        os.write(self.pipe, encode(record))

    def run(self) -> int:
        """Stage after stage; the exit code is 0 unless one failed."""
        for stage in STAGES:
            if stage != STAGES[0] and sys.stdin.readline().strip() != stage:
                return 0  # the conductor stops here, or is gone
            self.stage = stage
            began = time.monotonic()
            try:
                details = getattr(self, stage)()
            except Exception as problem:  # noqa: BLE001 - whatever torch raises is the answer
                self.report("error", text=own_words(problem))
                return 1
            if details is not None:
                self.report("done", seconds=time.monotonic() - began, **details)
        sys.stdin.readline()  # leave together: a rank that goes first resets the others
        return 0

    def start(self) -> dict[str, Any]:
        import torch  # noqa: PLC0415 - the import is what this stage is about
        import torch.distributed  # noqa: PLC0415

        self.torch = torch
        self.why_no_nccl = _why_no_nccl(torch, self.world)
        self.device = "cpu" if self.why_no_nccl else _own_gpu(torch)
        version = "" if self.why_no_nccl else nccl_version(torch)
        ask_for_diagnostics(version)
        return {
            "pid": os.getpid(),
            "device": self.device,
            "master": f"{self.address}:{self.port}",
            "nccl": version,
        }

    def store(self) -> dict[str, Any]:
        """Rank 0 listens first; the others come when the conductor has heard that it does.

        So no rank joins another job's store while rank 0 finds its port taken.
        """
        if self.rank == 0:
            self._try_the_way()
            self.tcp_store = self._open_store(listen=True)
            self.tcp_store.set(self.token, b"1")
            self.report("listening")
        else:
            connect_plainly(self.address, self.port)
            self.tcp_store = self._open_store(listen=False)
            if not self.tcp_store.check([self.token]):
                raise RuntimeError(f"holdfast: another job's store at {self.address}:{self.port}")
        self.tcp_store.set(f"{self.token}/{self.rank}", b"1")
        everybody = [f"{self.token}/{rank}" for rank in range(self.world)]
        self.tcp_store.wait(everybody, timedelta(seconds=PATIENCE))
        return {}

    def _try_the_way(self) -> None:
        """A plain listener on the store's port, and a plain connection to it by the master's
        name: what rank 0's own store does, and reports only as 'timed out', after 15-30 s."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        try:
            server = socket.create_server(("", self.port), family=family, dualstack_ipv6=dual)
        except OSError:
            return  # the store will meet the same, and say so itself
        with server:
            connect_plainly(self.address, self.port)

    def _open_store(self, *, listen: bool) -> Any:
        distributed: Any = self.torch.distributed  # which does not declare its C++ names
        # wait_for_workers would add keys to whatever store answers, a foreign job's included.
        return distributed.TCPStore(
            self.address,
            self.port,
            None,
            listen,
            timedelta(seconds=PATIENCE),
            wait_for_workers=False,
        )

    def gloo(self) -> dict[str, Any] | None:
        if self.one_transport:
            self.report("skipped", text="this round is about NCCL alone")
            return None
        self._form_group("gloo", PATIENCE, device_id=None)
        self._sums(self.torch.device("cpu")).climb()
        return {}

    def nccl(self) -> dict[str, Any] | None:
        if self.why_no_nccl:
            self.report("skipped", text=self.why_no_nccl)
            return None
        device = self.torch.device(self.device.removesuffix(SHARED))
        self.torch.cuda.set_device(device)
        self._form_group("nccl", NCCL_PATIENCE, device_id=device)
        sums = self._sums(device)
        sums.climb()
        if not self.one_transport:
            sums.climb_to_the_top()
            sums.pair_up()
        # CUDA numbers GPUs in an order of its own; only this name is NVML's as well.
        return {"gpu": f"GPU-{self.torch.cuda.get_device_properties(device).uuid}"}

    def _sums(self, device: torch.device) -> Sums:
        return Sums(self.torch, self.rank, self.world, device, self.report)

    def _form_group(self, backend: str, seconds: int, *, device_id: torch.device | None) -> None:
        distributed = self.torch.distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()
        distributed.init_process_group(
            backend,
            store=distributed.PrefixStore(backend, self.tcp_store),
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=seconds),
            device_id=device_id,
        )

    def leave(self) -> None:
        distributed = self.torch.distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()


def shares_gpus() -> bool:
    return os.environ.get("HOLDFAST_SMOKE_SHARE_GPU") == "1"


def _why_no_nccl(torch: Any, world: int) -> str:
    """Why the stage 'nccl' is left out; '' when it is not."""
    if reason := os.environ.get("HOLDFAST_SMOKE_NO_NCCL"):
        return reason
    if not torch.distributed.is_nccl_available():
        return "this build of torch has no NCCL"
    count = torch.cuda.device_count()
    if not count:
        return "no GPU is visible to torch"
    if count < world and not shares_gpus():
        return f"NCCL wants a GPU for each of {world} ranks, and torch sees {count}"
    return ""


def nccl_version(torch: Any) -> str:
    """Of the library in this process; torch itself tells only the one it was built with."""
    return loaded_nccl_version() or ".".join(map(str, torch.cuda.nccl.version()))


def loaded_nccl_version() -> str:
    """'' where none is loaded: this loads nothing, least of all another one."""
    number = ctypes.c_int()
    try:
        loaded = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        if loaded.ncclGetVersion(ctypes.byref(number)) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    return version_of(number.value)


def version_of(number: int) -> str:
    """As nccl.h composes it: 22809 is 2.28.9, and 2708, before 2.9, is 2.7.8."""
    major, minor = (10_000, 100) if number >= 10_000 else (1000, 100)
    return f"{number // major}.{number % major // minor}.{number % minor}"


def ask_for_diagnostics(nccl: str) -> None:
    """NCCL reads these when its first communicator is made."""
    if nccl and tuple(map(int, nccl.split(".")[:2])) >= DIAGNOSTICS_SINCE:
        for name in DIAGNOSTICS:
            os.environ.setdefault(name, "1")


def _own_gpu(torch: Any) -> str:
    local_rank = int(os.environ["LOCAL_RANK"])
    if shares_gpus():
        # NCCL refuses two ranks on one GPU of one host; under different names it takes
        # them for different hosts.
        os.environ["NCCL_HOSTID"] = f"host{local_rank}"
        return f"cuda:{local_rank % torch.cuda.device_count()}{SHARED}"
    return f"cuda:{local_rank}"


def connect_plainly(address: str, port: int, seconds: float = CONNECT_SECONDS) -> None:
    """torch hides why a connection fails ('timed out' for a refused one, and for a name that does
    not resolve); the kernel tells a plain socket."""
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except OSError as problem:
        words = problem.strerror or os.strerror(errno.ETIMEDOUT)
        raise OSError(
            problem.errno or errno.ETIMEDOUT, f"connecting to {address}:{port}: {words}"
        ) from problem


def own_words(problem: Exception) -> str:
    """An exception in torch's words, less its pages of C++ frames."""
    text = f"{type(problem).__name__}: {problem}"
    return text.partition("\nException raised from")[0].strip()[:WORDS_KEPT]


def main() -> int:
    rank = Rank(int(sys.argv[1]))
    code = rank.run()
    if code == 0:
        rank.leave()
    return code
