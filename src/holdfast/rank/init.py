"""`holdfast.init`: init_process_group done right.

It waits for the store and says what it waits for, binds the device first, starts every attempt
under names of its own, says one line, and leaves the group in good order at exit. Under
`holdfast run`, torchrun, or plain python, where this process is the whole world.
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

if TYPE_CHECKING:
    import torch

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
CONNECT_SECONDS = 5.0
SAY_EVERY = 10.0


@dataclass(frozen=True)
class Run:
    """Where this process stands in the job."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    backend: str


def init(
    backend: str | None = None,
    *,
    timeout: float | timedelta | None = None,
    patience: float = 300.0,
) -> Run:
    """Join the default process group, once; a second call returns the same.

    backend   as for torch; by default NCCL for tensors on GPUs and Gloo for the others
    timeout   of the group's collectives, seconds; by default torch's own
    patience  how long to wait for rank 0's store, seconds
    """
    import torch  # noqa: PLC0415 - late: `import holdfast` stays fast
    import torch.distributed as dist  # noqa: PLC0415

    if dist.is_initialized():
        return _run(torch, _device(torch))
    _alone_or_complete()
    device = _device(torch)
    if device.type == "cuda":
        # Before anything talks to the GPU: else every rank opens a context on the first one.
        torch.cuda.set_device(device)
    chosen = backend or ("cpu:gloo,cuda:nccl" if _nccl(torch, device) else "gloo")
    limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    store = _store(dist, patience)
    dist.init_process_group(
        chosen,
        store=store,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=limit,
        device_id=device if "nccl" in chosen else None,
    )
    atexit.register(_leave, dist, os.getpid())
    run = _run(torch, device)
    _say(f"of {run.world_size} on {socket.gethostname()}, pid {os.getpid()}, {device}, {chosen}")
    return run


def _alone_or_complete() -> None:
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if len(missing) == len(_NEEDED):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        values = ("0", "1", "127.0.0.1", str(port))
        os.environ.update(dict(zip(_NEEDED, values, strict=True)), LOCAL_RANK="0")
    elif missing:
        raise ConfigError(
            f"this process has no {', '.join(missing)}, so it cannot tell its place in the job",
            hint="start it with `holdfast run` or torchrun, which set them, or set none of "
            f"{', '.join(_NEEDED)} to run alone",
        )


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

    torch 2.13 keeps one store over all attempts and no longer tells their keys apart: Gloo
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
            _say(f"the store did not answer, trying again: {str(problem).splitlines()[0]}")
            time.sleep(min(1.0, left))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"holdfast/attempt-{attempt}", store)


def _serves_the_store() -> bool:
    agent_does = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return os.environ["RANK"] == "0" and not agent_does


def _wait_for_listener(deadline: float) -> None:
    """torch waits in silence for half an hour; the kernel tells a plain socket why."""
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
                hint="rank 0 must run, and listen there: `holdfast check` on both machines",
            )
        if now > say_at:
            say_at = now + SAY_EVERY
            _say(f"waits for the store at {address[0]}:{address[1]}, {now - began:.0f} s: {why}")
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


def _say(words: str) -> None:
    print(f"holdfast: rank {os.environ['RANK']} {words}", file=sys.stderr, flush=True)


def _leave(dist: Any, pid: int) -> None:
    """After an exception the peers may be gone, and leaving would wait for them."""
    if os.getpid() == pid and dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()
