"""`holdfast.init`: init_process_group done right.

It says what it waits for, binds the device first, keeps the keys of every attempt apart, prints one
line, and destroys the group at exit. Under `holdfast run`, torchrun, or plain python, where this
process is the whole job.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.rank import gloo_threads
from holdfast.rank.durations import Duration, in_seconds
from holdfast.rank.print_line import say

if TYPE_CHECKING:
    import torch

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
CONNECT_SECONDS = 5.0
SAY_EVERY = 10.0


@dataclass(frozen=True)
class Run:
    """This process in the job.

    Attributes:
        rank: 0 to `world_size` - 1.
        world_size: the number of ranks.
        local_rank: on this machine.
        device: bound to this rank.
        backend: of the default process group, e.g. "cpu:gloo,cuda:nccl".
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    backend: str

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which prints and logs for all."""
        return self.rank == 0


def init(
    backend: str | None = None,
    *,
    timeout: Duration | None = None,
    patience: Duration = 300.0,
    quiet: bool = False,
) -> Run:
    """Join the default process group, once; a second call returns the same.

    Args:
        backend: as for torch; by default NCCL for tensors on GPUs and Gloo for the others.
        timeout: of the group's collectives: seconds, a timedelta, or "30m"; by default torch's.
        patience: how long to wait for rank 0's store.
        quiet: print nothing but warnings.

    Returns:
        This rank, its device, and the number of ranks.

    Raises:
        ConfigError: some of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are set, and some are not.
        EnvironmentFailure: no GPU for this rank, or no store within `patience`.
    """
    import torch  # noqa: PLC0415 - late: `import holdfast` stays fast
    import torch.distributed as dist  # noqa: PLC0415

    if dist.is_initialized():
        return _run(torch, _device(torch))
    limit = None if timeout is None else timedelta(seconds=in_seconds("timeout", timeout))
    wait = in_seconds("patience", patience)
    alone = _is_alone()
    device = _device(torch)
    if device.type == "cuda":
        # Before anything talks to the GPU: else every rank opens a context on the first one.
        torch.cuda.set_device(device)
    chosen = backend or ("cpu:gloo,cuda:nccl" if _nccl(torch, device) else "gloo")
    dist.init_process_group(
        chosen,
        store=_own_store(dist) if alone else _store(dist, wait),
        rank=0 if alone else int(os.environ["RANK"]),
        world_size=1 if alone else int(os.environ["WORLD_SIZE"]),
        timeout=limit,
        device_id=device if "nccl" in chosen else None,
    )
    atexit.register(_leave, dist, os.getpid())
    run = _run(torch, device)
    if not quiet:
        where = f"{socket.gethostname()}, pid {os.getpid()}, {device}, {chosen}"
        say(f"rank {run.rank} of {run.world_size} on {where}")
    return run


def _is_alone() -> bool:
    """Started by plain python: then this process is the whole job."""
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if missing and len(missing) < len(_NEEDED):
        raise ConfigError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set, so this process "
            "does not know its rank",
            hint="start it with `holdfast run` or torchrun, which set them, or set none of "
            f"{', '.join(_NEEDED)} to run alone",
        )
    return bool(missing)


def _own_store(dist: Any) -> Any:
    """On a port that the kernel chooses; the environment stays as it is."""
    return dist.TCPStore("127.0.0.1", 0, 1, is_master=True)


def _device(torch: Any) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return torch.device("cpu")  # type: ignore[no-any-return]
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if count == 1:
        local = 0  # each rank sees its own only, by CUDA_VISIBLE_DEVICES
    if local >= count:
        raise EnvironmentFailure(
            f"local rank {local} has no GPU: torch sees {count} here",
            hint=f"start at most {count} ranks on this machine: --nproc-per-node {count}",
        )
    return torch.device("cuda", local)  # type: ignore[no-any-return]


def _nccl(torch: Any, device: torch.device) -> bool:
    return device.type == "cuda" and bool(torch.distributed.is_nccl_available())


def _store(dist: Any, patience: float) -> Any:
    """The job's store, under a name of this attempt.

    torch 2.13 keeps one store over all attempts and no longer separates their keys: Gloo
    would connect to addresses of the dead.
    """
    deadline = time.monotonic() + patience
    if not _serves_the_store():
        _wait_for_listener(deadline)
    while True:
        left = deadline - time.monotonic()
        try:
            store, _rank, _world = next(
                dist.rendezvous("env://", timeout=timedelta(seconds=max(left, CONNECT_SECONDS)))
            )
            break
        except dist.DistNetworkError as problem:
            if _serves_the_store() or left <= 0:
                raise
            why = str(problem).splitlines()[0]
            say(f"rank {os.environ['RANK']} retries: the store did not answer: {why}")
            time.sleep(min(1.0, left))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"holdfast/attempt-{attempt}", store)


def _serves_the_store() -> bool:
    agent_does = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return os.environ["RANK"] == "0" and not agent_does


def _wait_for_listener(deadline: float) -> None:
    """torch waits in silence for half an hour; a plain socket learns why from the kernel."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    began = time.monotonic()
    say_at = began + SAY_EVERY
    while True:
        try:
            socket.create_connection(address, timeout=CONNECT_SECONDS).close()
        except OSError as problem:
            why = problem.strerror or "no answer"
        else:
            return
        now = time.monotonic()
        if now > deadline:
            raise EnvironmentFailure(
                f"rank {os.environ['RANK']}: no store at {address[0]}:{address[1]} "
                f"after {now - began:.0f} s: {why}",
                hint="see that rank 0 runs and listens there: `holdfast check` on both machines",
            )
        if now > say_at:
            say_at = now + SAY_EVERY
            waited = f"{now - began:.0f} s: {why}"
            store = f"{address[0]}:{address[1]}"
            say(f"rank {os.environ['RANK']} waits for the store at {store}, {waited}")
        time.sleep(0.2)


def _run(torch: Any, device: torch.device) -> Run:
    dist = torch.distributed
    return Run(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        device=device,
        backend=dist.get_backend_config(),
    )


def _leave(dist: Any, pid: int) -> None:
    """After an exception the peers may be gone, and leaving would wait for them."""
    if os.getpid() == pid and dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()
        gloo_threads.wait_until_idle()  # a model or a mesh may still hold the group
