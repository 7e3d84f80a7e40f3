"""Start the job: torch's own configuration, our store, our logs, our agent."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence

from torch.distributed import run as torchrun
from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.metrics import initialize_metrics
from torch.distributed.elastic.metrics.api import MetricsConfig
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher.api import LaunchConfig  # noqa: TC002

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.errors import ConfigError
from holdfast.rank import delivery
from holdfast.redaction import redact
from holdfast.run.launch.agent import LAST_WORD, LAST_WORD_OF_NODES, Agent, accepted
from holdfast.run.launch.flags import RunFlags
from holdfast.run.launch.launcher_signals import LauncherSignals
from holdfast.run.launch.logs import Logs, PrepareEnvironment
from holdfast.run.launch.orphans import Descendants
from holdfast.run.launch.places import RunPlaces
from holdfast.run.launch.pump import Writer, write_all
from holdfast.run.launch.rank_fence import RankFence
from holdfast.run.launch.rendezvous import BACKEND, RoundRendezvous
from holdfast.run.nodes.round_source import JobIsOver, RoundsOfOneNode, RoundSource
from holdfast.run.watch.interface import Watcher

Wrap = Callable[[list[str]], list[str]]
TICK = 0.1
"""the longest the watcher waits between two looks; deaths are to be noticed at once"""

PATIENCE = "the timeout of the collective that ranks wait in, less a few seconds"
RUN_PATH = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""--run-path as a command: torch would fork a function, which no exec shim can come before"""


def start(  # noqa: PLR0913 - each one is said by name
    flags: RunFlags,
    *,
    watcher: Watcher,
    paths: RunPaths | None,
    places: RunPlaces | None = None,
    rank_environment: PrepareEnvironment | None = None,
    wrap: Wrap = list,
    write: Writer = write_all,
    rounds: RoundSource | None = None,
    fence: RankFence | None = None,
) -> int:
    """Run the job to its end and answer the exit code: 0, 128 + the signal that ended us,
    or the watcher's.

    Without `paths` nothing is kept; `places` has what stands in for them while that disk hangs.
    `rank_environment` changes a rank's environment, `wrap` its command; `write` puts the ranks'
    bytes on the screen, from another thread. `rounds` of several nodes; None: this one alone.
    `fence` where the ranks must not outlive a lease.
    """
    config, command, logs = _prepare(
        flags, paths=paths, places=places, rank_environment=rank_environment, write=write
    )
    source = rounds or RoundsOfOneNode(nproc=config.nproc_per_node, port=flags.port)
    os.environ[delivery.GRACE] = f"{flags.grace:g}"  # for those in the ranks that save on SIGTERM
    if flags.meeting is not None and flags.meeting.least < flags.meeting.most:
        os.environ[delivery.NODES] = f"{flags.meeting.least}:{flags.meeting.most}"
    with LauncherSignals(_signals(flags.torchrun)) as orders, Descendants(config.run_id) as family:
        handler = RoundRendezvous(run_id=config.run_id, source=source, told=lambda: orders.told)
        agent = Agent(
            spec=_spec(config, wrap(command), handler),
            logs=logs,
            watcher=watcher,
            orders=orders,
            family=family,
            grace=flags.grace,
            last_word=LAST_WORD_OF_NODES if rounds else LAST_WORD,
            fence=fence,
            start_method=config.start_method,
        )
        try:
            return _run(agent, config)
        finally:
            handler.shutdown()
            logs.close()


def _spec(config: LaunchConfig, command: list[str], handler: RoundRendezvous) -> WorkerSpec:
    return WorkerSpec(
        **accepted(
            WorkerSpec,
            role=config.role,
            local_world_size=config.nproc_per_node,
            entrypoint=command[0],
            args=tuple(command[1:]),
            rdzv_handler=handler,
            max_restarts=config.max_restarts,
            monitor_interval=min(config.monitor_interval, TICK),
            local_addr=config.local_addr,
            event_log_handler=config.event_log_handler,
            numa_options=getattr(config, "numa_options", None),  # not before torch 2.9
            virtual_local_rank=getattr(config, "virtual_local_rank", False),
        )
    )


def _run(agent: Agent, config: LaunchConfig) -> int:
    initialize_metrics(MetricsConfig(config.metrics_cfg))
    try:
        result = agent.run()
        events.record(agent.get_event_succeeded(), config.event_log_handler)
    except JobIsOver as over:
        ended = agent.get_event_failed() if over.exit_code else agent.get_event_succeeded()
        events.record(ended, config.event_log_handler)
        return over.exit_code
    except SignalException as told:
        events.record(agent.get_event_failed(), config.event_log_handler)
        return 128 + int(told.sigval)
    except Exception:
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    return agent.exit_code() if result.is_failed() else 0


