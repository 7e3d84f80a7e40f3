"""A pytest plugin for tools/torchrun_tests.py: our agent and rendezvous in place of torch's.

In PyTorch's tests of its elastic agent `LocalElasticAgent` becomes ours, with the watch of
`holdfast run`, and the handler for `c10d` our rendezvous: agents that name one endpoint meet there,
and the first to listen coordinates. Ranks are functions there, which write to files of torch's. A
failed result gets what torch would have put there: which rank failed, and the file that says why.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.analysis.scene.scene import Policy
from holdfast.nodes.channel_errors import CannotListen
from holdfast.nodes.token import open_token
from holdfast.run.launch.agent import LAST_WORD_OF_NODES, Agent
from holdfast.run.launch.launcher_signals import LauncherSignals
from holdfast.run.launch.logs import Environment, Logs
from holdfast.run.launch.orphans import Descendants
from holdfast.run.launch.places import RunPlaces
from holdfast.run.launch.rendezvous import RoundRendezvous
from holdfast.run.nodes.coordination import Coordination
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.member_watch import MemberWatch
from holdfast.run.nodes.membership import Membership
from holdfast.run.nodes.messages import NodeCard
from holdfast.run.nodes.round_source import (
    OpenStore,
    RoundPlace,
    RoundsOfOneNode,
    RoundSource,
    ToldToEnd,
)
from holdfast.run.nodes.rounds import RoundPolicy
from holdfast.run.runs.journal import Journal
from holdfast.run.watch.watch import Watch
from holdfast.view.run_screen import Screen

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest
    from torch.distributed.elastic.rendezvous import RendezvousParameters

MODULE = "local_elastic_agent_test"
JOIN_SECONDS = 60.0


class EndpointRounds:
    """The rounds of a test's agent, which has yet to say how many ranks it has."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self.parameters = parameters
        self.source: RoundSource | None = None

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        assert self.source is not None
        return self.source.next_round(open_store, told)


def handler(parameters: RendezvousParameters) -> RoundRendezvous:
    """In place of torch's registry."""
    return RoundRendezvous(run_id=parameters.run_id, source=EndpointRounds(parameters))


class FailureLogs(Logs):
    """Remembers where ranks write what they raised."""

    error_files: dict[int, str]

    def reify(self, envs: dict[int, Environment]) -> LogsDest:
        found = super().reify(envs)
        self.error_files = found.error_files
        return found


class ElasticAgent(Agent):
    """Made as torch's tests make theirs."""

    def __init__(
        self, spec: WorkerSpec, *, logs_specs: DefaultLogsSpecs, **torchs_own: Any
    ) -> None:
        self._closing = contextlib.ExitStack()
        folder = self._closing.enter_context(tempfile.TemporaryDirectory())
        places = RunPlaces(RunPaths(folder, "run"), tell=lambda _: None)
        self._closing.callback(places.close)
        self._watch = self._watch_of(spec, places)
        self._failures: dict[int, ProcessFailure] = {}
        self._failure_logs = FailureLogs(
            paths=places.paths,
            local=places.local.paths,
            folder_writer=places.writer,
            tails=places.tails,
            rank_environment=self._watch.rank_environment,
            instead=logs_specs,
        )
        super().__init__(
            spec=spec,
            logs=self._failure_logs,
            watcher=self._watch,
            orders=self._closing.enter_context(LauncherSignals([])),
            family=self._closing.enter_context(Descendants(spec.rdzv_handler.get_run_id())),
            grace=5.0,
            last_word=LAST_WORD_OF_NODES,
            **torchs_own,
        )

    def _watch_of(self, spec: WorkerSpec, places: RunPlaces) -> Watch | MemberWatch:
        made = spec.rdzv_handler
        assert isinstance(made, RoundRendezvous)
        rounds = made._source  # noqa: SLF001 - from `handler`
        assert isinstance(rounds, EndpointRounds)
        asked = rounds.parameters
        journal, screen = Journal(None), Screen(io.StringIO())
        policy = Policy(patience=None, max_restarts=spec.max_restarts, restarts_typed=True)
        common: dict[str, Any] = {
            "journal": journal,
            "screen": screen,
            "places": places,
            "memory_kills": lambda: None,
        }
        if asked.max_nodes == 1:
            rounds.source = RoundsOfOneNode(nproc=spec.local_world_size)
            return Watch(policy=policy, **common)
        token = open_token(asked.endpoint)
        port = int(asked.endpoint.rpartition(":")[2])
        name = f"agent-{secrets.token_hex(4)}"
        card = NodeCard(
            name=name, identity=name, pid=0, nproc=spec.local_world_size, role=spec.role
        )  # fmt: skip
        link = None
        if asked.get_as_bool("is_host") is not False:
            with contextlib.suppress(CannotListen):  # then another agent of the test was first
                link = ListeningLink(["127.0.0.1"], port, token=token, node=name, run=asked.run_id)
        if link is None:
            joined = JoinedLink("127.0.0.1", port, token=token, card=card, seconds=JOIN_SECONDS)
            membership = Membership(joined, screen=screen, journal=journal)
            rounds.source = membership
            return MemberWatch(membership, **common)
        coordination = Coordination(
            link,
            card=card,
            policy=RoundPolicy(least=asked.min_nodes, most=asked.max_nodes),
            screen=screen,
        )
        self._closing.callback(coordination.close)
        rounds.source = coordination
        return Watch(policy=policy, peers=coordination, **common)

    def _monitor_workers(self, *arguments: Any, **named: Any) -> RunResult:
        """A rank that is a function waits until what it returns is taken; `holdfast run` starts
        commands only."""
        ranks: Any = self._pcontext
        for rank, queue in ranks._ret_vals.items():  # noqa: SLF001 - as torch's own poll
            if not queue.empty():
                ranks._return_values[rank] = queue.get()  # noqa: SLF001
        if ranks._is_done():  # noqa: SLF001
            ranks._worker_finished_event.set()  # noqa: SLF001
        result: RunResult = super()._monitor_workers(*arguments, **named)
        return result

    def _shutdown(self, *arguments: Any, **named: Any) -> None:
        for worker in self._worker_group.workers:
            pid = self._pids.get(worker.local_rank)
            code = self._exit_code(worker.local_rank, pid) if pid else None
            if pid and code:
                self._failures[worker.global_rank] = ProcessFailure(
                    local_rank=worker.local_rank,
                    pid=pid,
                    exitcode=code,
                    error_file=self._failure_logs.error_files.get(worker.local_rank, ""),
                )
        super()._shutdown(*arguments, **named)

    def run(self, *arguments: Any, **named: Any) -> RunResult:
        with self._closing:
            result: RunResult = super().run(*arguments, **named)
            if result.is_failed():
                result.failures = self._failures
            self._failure_logs.close()
            self._watch.close()
            return result


@pytest.fixture(autouse=True)
def holdfast_in_the_agents_place(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if request.module.__name__.endswith(MODULE):
        monkeypatch.setattr(request.module, "LocalElasticAgent", ElasticAgent)
        monkeypatch.setattr(request.module.rdzv_registry, "get_rendezvous_handler", handler)
