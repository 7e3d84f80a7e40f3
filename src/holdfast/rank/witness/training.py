"""What a rank does between two steps, seen through torch's own global hooks, and recorded."""

from __future__ import annotations

import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.rank import first_step, initial_steps
from holdfast.rank.witness import breakages, samples, slowness, weights
from holdfast.rank.witness.complaint import complain, safely
from holdfast.rank.witness.device_numbers import DeviceNumbers, WaitingRecords
from holdfast.rank.witness.gate import Gate
from holdfast.rank.witness.record_file import RecordFile
from holdfast.rank.witness.rounds import StepRounds
from holdfast.rank.witness.tally import HeldWeights, StepTally, step_fields

AT_EXIT = 2.0
AT_THE_GATE = 30.0
"""seconds that are waited for a GPU, so that all steps before the fault are recorded"""


class TrainingWitness:
    def __init__(self, torch: Any, records: RecordFile) -> None:
        self._torch, self._records = torch, records
        self._rounds, self._gate = StepRounds(), Gate(records)
        self._waiting = WaitingRecords(complain)
        self._step = 0
        self._started = False
        self._outermost: Any = None
        """the module whose forward runs, as an id"""
        self._modules, self._optimizers = _SeenInOrder(), _SeenInOrder()
        self._now, self._taken = StepTally(), StepTally()
        """since the last call of an optimizer; since the last step and before that call"""

    # --- what torch calls ------------------------------------------------------------------------

    def before_optimizer(self, optimizer: Any) -> None:
        if first_step.is_capturing(self._torch) or initial_steps.is_one(optimizer):
            return
        if not self._started:
            self._started = True
            self._records.begin_as_told()  # where nothing said before that it is a rank
            self._optimizers.add(optimizer)
            self._record_start(optimizer)
        if self._rounds.before(id(optimizer), _first_parameter(optimizer)):
            self._record_step()

    def after_optimizer(self, optimizer: Any) -> bool:
        """Whether a step is over."""
        if first_step.is_capturing(self._torch) or initial_steps.is_one(optimizer):
            return False
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
        torch = self._torch
        if self._outermost is not None or not module.training or not torch.is_grad_enabled():
            return
        if self._in_backward() or next(module.parameters(), None) is None:
            return
        if first_step.is_capturing(torch):
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
            if given is not None or first_step.is_capturing(self._torch):
                continue
            if held.numel() == 1 and held.is_floating_point():
                self._now.losses.append(held.detach().reshape(()).clone())

    def finish(self) -> None:
        """The process ends: the last step may not have been known to be over."""
        if self._rounds.finish():
            self._record_step()
        self._waiting.finish(AT_EXIT)

    def saves(self) -> None:
        """The script begins to write a checkpoint."""
        step = self._step + self._rounds.is_open()
        self._records.write("saving", time.time(), step=step)

    def gate(self) -> breakages.BreakageOrder | None:
        if self._records.rank is None or not self._gate.is_next(self._step):
            return None
        self._waiting.finish(AT_THE_GATE)
        return self._gate.take(self._step)

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

    def _weights(self) -> HeldWeights:
        try:
            with self._torch.no_grad():
                held = self._parameters()
                return HeldWeights(weights.sums(self._torch, held), weights.some_values(held))
        except Exception as problem:  # noqa: BLE001 - odd tensors; the rest can be recorded
            complain(problem)
            return HeldWeights([], [])

    def _record_start(self, optimizer: Any) -> None:
        began, held = time.time(), self._weights()
        counted = first_step.steps_counted(self._torch, optimizer)
        on_gpu = self._torch.cuda.is_initialized()  # asking for devices would touch one

        def write(read: list[int]) -> None:
            fields = held.fields(read)
            self._records.write("start", began, optimizer_step=counted, on_gpu=on_gpu, **fields)

        self._waiting.add(DeviceNumbers(self._torch, held.all), write)

    def _record_step(self) -> None:
        self._step += 1
        step, held = self._step, self._weights()
        tally, self._taken = self._taken, StepTally()

        def write(read: list[int]) -> None:
            fields = step_fields(tally, held, read)
            self._records.write("step", tally.ended, step=step, **fields)

        numbers = [*tally.losses, *tally.data, *held.all]
        self._waiting.add(DeviceNumbers(self._torch, numbers), write)


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
    # A compiled module calls them twice, once for its wrapper; only the outermost counts here.
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are")
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
