"""torch's elastic agent with our eyes: the one file that overrides private methods of torch.

The stock agent ends all ranks in the call that sees the first failure, and counts restarts by
itself. Ours asks a Watcher at every tick, which may first take evidence, and does what it says.
Checked against torch 2.13; 2.8 and later have the same methods.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from holdfast import text
from holdfast.errors import EnvironmentFailure
from holdfast.run.launch import grace as default_grace
from holdfast.run.launch import launcher_signals, terminate
from holdfast.run.launch.logs import Logs
from holdfast.run.launch.orphans import Descendant, Descendants
from holdfast.run.launch.pump import warn
from holdfast.run.launch.rank_fence import RankFence
from holdfast.run.launch.rendezvous import RoundRendezvous
from holdfast.run.nodes.round_source import RoundPlace, WaitInterrupted
from holdfast.run.watch.interface import JobAction, Watcher

T = TypeVar("T")
LAST_WORD = 10.0
"""seconds a watcher has for its verdict when no rank is left"""
LAST_WORD_OF_NODES = 40.0
"""the same where it may have to wait for the lease of another node"""
REAP_EVERY = 10.0
"""seconds between two looks for orphans of ours that have ended"""
LONGEST_SAVE = 300.0
"""seconds that a checkpoint may take to be finished after its ranks are gone"""


def accepted(function: Callable[..., Any], **wanted: Any) -> dict[str, Any]:
    """Those arguments that this version of torch knows."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in wanted.items() if name in known}


