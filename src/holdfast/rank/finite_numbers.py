"""Losses and gradient norms that are not finite, noticed without a wait for the GPU.

A loss is a single number that `backward` starts from, a gradient norm what `clip_grad_norm_` works
with. On a GPU each is added to a number that stays there, one for each step, and all of them are
fetched about twice a second. A step counts when an optimizer has taken it: what a GradScaler skips
is no news.

No frame of ours may appear in a traceback of the user's, so neither function is wrapped: a small
one that it calls, and that returns at once, looks at what it is given.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from holdfast.rank import events, own_page

STEPS = 64
"""whose numbers are kept on a GPU until they are fetched"""
FETCH_EVERY = 0.5
"""seconds"""
AT_EXIT = 0.3
"""seconds"""
TOLD_IN_A_ROW = 3
"""steps that are reported, of a series of them that are not finite"""
MOST_TOLD = 60
MOST_FAILURES = 100
"""of a look, after which there are no more"""

What = Literal["loss", "gradients"]


class _OnGpu:
    """The numbers of one device and one kind."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._values = torch.zeros(STEPS, device=device)
        self._places = self._values.unbind()
        self._kept = torch.zeros(STEPS, pin_memory=True)
        self._steps: list[int] = []
        self._fetched: tuple[list[int], Any] | None = None
        self._fetch_at = 0.0
        self._added = False
        """something, for a step that was not taken yet"""

    def add(self, value: Any, *, replace: bool) -> None:
        self._added = True
        place = self._places[len(self._steps)]
        if replace:
            place.copy_(value)
        else:
            place.add_(value)

    def step_skipped(self) -> None:
        if self._added:
            self._places[len(self._steps)].zero_()
            self._added = False

    def step_taken(self, step: int, now: float) -> None:
        self._added = False
        self._steps.append(step)
        if len(self._steps) == STEPS or now >= self._fetch_at:
            self._fetch(now)

    def _fetch(self, now: float) -> None:
        """What was fetched before and not read in time is lost: the GPU is 64 steps behind."""
        self._fetch_at = now + FETCH_EVERY
        with self._torch.cuda.device(self._values.device):
            self._kept.copy_(self._values, non_blocking=True)
            self._values.zero_()
            here = self._torch.cuda.Event()
            here.record()
        self._fetched, self._steps = (self._steps, here), []

    def finish(self) -> None:
        """The process is about to end: a moment for the steps that were not fetched yet, and no
        more, for the GPU may hang."""
        if self._steps:
            self._fetch(time.monotonic())
        until = time.monotonic() + AT_EXIT
        while self._fetched and not self._fetched[1].query() and time.monotonic() < until:
            time.sleep(0.01)

    def news(self) -> Iterable[tuple[int, float]]:
        if self._fetched is None or not self._fetched[1].query():
            return ()
        steps, self._fetched = self._fetched[0], None
        return zip(steps, self._kept.tolist(), strict=False)


class FiniteNumbers:
    """One process. Called by the thread that trains."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._on_gpu: dict[tuple[What, Any], _OnGpu] = {}
        self._here: dict[What, float] = {}
        self._row: dict[What, int] = {}
        self._told = 0

    def saw(self, what: What, tensor: Any) -> None:
        held = getattr(tensor, "_local_tensor", tensor)
        if type(held) not in self._plain or held.numel() != 1 or not held.is_floating_point():
            return
        value = held.detach()
        if value.device.type == "cpu":
            before = 0.0 if what == "gradients" else self._here.get(what, 0.0)
            self._here[what] = before + float(value)
        elif value.device.type == "cuda" and not self._torch.cuda.is_current_stream_capturing():
            key = (what, value.device)
            if key not in self._on_gpu:
                self._on_gpu[key] = _OnGpu(self._torch, value.device)
            with self._torch.no_grad():
                self._on_gpu[key].add(value.reshape(()), replace=what == "gradients")

    def step_taken(self, step: int) -> None:
        for what, value in self._here.items():
            self._judge(what, step, value)
        self._here.clear()
        if self._on_gpu and not self._torch.cuda.is_current_stream_capturing():
            now = time.monotonic()
            self.deliver()
            for numbers in self._on_gpu.values():
                with self._torch.no_grad():
                    numbers.step_taken(step, now)

    def step_skipped(self) -> None:
        """A GradScaler is done with this step: if no optimizer took it, it does not count."""
        self._here.clear()
        if self._on_gpu and not self._torch.cuda.is_current_stream_capturing():
            with self._torch.no_grad():
                for numbers in self._on_gpu.values():
                    numbers.step_skipped()

    def deliver(self) -> None:
        for (what, _), numbers in self._on_gpu.items():
            for step, value in numbers.news():
                self._judge(what, step, value)

    def finish(self) -> None:
        for numbers in self._on_gpu.values():
            numbers.finish()
        self.deliver()

    def _judge(self, what: What, step: int, value: float) -> None:
        if math.isfinite(value):
            self._row[what] = 0
            return
        self._row[what] = self._row.get(what, 0) + 1
        if self._row[what] <= TOLD_IN_A_ROW and self._told < MOST_TOLD:
            self._told += 1
            events.tell("not-finite", what=what, step=step, value=str(value), row=self._row[what])


numbers: FiniteNumbers | None = None
_failures = 0


def follow(torch: Any) -> None:
    global numbers  # noqa: PLW0603 - one process has one
    numbers = FiniteNumbers(torch)
    compiling = torch.compiler.is_compiling
    _look_first(compiling, torch.autograd, "_make_grads", _losses)
    _look_first(compiling, torch.nn.utils.clip_grad, "_clip_grads_with_norm_", _norm)
    _look_first(compiling, torch.amp.GradScaler, "update", _scale_updated)


def _look_first(
    compiling: Callable[[], bool], module: Any, name: str, look: Callable[..., None]
) -> None:
    work = getattr(module, name, None)
    if work is None:  # a torch that has another name for it
        return

    @functools.wraps(work)
    def look_and_work(*args: Any, **kwargs: Any) -> Any:
        # A compiler that reads this sees the work alone: a look would break its graph.
        if not compiling() and own_page.page is not None and numbers is not None:
            _safely(lambda: look(*args, **kwargs))
        return work(*args, **kwargs)

    setattr(module, name, look_and_work)


def _losses(outputs: Any, grads: Any, *_args: Any, **_named: Any) -> None:
    for output, given in zip(outputs, grads, strict=False):
        if given is None and numbers is not None:  # nothing to multiply with: a loss
            numbers.saw("loss", output)


def _norm(_parameters: Any, _max_norm: Any, total_norm: Any, *_args: Any, **_named: Any) -> None:
    if numbers is not None:
        numbers.saw("gradients", total_norm)


def _scale_updated(*_args: Any, **_named: Any) -> None:
    if numbers is not None:
        numbers.step_skipped()


def step_taken(step: int) -> None:
    if numbers is not None:
        taken = numbers
        _safely(lambda: taken.step_taken(step))


def finish() -> None:
    if numbers is not None:
        _safely(numbers.finish)


def _safely(work: Callable[[], None]) -> None:
    """Odd tensors (of a subclass, under vmap, fake) are no reason to complain."""
    global numbers, _failures  # noqa: PLW0603
    try:
        work()
    except Exception:  # noqa: BLE001
        _failures += 1
        if _failures > MOST_FAILURES:
            numbers = None
