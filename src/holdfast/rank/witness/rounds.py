"""When a step is complete, with any number of optimizers.

Several that take turns (optimizer-in-backward, one for each parameter; generator and discriminator;
DeepSpeed, which calls one for each of its parameter groups) make one step together: a round, which
is over when the first of them comes again. Once a round was seen, the next one is over with its
last optimizer. An optimizer inside the step of another, as wrappers have it, does not count.

step_counter.py counts a step at the *first* call of a round, which is right for a heartbeat: here
the weights are read when the step is over, so that they are those that a checkpoint would hold.
"""

from __future__ import annotations


class StepRounds:
    """Optimizers are told apart by the first parameter that they hold at the moment: one that is
    made again for each step stays the same."""

    def __init__(self) -> None:
        self._open: list[int] = []
        """optimizers that are stepping, the outermost first"""
        self._seen: set[int] = set()
        self._usual: set[int] = set()

    def before(self, optimizer: int, first_parameter: int) -> bool:
        """An optimizer begins: is the step before it over, only now that it comes again?"""
        if optimizer in self._open:  # it raised, and is tried again
            del self._open[self._open.index(optimizer) :]
        self._open.append(optimizer)
        if len(self._open) > 1 or first_parameter not in self._seen:
            return False
        self._usual = self._seen
        self._seen = set()
        return True

    def after(self, optimizer: int, first_parameter: int) -> bool:
        """An optimizer has done its work: is the step over?"""
        if optimizer in self._open:
            del self._open[self._open.index(optimizer) :]
        if self._open:
            return False
        self._seen.add(first_parameter)
        return bool(self._usual) and self._usual <= self._seen and self.finish()

    def is_open(self) -> bool:
        """Something was done since the last step."""
        return bool(self._seen)

    def finish(self) -> bool:
        """Whether something was done since the last step: then that is a step, too."""
        seen, self._seen = self._seen, set()
        return bool(seen)
