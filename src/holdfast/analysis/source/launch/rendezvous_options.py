"""How torchrun's nodes are to meet: options that contradict each other, or leave it open.

Read from torch 2.13.0, torch/distributed/run.py: --standalone overwrites backend, endpoint and
id; the default backend is static, which reads --node-rank, --master-addr and --master-port
(or an endpoint) and waits for the greatest number of nodes; c10d reads the endpoint only, and
takes localhost:29400 without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast import shell_words
from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import Flag, Launch, Source, SourceKind
from holdfast.analysis.source.source_problem import SourceProblem

ELASTIC = "`--rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id NAME`"
STATIC = "`--master-addr HOST --master-port 29500 --node-rank N`, N from 0 on each node"
PER_RUN = re.compile(r"RANDOM|\bdate\b|uuidgen|/uuid\b|\$\$")


def problems(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    if launch.kind not in command_line.TORCHRUN or command_line.hides_flags(launch):
        return
    if not launch.script and not source.complete:
        return  # `srun torchrun --nnodes 2` in a document: the beginning of a line
    yield from _count(launch)
    if launch.flag("standalone") is not None:
        yield from _alone(launch)
        return
    backend = _backend(launch)
    if backend == "static":
        yield from _static(source, launch)
    elif backend == "c10d":
        yield from _c10d(source, launch)
    yield from _ids(source, launch)


def _lacking(source: Source) -> str:
    """How sure it is that what a line does not say is said nowhere.

    An operator of Kubernetes hands PET_ variables to its pods; an excerpt leaves out what its
    writer thought plain.
    """
    if source.kind in (SourceKind.YAML, SourceKind.COMPOSE):
        return ""
    return "error" if source.complete else "warning"


def _backend(launch: Launch) -> str:
    """'' where it is only known when it runs."""
    flag = launch.flag("rdzv-backend")
    if flag is not None:
        return flag.value if flag.known else ""
    setting = command_line.exported(launch, "PET_RDZV_BACKEND")
    if setting is not None:
        return setting.value if setting.known else ""
    return "static"


def _given(launch: Launch, flag: str) -> bool:
    """By option, or by the variable that stands for it."""
    variable = "PET_" + flag.upper().replace("-", "_")
    return launch.flag(flag) is not None or command_line.exported(launch, variable) is not None


def _count(launch: Launch) -> Iterator[SourceProblem]:
    flag, count = launch.flag("nnodes"), command_line.nodes(launch)
    if flag is not None and count is not None and not 0 < count[0] <= count[1]:
        yield SourceProblem(
            "error",
            f"--nnodes={flag.value} is not a valid number of nodes",
            "torchrun ends with 'min_nodes must be > 0 and <= max_nodes'",
            f"`--nnodes={min(count) or 1}:{max(count) or 1}`",
            flag.place,
        )


def _alone(launch: Launch) -> Iterator[SourceProblem]:
    alone = launch.flag("standalone")
    count = command_line.nodes(launch)
    if alone is None:
        return
    if count is not None and count[0] > 1:
        yield SourceProblem(
            "error",
            f"--standalone with --nnodes={count[0]}: each node would wait for the others forever",
            "--standalone uses localhost and a random id, so no other node can join",
            f"on one machine drop --nnodes; on several drop --standalone and add {ELASTIC}",
            alone.place,
        )
        return
    for name in ("rdzv-endpoint", "rdzv-backend", "rdzv-id", "master-port", "master-addr"):
        flag = launch.flag(name)
        if flag is not None:
            yield SourceProblem(
                "warning" if name == "rdzv-endpoint" else "note",
                f"--standalone overrides --{name}",
                "it always uses c10d on localhost, a free port and a random id",
                f"keep one of the two: drop --{name}, or --standalone",
                flag.place,
            )


def _static(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    count, nnodes = command_line.nodes(launch), launch.flag("nnodes")
    named = launch.flag("rdzv-backend")
    if count is None or nnodes is None or not 0 < count[0] <= count[1]:
        return
    certain = "error" if named is not None else _lacking(source)
    if count[0] < count[1] and certain:
        said = "named" if named is not None else "torchrun's default"
        yield SourceProblem(
            "error",
            f"--nnodes={nnodes.value} with the static rendezvous waits for all {count[1]} nodes",
            f"static ({said}) does not support a range: with fewer nodes the job times out, and "
            "nodes cannot join or leave later",
            f"add {ELASTIC}",
            nnodes.place,
        )
    elif count[1] > 1 and _lacking(source):
        yield from _incomplete(launch, nnodes, count[1], _lacking(source))
    endpoint = launch.flag("rdzv-endpoint")
    if endpoint is not None and endpoint.known and command_line.endpoint(endpoint.value)[1] is None:
        yield SourceProblem(
            "error",
            f"the endpoint {endpoint.value} has no port",
            "the static rendezvous refuses it: 'Port is absent in endpoint'",
            f"`--rdzv-endpoint {shell_words.word(f'{endpoint.value}:29500', 'HOST:29500')}`",
            endpoint.place,
        )


def _incomplete(launch: Launch, nnodes: Flag, count: int, status: str) -> Iterator[SourceProblem]:
    address = _given(launch, "master-addr") or _given(launch, "rdzv-endpoint")
    exported = command_line.exported(launch, "MASTER_ADDR")
    if not address and exported is None:  # an exported one is deepspeed-port-ignored's
        yield SourceProblem(
            status,
            f"{count} nodes without --master-addr: each would look for the master on 127.0.0.1",
            "127.0.0.1 is torchrun's default, and on every node it is that node itself",
            f"add {STATIC}, on every node; or {ELASTIC}",
            nnodes.place,
        )
    elif not _given(launch, "node-rank"):
        yield SourceProblem(
            status,
            f"{count} nodes without --node-rank: each takes itself for node 0",
            "the static rendezvous does not number the nodes, and the default is 0 on all of them",
            f"give each node its number, such as `--node-rank $SLURM_NODEID`; or use {ELASTIC}",
            nnodes.place,
        )


def _c10d(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    endpoint, count = launch.flag("rdzv-endpoint"), command_line.nodes(launch)
    backend = launch.flag("rdzv-backend")
    at = backend or launch.flag("nnodes")
    lacking = "" if _given(launch, "rdzv-endpoint") else _lacking(source)
    if at is not None and lacking and count and count[0] > 1:
        yield SourceProblem(
            lacking,
            f"{count[0]} nodes with c10d and no --rdzv-endpoint: each would use its own localhost",
            "c10d does not read --master-addr; without an endpoint it uses localhost:29400",
            "add `--rdzv-endpoint HOST:29400` on every node, where HOST is one of them",
            at.place,
        )
    if endpoint is not None and endpoint.known and command_line.endpoint(endpoint.value)[1] is None:
        yield SourceProblem(
            "note",
            f"the endpoint {endpoint.value} has no port",
            "c10d then uses 29400, while other launchers use 29500",
            f"`--rdzv-endpoint {shell_words.word(f'{endpoint.value}:29400', 'HOST:29400')}`",
            endpoint.place,
        )
    for name in ("node-rank", "master-addr", "master-port"):
        flag = launch.flag(name)
        if flag is not None and endpoint is not None:
            yield SourceProblem(
                "note",
                f"--{name} is not used with --rdzv-backend c10d",
                "c10d uses the endpoint and numbers the nodes itself; the option is for the static "
                "rendezvous",
                f"drop --{name}",
                flag.place,
            )


def _ids(source: Source, launch: Launch) -> Iterator[SourceProblem]:
    """A batch script or srun's line is read once, for all nodes; a line typed on each is not."""
    run, count = launch.flag("rdzv-id"), command_line.nodes(launch)
    once = launch.around or any(other.kind == "sbatch" for other in source.launches)
    carried = any(command.name in command_line.REMOTE for command in source.commands)
    if run is None or once or carried or count is None or count[1] < 2:
        return
    written = run.value
    if run.known is False and PER_RUN.search(written):
        yield SourceProblem(
            "warning",
            f"--rdzv-id {written} differs from node to node",
            f"this line runs on each of the {count[1]} nodes, and nodes with different ids never "
            "join the same job",
            "use the same id on every node: `--rdzv-id my-job-17`",
            run.place,
        )
