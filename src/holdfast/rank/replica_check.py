"""`holdfast run --verify-replicas N`: every N steps a digest of what this rank shares with others.

It is taken just before an optimizer's next step, when whatever the last one set off is over: a
ZeroRedundancyOptimizer has sent its parts, a script has clipped its weights. The GPU adds up in the
stream that trains, so that nothing can write meanwhile; no rank waits for it: the sums are
fetched at a later step, and compared by the launcher. There is no collective.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.rank import bit_sums, events, initial_steps, optimizer_calls, own_page
from holdfast.rank.delivery import VERIFY
from holdfast.rank.replica_sets import ReplicaSet, ReplicaSets

MOST_PENDING = 4
"""digests that a GPU has not finished yet; with more of them it is left alone"""

check: ReplicaCheck | None = None


class _Pending(NamedTuple):
    step: int
    number: int
    """torch's, of this rank: its group may be gone when the GPU is done"""
    replicas: ReplicaSet
    sums: list[Any]
    """in host memory, once `ends` have come; one tensor a device"""
    names: list[str]
    """what each of them is of"""
    begins: list[Any]
    ends: list[Any]
    host: float
    """seconds that the script has paid for it so far"""


class ReplicaCheck:
    def __init__(self, torch: Any, every: int) -> None:
        self._torch, self._every = torch, every
        self._sets = ReplicaSets(torch)
        self._pending: deque[_Pending] = deque()
        self._refused = ""
        self._told: set[str] = set()
        """layouts whose names are known to the launcher"""

    def before_step(self, optimizer: Any) -> None:
        if own_page.page is None or _capturing(self._torch):
            return
        self.deliver()
        step = optimizer_calls.taken(optimizer)
        if step % self._every or len(self._pending) >= MOST_PENDING:
            return
        if self._torch._C._current_graph_task_id() != -1:  # noqa: SLF001
            self._refuse("the optimizer runs inside the backward pass")
            return
        began = time.perf_counter()
        found, why = self._sets.of(optimizer)
        if why:
            self._refuse(why)
        for one in found:
            self._pending.append(self._take(step, one, began))
            began = time.perf_counter()

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            self._refused = why
            events.tell("replicas-not-comparable", why=why)

    def _take(self, step: int, replicas: ReplicaSet, began: float) -> _Pending:
        torch = self._torch
        by_device: dict[Any, list[Any]] = {}
        for name, tensor in replicas.tensors:
            by_device.setdefault(tensor.device, []).append((name, tensor))
        number = torch.distributed.get_rank()
        made = _Pending(step, number, replicas, [], [], [], [], 0.0)
        with torch.no_grad():
            for device, named in by_device.items():
                made.names.extend(name for name, _ in named)
                tensors = [tensor for _, tensor in named]
                if device.type == "cpu":
                    made.sums.append(torch.stack([bit_sums.add_up(torch, t) for t in tensors]))
                    continue
                with torch.cuda.device(device):
                    made.begins.append(self._mark())
                    sums = torch.stack([bit_sums.add_up(torch, t) for t in tensors])
                    kept = torch.empty(len(named), dtype=torch.int64, pin_memory=True)
                    made.sums.append(kept.copy_(sums, non_blocking=True))
                    made.ends.append(self._mark())
        return made._replace(host=time.perf_counter() - began)

    def _mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def deliver(self) -> None:
        """Tell the launcher what the GPU has finished meanwhile."""
        while self._pending and all(end.query() for end in self._pending[0].ends):
            self._tell(self._pending.popleft())

    def _tell(self, made: _Pending) -> None:
        began = time.perf_counter()
        sums: Counter[str] = Counter()  # of two models alike which is found first is chance
        numbers = [number for kept in made.sums for number in kept.tolist()]
        for name, number in zip(made.names, numbers, strict=True):
            sums[name] += number
        named = bit_sums.layout(made.replicas.tensors)
        new = named not in self._told
        self._told.add(named)
        gpu = sum(a.elapsed_time(b) for a, b in zip(made.begins, made.ends, strict=True)) / 1e3
        events.tell(
            "replica-digest",
            step=made.step,
            number=made.number,
            ranks=made.replicas.ranks if new else (),
            members=_name(made.replicas.ranks),
            series=made.replicas.series,
            layout=named,
            digest=bit_sums.digest(sums),
            parts=bit_sums.part_names(sorted(sums)) if new else (),
            device=self._device(made.replicas) if new else "",
            bytes=sum(t.numel() * t.element_size() for _, t in made.replicas.tensors),
            gpu=round(gpu, 6),
            host=round(made.host + time.perf_counter() - began, 6),
            usual_step=round(own_page.steps.usual * 1e-9, 6),
        )

    def _device(self, replicas: ReplicaSet) -> str:
        """Unlike ones round differently: then a difference proves nothing."""
        torch = self._torch
        devices = sorted({t.device for _, t in replicas.tensors}, key=str)
        kinds = [
            torch.cuda.get_device_properties(device).name
            if device.type == "cuda"
            else f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
            for device in devices
        ]
        return f"{', '.join(kinds)}, torch {torch.__version__}"


def _name(ranks: tuple[int, ...]) -> str:
    """Short, for hundreds of them; which they are is said once."""
    return f"{ranks[0]}+{len(ranks)}+{hash(ranks) & 0xFFFFFFFF:x}"


def _capturing(torch: Any) -> bool:
    """Nothing may be asked of a GPU while a CUDA graph is being made."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def wanted(environment: Mapping[str, str]) -> int:
    """Every how many steps; 0 for never."""
    text = environment.get(VERIFY, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def follow(torch: Any, every: int) -> None:
    global check  # noqa: PLW0603 - one process has one
    check = ReplicaCheck(torch, every)
    # torch imports this module itself, and then deletes its name from torch.optim.
    optimizer: Any = sys.modules["torch.optim.optimizer"]
    optimizer.register_optimizer_step_pre_hook(before_optimizer_step)


def finish() -> None:
    """The process is about to end: what the GPU has finished is still told."""
    with contextlib.suppress(Exception):  # a driver that shuts down
        if check is not None:
            check.deliver()


def before_optimizer_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    global check  # noqa: PLW0603
    try:
        if check is not None and not initial_steps.is_one(optimizer):
            check.before_step(optimizer)
    except Exception as problem:  # noqa: BLE001 - torch's inner names change
        check = None
        events.tell("replicas-not-comparable", why=f"{type(problem).__name__}: {problem}")


# What `torch.compiler.disable` sets, without the second that importing the compiler takes.
before_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001
