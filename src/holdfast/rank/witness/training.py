"""What a rank does between two steps, seen through torch's own global hooks, and recorded."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.rank import first_step
from holdfast.rank.witness import breakages, samples, slowness, weights
from holdfast.rank.witness.complaint import complain, safely
from holdfast.rank.witness.gate import Gate
from holdfast.rank.witness.record_file import RecordFile
from holdfast.rank.witness.rounds import StepRounds


class StepTally:
    """What went into a step, or a part of one; on the devices where it was seen."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.data: list[Any] = []
        self.samples = 0
        self.unreadable = False
        self.ended = 0.0

    def add(self, later: StepTally, ended: float) -> None:
        self.losses += later.losses
        self.data += later.data
        self.samples += later.samples
        self.unreadable |= later.unreadable
        self.ended = ended


class TrainingWitness:
    def __init__(self, torch: Any, records: RecordFile) -> None:
        self._torch, self._records = torch, records
        self._rounds, self._gate = StepRounds(), Gate(records)
        self._step = 0
        self._started = False
        self._outermost: Any = None
        """the module whose forward runs, as an id"""
        self._modules, self._optimizers = _SeenInOrder(), _SeenInOrder()
        self._now, self._taken = StepTally(), StepTally()
        """since the last call of an optimizer; since the last step and before that call"""

    # --- what torch calls ------------------------------------------------------------------------

    def before_optimizer(self, optimizer: Any) -> None:
        if not self._started:
            self._started = True
            self._records.begin_as_told()  # where nothing said before that it is a rank
            self._optimizers.add(optimizer)
            self._record_start(optimizer)
        if self._rounds.before(id(optimizer), _first_parameter(optimizer)):
            self._record_step()

    def after_optimizer(self, optimizer: Any) -> bool:
        """Whether a step is over."""
        self._optimizers.add(optimizer)
        self._outermost = None
        self._taken.add(self._now, time.time())
        self._now = StepTally()
        over = self._rounds.after(id(optimizer), _first_parameter(optimizer))
        if not over and not self._step and (self._all_stepped() or self._gate.is_next(1)):
            over = self._rounds.finish()
        if over:
            self._record_step()
        return over

    def before_forward(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._outermost is not None or not module.training or self._in_backward():
            return
        if not self._torch.is_grad_enabled() or next(module.parameters(), None) is None:
            return
        self._outermost = id(module)
        self._modules.add(module)
        try:
            self._take_samples(args, kwargs)
        except Exception:  # noqa: BLE001 - odd tensors (sparse, nested, fake) are not read
            self._now.unreadable = True

    def after_forward(self, module: Any) -> None:
        if self._outermost == id(module):
            self._outermost = None

    def saw_loss(self, outputs: Any, grads: Any) -> None:
        for output, given in zip(outputs, grads, strict=False):
            held = getattr(output, "_local_tensor", output)
            if given is None and held.numel() == 1 and held.is_floating_point():
                self._now.losses.append(held.detach().reshape(()).double())

    def finish(self) -> None:
        """The process ends: the last step may not have been known to be over."""
        if self._rounds.finish():
            self._record_step()

    def gate(self) -> breakages.BreakageOrder | None:
        return self._gate.take(self._step) if self._records.rank is not None else None

    def wait(self) -> None:
        self._gate.wait()

    # --- what is recorded ------------------------------------------------------------------------

    def _in_backward(self) -> bool:
        """Checkpointed activations are computed again there: those are no new samples."""
        return bool(self._torch._C._current_graph_task_id() != -1)  # noqa: SLF001

    def _take_samples(self, args: Any, kwargs: Any) -> None:
        torch = self._torch
        with torch.no_grad():
            found = samples.tensors(torch, args, kwargs)
            self._now.data += [samples.sum_of_digests(torch, name, one) for name, one in found]
        self._now.samples += len(found[0][1]) if found else 0

    def _parameters(self) -> list[Any]:
        trained = (p for module in self._modules for p in module.parameters() if p.requires_grad)
        stepped = (p for one in self._optimizers for g in one.param_groups for p in g["params"])
        return weights.local_parts(self._torch, [*trained, *stepped])

    def _all_stepped(self) -> bool:
        """No other optimizer can follow in this round. Where one could, the first step is known to
        be over when the next one begins."""
        stepped = {id(p) for one in self._optimizers for g in one.param_groups for p in g["params"]}
        trained = {id(p) for one in self._modules for p in one.parameters() if p.requires_grad}
        return bool(trained) and trained <= stepped

    def _weights(self) -> tuple[str, list[float]]:
        try:
            with self._torch.no_grad():
                held = self._parameters()
                sums = [int(one) for one in weights.sums(self._torch, held)]
                return weights.digest(sums), [float(one) for one in weights.some_values(held)]
        except Exception as problem:  # noqa: BLE001
            complain(problem)
            return "", []

    def _record_start(self, optimizer: Any) -> None:
        counted = first_step.steps_counted(self._torch, optimizer)
        digest, _ = self._weights()
        self._records.write("start", time.time(), weights=digest, optimizer_step=counted)

    def _record_step(self) -> None:
        self._step += 1
        digest, values = self._weights()
        taken, self._taken = self._taken, StepTally()
        data = sum(int(one) for one in taken.data) % 2**64
        self._records.write(
            "step",
            taken.ended,
            step=self._step,
            loss=sum(float(one) for one in taken.losses) if taken.losses else None,
            weights=digest,
            values=values,
            data=data if taken.data and not taken.unreadable else None,
            samples=taken.samples,
        )


class _SeenInOrder:
    """Objects in the order in which they were first seen; keeps none of them alive."""

    def __init__(self) -> None:
        self._seen: dict[int, weakref.ref[Any]] = {}

    def add(self, one: Any) -> None:
        if id(one) not in self._seen or self._seen[id(one)]() is not one:
            self._seen[id(one)] = weakref.ref(one)

    def __iter__(self) -> Iterator[Any]:
        return (one for ref in list(self._seen.values()) if (one := ref()) is not None)


def _first_parameter(optimizer: Any) -> int:
    groups = optimizer.param_groups
    parameters = groups[0]["params"] if groups else ()
    return id(parameters[0]) if parameters else id(optimizer)


def follow(torch: Any, witness: TrainingWitness) -> None:
    """Register what torch calls. Each is marked so that a compiler leaves it alone, or sees a
    function that does nothing."""
    compiling = torch.compiler.is_compiling

    def before_optimizer_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not followed:  # as late as possible: after the hook of `holdfast run` has counted
            followed.append(steps.register_optimizer_step_post_hook(after_optimizer_step))
        safely(lambda: witness.before_optimizer(optimizer))

    def after_optimizer_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        order = _after(witness, optimizer)
        if order is not None and order.waits:
            witness.wait()
        if order is not None and order.how != "wait":
            breakages.BREAKAGES[order.how](order)

    def before_forward(module: Any, args: Any) -> None:
        if not compiling():
            # torch gives keyword arguments to hooks of one module only, which a copy would take
            # along: they are read where torch holds them.
            kwargs = sys._getframe(1).f_locals.get("kwargs")  # noqa: SLF001
            safely(lambda: witness.before_forward(module, args, kwargs))

    def after_forward(module: Any, _args: Any, _result: Any) -> None:
        if not compiling():
            witness.after_forward(module)

    # What `torch.compiler.disable` sets, without the second that importing the compiler takes.
    before_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001
    after_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001
    # torch imports this module itself, and then deletes its name from torch.optim.
    steps: Any = sys.modules["torch.optim.optimizer"]
    steps.register_optimizer_step_pre_hook(before_optimizer_step)
    followed: list[Any] = []
    module: Any = torch.nn.modules.module
    module.register_module_forward_pre_hook(before_forward)
    module.register_module_forward_hook(after_forward, always_call=True)
    _see_losses(torch, witness, compiling)


def _after(witness: TrainingWitness, optimizer: Any) -> breakages.BreakageOrder | None:
    """Nothing of ours may break a script, except what the drill orders."""
    try:
        if not witness.after_optimizer(optimizer):
            return None
        slowness.after_step()
        return witness.gate()
    except Exception as problem:  # noqa: BLE001
        complain(problem)
        return None


def _see_losses(torch: Any, witness: TrainingWitness, compiling: Callable[[], bool]) -> None:
    """`backward` calls a small function with what it starts from: wrapping that one keeps us out of
    the script's tracebacks."""
    make_grads = torch.autograd._make_grads  # noqa: SLF001

    def look_and_make_grads(outputs: Any, grads: Any, *args: Any, **named: Any) -> Any:
        if not compiling():
            safely(lambda: witness.saw_loss(outputs, grads))
        return make_grads(outputs, grads, *args, **named)

    torch.autograd._make_grads = look_and_make_grads  # noqa: SLF001
