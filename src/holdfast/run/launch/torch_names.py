"""What `run` uses of torch that torch does not promise: looked up once, before anything starts.

A renamed method of the agent would otherwise leave a job that runs as under torchrun, unwatched,
or end it with a traceback of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import EnvironmentFailure

OLDEST, NEWEST = "2.8", "2.15"
"""the versions that `make versions` runs the tests with; newer ones are tried"""


@dataclass(frozen=True)
class TorchName:
    module: str
    name: str
    """`Class.method`; `Class.__init__:field` for a field that the constructor sets"""
    needed_for: str
    """essential: 'to …'; else what cannot be seen without it"""
    since: str = ""
    """the first version that has it, where it is newer than the oldest supported one"""


_AGENT = "torch.distributed.elastic.agent.server.api"
_LOCAL_AGENT = "torch.distributed.elastic.agent.server.local_elastic_agent"
_LOGS = "torch.distributed.elastic.multiprocessing.api"
_PROCESS = "torch.distributed.elastic.multiprocessing.subprocess_handler"
_RENDEZVOUS = "torch.distributed.elastic.rendezvous.api"
_GROUPS = "torch.distributed.distributed_c10d"
_C10D = "torch._C._distributed_c10d"

ESSENTIAL = (
    TorchName("torch.distributed.run", "get_args_parser", "to read torchrun's options"),
    TorchName("torch.distributed.run", "config_from_args", "to read torchrun's options"),
    TorchName("torch.distributed.run", "determine_local_world_size", "to count the ranks"),
    TorchName(_LOGS, "LogsSpecs.reify", "to give each rank its output"),
    TorchName(_LOGS, "LogsDest", "to give each rank its output"),
    TorchName(_LOGS, "to_map", "to give each rank its output"),
    TorchName(_LOGS, "LogsSpecs.__init__:_redirects", "to read --redirects"),
    TorchName(_LOGS, "LogsSpecs.__init__:_tee", "to read --tee"),
    TorchName(_LOGS, "LogsSpecs.__init__:_local_ranks_filter", "to read --local-ranks-filter"),
    TorchName(_AGENT, "SimpleElasticAgent._start_workers", "to start the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent._monitor_workers", "to watch the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent._shutdown", "to end the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent._rendezvous", "to number the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent._assign_worker_ranks", "to number the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent._exit_barrier", "to end with all nodes"),
    TorchName(_AGENT, "Worker", "to number the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent.__init__:_worker_group", "to watch the ranks"),
    TorchName(_AGENT, "SimpleElasticAgent.__init__:_remaining_restarts", "to restart the ranks"),
    TorchName(_LOCAL_AGENT, "LocalElasticAgent.__init__:_pcontext", "to watch the ranks"),
    TorchName(_LOGS, "SubprocessContext.__init__:subprocess_handlers", "to watch the ranks"),
    TorchName(_PROCESS, "SubprocessHandler.__init__:proc", "to watch the ranks"),
    TorchName(_RENDEZVOUS, "RendezvousInfo", "to give the ranks a store"),
    TorchName(_RENDEZVOUS, "RendezvousStoreInfo", "to give the ranks a store"),
    TorchName(_C10D, "TCPStore.__init__:master_listen_fd", "to give the ranks a store"),
)
"""without these nothing can be started"""

OPTIONAL = (
    TorchName(_C10D, "_get_handler_names()fr_trace_json", "positions of Gloo collectives", "2.10"),
    TorchName(_C10D, "_WorkerServer", "positions of collectives"),
    TorchName(_GROUPS, "_update_default_pg", "process groups and positions of collectives"),
    TorchName(_GROUPS, "_process_group_name", "rank numbers and world sizes that disagree"),
)
"""without these the job runs, and less of it is seen"""


def check(version: str) -> tuple[str, ...]:
    """What this torch cannot show, in sentences; EnvironmentFailure when it can start no job."""
    if gone := missing(ESSENTIAL):
        first = gone[0]
        raise EnvironmentFailure(
            f"torch {version} has no {first.module}.{first.name}, which holdfast run needs "
            f"{first.needed_for}: it supports torch {OLDEST} to {NEWEST}",
            hint="install a supported torch, a newer holdfast, or start the job with `torchrun`",
        )
    return tuple(_remark(name, version) for name in missing(OPTIONAL)[:1])


def _remark(name: TorchName, version: str) -> str:
    needs = f": needs torch {name.since}" if name.since else f" (no {name.module}.{name.name})"
    return f"with torch {version} {name.needed_for} cannot be seen{needs}"


def missing(
    names: Sequence[TorchName], load: Callable[[str], Any] = importlib.import_module
) -> list[TorchName]:
    return [name for name in names if not _exists(name, load)]


def _exists(name: TorchName, load: Callable[[str], Any]) -> bool:
    path, _, field = name.name.partition(":")
    path, _, listed = path.partition("()")
    try:
        found = load(name.module)
        for part in path.split("."):
            found = getattr(found, part)
        if listed:
            return listed in found()
    except (ImportError, AttributeError):
        return False
    if not field:
        return True
    code = getattr(found, "__code__", None)  # C++ has none, and lists its parameters in its doc
    return field in code.co_names if code else field in (found.__doc__ or "")