def _prepare(
    flags: RunFlags,
    *,
    paths: RunPaths | None,
    places: RunPlaces | None = None,
    rank_environment: PrepareEnvironment | None,
    write: Writer,
) -> tuple[LaunchConfig, list[str], Logs]:
    """By torch's own function, so that each flag means what it means to torchrun."""
    typed = argparse.Namespace(**vars(flags.torchrun))
    typed.rdzv_backend, typed.rdzv_endpoint = BACKEND, f"localhost:{flags.port}"
    if typed.rdzv_id == "none":
        typed.rdzv_id = paths.run_id if paths else f"holdfast-{os.getpid()}"
    if not typed.logs_specs:
        typed.log_dir = os.devnull  # else torch makes a folder of its own
    typed.nnodes, typed.node_rank = "1", 0
    try:
        if "OMP_NUM_THREADS" not in os.environ and nproc(flags) > 1:
            os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun, without its banner
        config, entrypoint, arguments = torchrun.config_from_args(typed)
    except (ValueError, RuntimeError, AssertionError) as problem:
        raise ConfigError(str(problem)) from problem
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = _signal_names(typed)
    torchs = config.logs_specs
    assert torchs
    logs = Logs(
        log_dir=flags.torchrun.log_dir,
        redirects=torchs._redirects,  # noqa: SLF001 - already read from the flags by torch
        tee=torchs._tee,  # noqa: SLF001
        local_ranks_filter=torchs._local_ranks_filter,  # noqa: SLF001
        paths=paths,
        local=places.local.paths if places else None,
        folder_writer=places.writer if places else None,
        tails=places.tails if places else None,
        heard=places.rules.add if places and places.rules.rules else None,
        rank_environment=rank_environment,
        copies=(
            getattr(typed, "duplicate_stdout_filters", ()),
            getattr(typed, "duplicate_stderr_filters", ()),
        ),
        instead=torchs if typed.logs_specs else None,
        write=write,
        pty=flags.pty,
        prefix_template=typed.log_line_prefix_template,
    )
    if callable(entrypoint):
        entrypoint = os.environ.get("PYTHON_EXEC", sys.executable)
        arguments = ["-u", "-c", RUN_PATH, *arguments]
    return config, [entrypoint, *arguments], logs


def nproc(flags: RunFlags) -> int:
    """How many ranks 'auto', 'gpu' or a number means here."""
    count = int(torchrun.determine_local_world_size(flags.torchrun.nproc_per_node))
    if count < 1:
        raise ConfigError(f"--nproc-per-node must be >= 1, got {count}")
    return count


def _signal_names(typed: argparse.Namespace) -> str:
    """Older torchruns have no such flag, and handle these."""
    return getattr(typed, "signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")


def _signals(typed: argparse.Namespace) -> list[signal.Signals]:
    names = [name.strip() for name in _signal_names(typed).split(",") if name.strip()]
    try:
        return [signal.Signals[name] for name in names]
    except KeyError as problem:
        raise ConfigError(f"--signals-to-handle: unknown signal {problem}") from None


def describe(
    flags: RunFlags,
    *,
    paths: RunPaths,
    rank_environment: PrepareEnvironment | None = None,
    wrap: Wrap = list,
) -> str:
    """What `start` would do, for --dry-run; starts nothing and makes no folder."""
    config, command, _ = _prepare(flags, paths=paths, rank_environment=None, write=write_all)
    ranks, typed = config.nproc_per_node, flags.torchrun
    port = str(flags.port) if flags.port else "a free port outside the ephemeral range, a new one"
    lines = [
        f"would start {ranks} rank{'s' * (ranks > 1)} on this node, each",
        f"  {_shell(command)}",
        f"through    {_shell(wrap(command))}" if wrap(command) != command else "",
        *_meeting_in_words(flags),
        f"store      127.0.0.1, {port} in every attempt" if not flags.meeting else "",
        f"restarts   up to {flags.max_restarts}, of all ranks{_if_resumes(flags)}",
        f"patience   {f'{flags.patience:g} s' if flags.patience else PATIENCE}",
        f"grace      {flags.grace:g} s between SIGTERM and SIGKILL",
        f"logs       {paths.stdout(0, 0)} and so on, and the screen",
        f"log dir    {typed.log_dir} (--log-dir)" if typed.log_dir else "",
        *(f"note       {remark}" for remark in flags.remarks),
        "environment of rank 0, beside what torchrun sets (RANK, WORLD_SIZE, MASTER_PORT …)",
        f"  TORCHELASTIC_ERROR_FILE={paths.error(0, 0)}",
        f"  OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '')}" if ranks > 1 else "",
    ]
    if rank_environment:
        added = rank_environment(0, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)})
        lines += [f"  {name}={added[name]}" for name in sorted(added.keys() - _TORCHS)]
    return "\n".join(line for line in lines if line)


def _meeting_in_words(flags: RunFlags) -> list[str]:
    if flags.meeting is None:
        return []
    plan, least, most = flags.meeting.plan, flags.meeting.least, flags.meeting.most
    count = str(most) if least == most else f"{least} to {most}"
    where = "elected through etcd at" if flags.meeting.etcd else "the node that has"
    return [
        f"nodes      {count}, coordinated by {where} {plan.host}:{plan.port} ({plan.host_source})",
        "store      on that node, another port outside the ephemeral range in every attempt",
    ]


def _if_resumes(flags: RunFlags) -> str:
    return "" if flags.restarts_typed else ", if the job is seen to resume; else none"


_TORCHS = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}


def _shell(command: Sequence[str]) -> str:
    """As one would type it, without the secrets."""
    return redact(shlex.join(command))
