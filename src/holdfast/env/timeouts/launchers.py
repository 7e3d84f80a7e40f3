"""The launchers' timeouts: torchrun and the launchers built on it, Horovod, holdfast run.

torch 2.13.0: elastic/rendezvous/{dynamic,static_tcp}_rendezvous.py, c10d_rendezvous_backend.py,
launcher/api.py, elastic/agent/server/api.py. Horovod 0.28.1: horovod/runner/launch.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.machine.rendezvous import FREE_PORT_SINCE
from holdfast.analysis.source.source import Launch
from holdfast.analysis.variables.status import Timeout
from holdfast.analysis.versions import release
from holdfast.env.job import Job
from holdfast.env.timeouts import lookup
from holdfast.env.timeouts.lookup import TimeoutValue

TORCHRUN = frozenset({"torchrun", "torch.distributed.launch", "accelerate"})
HOLDFAST = frozenset({"holdfast"})
HOROVOD = frozenset({"horovodrun"})
DYNAMIC = "torch 2.13.0 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
STATIC = "torch 2.13.0 elastic/rendezvous/static_tcp_rendezvous.py, launcher/api.py"
AGENT = "torch 2.13.0 torch/distributed/elastic/agent/server/api.py"
RUN = "horovod/horovod horovod/runner/launch.py (0.28.1)"


def timeouts(job: Job) -> Iterator[Timeout]:
    kinds = {launch.kind for launch in job.launches}
    if kinds & TORCHRUN or not kinds & (HOLDFAST | HOROVOD | {"deepspeed", "mpirun", "python"}):
        yield from _rendezvous(job)
        yield from _agent(job)
    if kinds & HOLDFAST:
        yield from _holdfast(job)
    if kinds & HOROVOD or (not job.launches and _installed(job, "horovod")):
        yield from _horovod(job)


def _installed(job: Job, package: str) -> bool:
    return bool(job.software and package in job.software.packages)


# --- torchrun ------------------------------------------------------------------------------------


def backend(job: Job) -> str:
    """As torchrun decides: --standalone means c10d; nothing means static, on one machine c10d."""
    launch = _torchrun(job)
    if launch is not None and launch.flag("standalone"):
        return "c10d"
    flag = launch.flag("rdzv-backend") if launch is not None else None
    setting = job.setting("PET_RDZV_BACKEND")
    if flag is not None:
        named = flag.value if flag.known else ""
    else:
        named = setting.value if setting else "static"
    return "c10d" if named == "static" and _takes_a_free_port(job, launch) else named


def _takes_a_free_port(job: Job, launch: Launch | None) -> bool:
    """On one machine, and without an endpoint or port, torchrun does as with --standalone."""
    version = job.version("torch")
    if version and release(version) < FREE_PORT_SINCE:
        return False
    if launch is not None and launch.kind == "accelerate":  # which hands a port to torchrun
        return False
    told = ("rdzv-endpoint", "master-port")
    if launch is not None and (launch.flag(*told) or not _counted(launch)):
        return False
    if any(job.setting(f"PET_{name.upper().replace('-', '_')}") for name in told):
        return False
    return not _several(job)


def _counted(launch: Launch) -> bool:
    nnodes = launch.flag("nnodes")
    return nnodes is None or nnodes.known


def _several(job: Job) -> bool:
    return job.facts.plan.multi_node or any((x.machines or 1) > 1 for x in job.launches)


def _torchrun(job: Job) -> Launch | None:
    return next((launch for launch in job.launches if launch.kind in TORCHRUN), None)


def configuration(job: Job) -> dict[str, TimeoutValue]:
    """--rdzv-conf k=v,k=v, or PET_RDZV_CONF, with where each came from."""
    launch = _torchrun(job)
    flag = launch.flag("rdzv-conf") if launch is not None else None
    setting = job.setting("PET_RDZV_CONF")
    if flag is not None:
        text, origin = (flag.value if flag.known else ""), "--rdzv-conf"
    elif setting is not None:
        text, origin = setting.value, "PET_RDZV_CONF"
    else:
        return {}
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    stripped = ((name.strip(), value.strip()) for name, _, value in pairs)
    return {
        name: TimeoutValue(lookup.plain(value), f"{origin} {name}={value}")
        for name, value in stripped
    }


def _rendezvous(job: Job) -> Iterator[Timeout]:
    given = configuration(job)
    kind = backend(job)
    if kind in ("static", ""):
        value = given.get("timeout") or TimeoutValue(900.0, "default of torchrun (launcher/api.py)")
        yield _join("static", value, "the agents' store waits for the other machines", STATIC)
    if kind != "static":
        value = given.get("join_timeout") or lookup.default_of_torch(job, 600.0, since="1.9")
        yield _join(kind or "c10d", value, "torchrun gives up when machines are missing", DYNAMIC)
    if kind == "static" or not _several(job):
        return
    last = given.get("last_call_timeout") or lookup.default_of_torch(job, 30.0, since="1.9")
    yield Timeout(
        name="rendezvous: last call",
        key="last-call",
        stage="start",
        seconds=last.seconds,
        origin=last.origin,
        does="holds an elastic start: more machines may come once the least number is there",
        source=DYNAMIC,
    )
    yield _keep_alive(given, job)


def _join(kind: str, value: TimeoutValue, does: str, source: str) -> Timeout:
    return Timeout(
        name=f"rendezvous: join ({kind})",
        key="join",
        stage="start",
        seconds=value.seconds,
        origin=value.origin,
        does=does,
        source=source,
    )


def _keep_alive(given: dict[str, TimeoutValue], job: Job) -> Timeout:
    default = lookup.default_of_torch(job, 5.0, since="1.9")
    every = given.get("keep_alive_interval") or default
    tries = given.get("keep_alive_max_attempt") or TimeoutValue(3.0, "")
    both = every.seconds is not None and tries.seconds is not None
    named = [value.origin for value in (given.get(k) for k in KEEP_ALIVE) if value]
    return Timeout(
        name="rendezvous: keep-alive",
        key="keep-alive",
        stage="watch",
        seconds=(every.seconds or 0) * (tries.seconds or 0) if both else None,
        origin=", ".join(named) or f"{default.origin}: 3 times 5 s",
        does="an agent that is silent for so long counts as gone, and all ranks are restarted",
        source=DYNAMIC,
    )


KEEP_ALIVE = ("keep_alive_interval", "keep_alive_max_attempt")


def _agent(job: Job) -> Iterator[Timeout]:
    watch = lookup.by_flag(job.launches, TORCHRUN, "monitor-interval", lookup.plain)
    watch = watch or lookup.by_variable(job, "PET_MONITOR_INTERVAL", 0.1, read=lookup.plain)
    watch = watch or lookup.default_of_torch(job, 0.1)
    yield Timeout(
        name="torchrun: look at the ranks",
        key="monitor-interval",
        stage="watch",
        seconds=watch.seconds,
        origin=watch.origin,
        does="how soon a dead rank is noticed; its siblings are ended then",
        source=AGENT,
    )
    grace = lookup.by_flag(job.launches, TORCHRUN, "shutdown-timeout", lookup.plain)
    grace = grace or lookup.by_variable(job, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 30.0)
    grace = grace or lookup.default_of_torch(job, 30.0)
    yield Timeout(
        name="torchrun: SIGTERM to SIGKILL",
        key="grace",
        stage="end",
        seconds=grace.seconds,
        origin=grace.origin,
        does="how long ranks may take to save and exit after SIGTERM",
        source=AGENT,
    )
    if _several(job):
        last = lookup.default_of_torch(job, 300.0, since="1.9")
        yield Timeout(
            name="torchrun: exit barrier",
            key="exit-barrier",
            stage="end",
            seconds=last.seconds,
            origin=last.origin,
            does="an agent whose ranks are done waits so long for the other machines",
            source=AGENT,
        )


# --- holdfast run --------------------------------------------------------------------------------


def _holdfast(job: Job) -> Iterator[Timeout]:
    patience = lookup.by_flag(job.launches, HOLDFAST, "patience", lookup.plain)
    yield Timeout(
        name="holdfast run: patience",
        key="patience",
        stage="watch",
        seconds=patience.seconds if patience else None,
        origin=patience.origin if patience else "no --patience: the wait's own timeout",
        does="ends a wait for a rank that stalls the others, in any case a few seconds before "
        "the group's timeout",
        source="holdfast run --help",
    )


# --- Horovod -------------------------------------------------------------------------------------

HOROVOD_TIMEOUTS = (
    ("start", "start", "HOROVOD_START_TIMEOUT", 30.0, "start-timeout",
     "horovodrun gives up when processes have not started"),
    ("elastic", "start", "HOROVOD_ELASTIC_TIMEOUT", 600.0, "elastic-timeout",
     "an elastic job ends when it waits so long for enough hosts"),
    ("Gloo", "run", "HOROVOD_GLOO_TIMEOUT_SECONDS", 30.0, "gloo-timeout-seconds",
     "an operation of the Gloo controller fails"),
    ("stall warning", "watch", "HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0,
     "stall-check-warning-time-seconds", "ranks that lag are named in the log"),
    ("stall shutdown", "watch", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0,
     "stall-check-shutdown-time-seconds", "the job is ended for ranks that lag; 0 is never"),
)  # fmt: skip


def _horovod(job: Job) -> Iterator[Timeout]:
    for name, stage, variable, default, flag, does in HOROVOD_TIMEOUTS:
        value = lookup.by_flag(job.launches, HOROVOD, flag, lookup.plain)
        value = value or lookup.by_variable(job, variable, default)
        value = value or TimeoutValue(default, "default of Horovod 0.28.1")
        never = name == "stall shutdown" and not value.seconds
        yield Timeout(
            name=f"Horovod: {name}",
            key=f"horovod-{name.lower().replace(' ', '-')}",
            stage=stage,
            seconds=None if never else value.seconds,
            origin=value.origin,
            does=does,
            source=RUN,
        )