class Agent(LocalElasticAgent):
    def __init__(
        self,
        *,
        spec: WorkerSpec,
        logs: Logs,
        watcher: Watcher,
        orders: launcher_signals.LauncherSignals,
        family: Descendants,
        grace: float = default_grace.DEFAULT,
        last_word: float = LAST_WORD,
        fence: RankFence | None = None,
        **torchs_own: Any,
    ) -> None:
        """`fence`: where the ranks must not outlive a lease."""
        super().__init__(
            **accepted(LocalElasticAgent.__init__, spec=spec, logs_specs=logs, **torchs_own)
        )
        self._logs = logs
        self._watcher = watcher
        self._orders = orders
        self._family = family
        self._grace = grace
        self._last_word = last_word
        self._fence = fence
        self._pids: dict[int, int] = {}
        self._dead_since: float | None = None
        self._bugs: set[str] = set()
        self._unkillable: list[int] = []
        self._reaped_at = 0.0

    # --- start ---------------------------------------------------------------------------------

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        if self._unkillable:
            raise EnvironmentFailure(
                f"process {text.numbers(self._unkillable)} did not exit after SIGKILL "
                "(uninterruptible in the kernel?): a new rank could not use its device",
                hint="look for a failed disk, network mount or GPU: `dmesg | tail`; then reboot",
            )
        try:
            super()._rendezvous(worker_group)
        except WaitInterrupted:
            self._stop_if_told(other_nodes_first=False)
            raise
        if place := self._place():
            self._logs.next_attempt = place.start.attempt

    def _place(self) -> RoundPlace | None:
        """None with a rendezvous that is not ours."""
        handler = self._worker_group.spec.rdzv_handler
        return handler.place if isinstance(handler, RoundRendezvous) else None

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """As the coordinator numbered them. torch has the agents ask each other through the store,
        without a timeout that it obeys."""
        place = self._place()
        if place is None:
            workers: list[Worker] = super()._assign_worker_ranks(
                store, group_rank, group_world_size, spec
            )
            return workers
        first_of_role, role_world = place.role_ranks()
        return [
            Worker(
                local_rank=local_rank,
                global_rank=place.own.first_rank + local_rank,
                role_rank=first_of_role + local_rank,
                world_size=place.world,
                role_world_size=role_world,
            )
            for local_rank in range(spec.local_world_size)
        ]

    def _exit_barrier(self) -> None:
        """Where the rendezvous is ours, the watcher has waited for the ranks of all nodes."""
        if self._place() is None:
            super()._exit_barrier()  # type: ignore[no-untyped-call]

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, int]:
        self._stop_if_told(other_nodes_first=False)
        known: list[int] | None = None
        try:
            if self._fence:
                self._fence.begin()
            known = terminate.strays(())
            pids: dict[int, int] = super()._start_workers(worker_group)
            self._hold(pids)
        except OSError as problem:
            # torch forgets the ranks it had started when one cannot be.
            if known is not None:
                terminate.end(terminate.strays(known), at_once=terminate.strays(known))
            raise EnvironmentFailure(f"the ranks could not be started: {problem}") from problem
        finally:
            self._orders.listen()
            self._logs.started()
        self._pids = dict(pids)
        self._dead_since = None
        self._ask(lambda: self._watcher.ranks_started(self._logs.attempt, dict(pids)), None)
        return pids

    def _hold(self, pids: Mapping[int, int]) -> None:
        if self._fence and (refused := self._fence.hold(pids.values())):
            warn(
                "should this launcher be stopped, its ranks run on beside those of a new attempt: "
                f"the kernel does not end them with their lease ({refused})"
            )

    def _release(self) -> None:
        if self._fence:
            self._fence.release()

    def _stop_if_told(self, *, other_nodes_first: bool = True) -> None:
        """End the job when a signal asked for it; torch's own exception makes it end the ranks."""
        told = self._orders.told
        if told is None:
            return
        if other_nodes_first and self._ask(lambda: self._watcher.waits_for_others(told), False):
            return
        self._ask(lambda: self._watcher.told_to_stop(told), None)
        raise SignalException(f"stopped by {told.name}", sigval=told)

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        """A watcher that fails is asked again at the next tick; until it answers, the job runs as
        under torchrun."""
        try:
            return question()
        except Exception as bug:  # noqa: BLE001 - no bug of ours may end a training
            self._own_up(bug)
            return otherwise

    def _own_up(self, bug: Exception) -> None:
        kind = type(bug).__name__
        if kind not in self._bugs:  # its text may differ at every tick
            self._bugs.add(kind)
            warn(
                "monitoring failed and is tried again; meanwhile the job is restarted only when a "
                f"rank fails (a bug in holdfast: {kind}: {bug})"
            )

    def exit_code(self) -> int:
        """Of a job that failed, so never 0."""
        return self._ask(self._watcher.exit_code, 1) or 1

    # --- watch ---------------------------------------------------------------------------------

    def _monitor_workers(self, worker_group: WorkerGroup, **_: Any) -> RunResult:
        self._stop_if_told()
        self._forward_signals()
        self._reap()
        # Before the look, so that it has seen every exit that counts here: the watcher may wait for
        # ranks of other nodes.
        codes = {rank: self._exit_code(rank, pid) for rank, pid in self._pids.items()}
        step = self._ask(self._watcher.look, None)
        if step is None:
            step = self._step_of_a_stock_agent(codes)
        if step is JobAction.RESTART:
            # torch restarts while its own count is above 0; the budget is the watcher's.
            self._remaining_restarts = 1
            return RunResult(state=WorkerState.UNHEALTHY)
        if step is JobAction.STOP or self._waited_too_long(codes):
            self._remaining_restarts = 0
            return RunResult(state=WorkerState.FAILED)
        if step is JobAction.KEEP_RUNNING and all(code == 0 for code in codes.values()):
            self._leave_alone()
            result: RunResult = super()._monitor_workers(worker_group)
            return result
        # The stock poll is not asked before: it reaps, and it ends the living for one failure.
        return RunResult(state=WorkerState.HEALTHY)

    def _forward_signals(self) -> None:
        for number in self._orders.for_ranks():
            receivers = launcher_signals.receivers(self._pids, number)
            for pid in receivers.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told = sorted(receivers)
            self._ask(lambda: self._watcher.signal_forwarded(number, told), None)  # noqa: B023

    def _reap(self) -> None:
        """A script may start daemons for days; each leaves a zombie with us, its new parent."""
        if time.monotonic() - self._reaped_at >= REAP_EVERY:
            self._reaped_at = time.monotonic()
            self._family.reap(self._pids.values())

    def _leave_alone(self) -> None:
        """What ranks that ended well left running is theirs, as under torchrun: a TensorBoard
        started on purpose is to be looked at afterwards. After a failure it would meet its own
        successor, which the new attempt starts, on its port: there nothing is left."""
        self._release()
        pids, self._pids = self._pids, {}
        left = self._family.after_a_good_end({pid: rank for rank, pid in pids.items()})
        if left:
            self._logs.outlived = True
            self._ask(lambda: self._watcher.outlived(left, ended=False), None)

    def _exit_code(self, rank: int, pid: int) -> int | None:
        try:
            return terminate.exit_code(pid)
        except ChildProcessError:  # already reaped; torch's Popen may know
            code: int | None = self._handlers()[rank].proc.poll()
            return code

    def _handlers(self) -> dict[int, Any]:
        """torch's holders of the ranks' processes."""
        return getattr(self._pcontext, "subprocess_handlers", {})

    def _step_of_a_stock_agent(self, codes: Mapping[int, int | None]) -> JobAction:
        if any(code not in (None, 0) for code in codes.values()):
            spent = self._logs.attempt >= self._worker_group.spec.max_restarts
            return JobAction.STOP if spent else JobAction.RESTART
        return JobAction.KEEP_RUNNING

    def _waited_too_long(self, codes: Mapping[int, int | None]) -> bool:
        """All ranks have exited, one failed, and the watcher still has no verdict."""
        if None in codes.values() or not any(codes.values()):
            self._dead_since = None
            return False
        now = time.monotonic()
        self._dead_since = self._dead_since or now
        return now - self._dead_since > self._last_word

    # --- end -----------------------------------------------------------------------------------

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *_: Any, **__: Any) -> None:
        """Every way a group ends comes through here: restart, stop, signal, success, failure."""
        if self._pids:
            pids, self._pids = self._pids, {}
            self._end(pids, death_sig)
            self._close_our_ends()
            self._logs.settle()
            self._ask(lambda: self._watcher.ranks_stopped(self._unkillable), None)
        self._release()
        self._forget_unkillable()
        # torch reaps them and stops its own helpers; no process is left to be signalled.
        super()._shutdown(**accepted(super()._shutdown, death_sig=death_sig, timeout=1))

    def _end(self, pids: Mapping[int, int], sign: signal.Signals) -> None:
        until = time.monotonic() + self._grace
        guilty = self._ask(self._watcher.culprits, frozenset[int]())
        ranks = {pid: rank for rank, pid in pids.items()}
        seen = self._family.members(ranks)
        self._unkillable = terminate.end(
            pids.values(),
            at_once=[pid for rank, pid in pids.items() if rank in guilty],
            exiting=lambda: [pids[rank] for rank in self._exiting()],
            sign=sign,
            grace=self._grace,
            hurry=self._hurry,
            waiting=lambda living, left: self._say_waiting([ranks[p] for p in living], left),
            for_saves=lambda: self._time_for_saves(until),
        )
        self._end_what_is_left(ranks, seen, until=until, brief=guilty)
        if self._unkillable:
            warn(
                f"pid {text.numbers(self._unkillable)} did not exit after SIGKILL "
                "(uninterruptible in the kernel?) and is left behind"
            )

    def _time_for_saves(self, until: float) -> float:
        """Who told us to stop gives the grace and no more: then we are killed ourselves."""
        left = until - time.monotonic()
        return max(0.0, left) if self._orders.told else LONGEST_SAVE

    def _hurry(self) -> bool:
        return self._orders.hurry or self._ask(self._watcher.fenced, False)

    def _exiting(self) -> frozenset[int]:
        return self._ask(self._watcher.exiting, frozenset())

    def _say_waiting(self, ranks: Sequence[int], left: float) -> None:
        self._ask(lambda: self._watcher.waiting_for_exit(ranks, left), None)

    def _end_what_is_left(
        self,
        ranks: Mapping[int, int],
        seen: Sequence[Descendant],
        *,
        until: float,
        brief: Collection[int],
    ) -> None:
        """Before the logs settle: an orphan holds the rank's output open."""
        ended, left = self._family.end(ranks, seen, until=until, brief=brief, hurry=self._hurry)
        self._unkillable += left
        if ended:
            self._ask(lambda: self._watcher.outlived(ended, ended=True), None)

    def _forget_unkillable(self) -> None:
        """torch 2.8 to 2.12 wait for a rank without end, and one that hangs inside the kernel would
        keep us from ending."""
        handlers = self._handlers()
        for rank in [r for r, h in handlers.items() if h.proc.pid in self._unkillable]:
            del handlers[rank]

    def _close_our_ends(self) -> None:
        for handler in self._handlers().values():
            for name in ("_stdout", "_stderr"):  # torch closes them too, later
                if end := getattr(handler, name, None):
                    end.close()
