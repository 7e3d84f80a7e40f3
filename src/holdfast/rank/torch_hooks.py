"""What the rank's own torch reports, once the script has imported it: steps, and the group."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from holdfast.rank import (
    agent_store,
    claim,
    cuda_graphs,
    finite_numbers,
    initial_steps,
    optimizer_calls,
    own_page,
    replica_check,
    script_saves,
    spawned,
    step_counter,
)
from holdfast.rank.first_step import FirstStepHook
from holdfast.rank.worker_server import WorkerServer

_ENTRIES = "2000"
"""what torch itself records by default since 2.13"""


def install(torch: Any, server: WorkerServer, *, spawned_process: bool = False) -> None:
    """Each part for itself: torch changes, and one part that fails must not cost the others."""
    if own_page.page is not None:
        own_page.page.torch_imported()
    parts: list[Callable[[], None]] = [_count_steps, lambda: finite_numbers.follow(torch)]
    if not spawned_process:
        parts += [
            lambda: FirstStepHook(torch).expect(),
            lambda: script_saves.follow(torch),
            spawned.follow,
        ]
    if torch.distributed.is_available():
        parts += [
            agent_store.follow,
            _keep_a_flight_recorder,
            lambda: claim.follow(torch, entering=spawned.adopt),
            lambda: _follow_the_group(torch, server),
            lambda: cuda_graphs.follow(torch),
        ]
        if every := replica_check.wanted(os.environ):
            parts.append(lambda: replica_check.follow(torch, every))
    for part in parts:
        try:
            part()
        except Exception as problem:  # noqa: BLE001, PERF203
            own_page.complain(problem)


def _count_steps() -> None:
    # torch imports this module itself, and then deletes its name from torch.optim.
    optimizer: Any = sys.modules["torch.optim.optimizer"]
    optimizer.register_optimizer_step_post_hook(after_optimizer_step)


def after_optimizer_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    page = own_page.page
    if page is None:
        return
    try:
        if initial_steps.is_one(optimizer):
            return
        own_page.optimizer_seen = True
        steps, taken = own_page.steps, optimizer_calls.note(optimizer)
        if steps.called(step_counter.caller(optimizer), time.monotonic_ns()):
            page.step(steps.count, steps.at, steps.usual)
            if steps.count == 1:
                claim.found_on(sys.modules["torch"], optimizer.param_groups)
            finite_numbers.step_taken(taken)
    except Exception as problem:  # noqa: BLE001
        own_page.complain(problem)


# What `torch.compiler.disable` sets, without the second that importing the compiler takes.
after_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001


def _keep_a_flight_recorder() -> None:
    """On, unless the user said something about it; it reads its size at the first collective.

    The variable's old name is honoured, but torch 2.8 and later warn about it.
    """
    if not {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"} & os.environ.keys():
        os.environ["TORCH_FR_BUFFER_SIZE"] = _ENTRIES


def _follow_the_group(torch: Any, server: WorkerServer) -> None:
    """Every way to make or end the default group passes through this private setter.

    Wrapping it, and not init_process_group, keeps us out of the user's tracebacks.
    """
    c10d = torch.distributed.distributed_c10d
    set_default: Callable[[Any], None] = c10d._update_default_pg  # noqa: SLF001

    @functools.wraps(set_default)
    def set_and_tell(group: Any) -> None:
        set_default(group)
        try:
            _note_group(group)
            if group is not None:
                server.start(torch)
        except Exception as problem:  # noqa: BLE001
            own_page.complain(problem)

    c10d._update_default_pg = set_and_tell  # noqa: SLF001


def _note_group(group: Any) -> None:
    if own_page.page is not None:
        own_page.page.group(ready=group is not None, timeout=group_timeout(group))
        if group is None:
            claim.group_destroyed()


def group_timeout(group: Any) -> float:
    """The shortest timeout of the group's backends, seconds; 0 when they do not say."""
    devices = _device_types(group)
    found = [_timeout(group, device) for device in devices]
    return min((seconds for seconds in found if seconds), default=0.0)


def _timeout(group: Any, device: Any) -> float:
    """Backends of other makers have no options, or raise when asked for them; so does torch's own
    wrapper of 2.8 for TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    try:
        return float(group._get_backend(device).options._timeout.total_seconds())  # noqa: SLF001
    except Exception:  # noqa: BLE001
        return 0.0


def _device_types(group: Any) -> list[Any]:
    try:
        return list(group._device_types) if group is not None else []  # noqa: SLF001
    except Exception:  # noqa: BLE001
        return []
