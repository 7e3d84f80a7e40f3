"""A process wants to join a group but does not know where it is.

What you see   `environment variable MASTER_ADDR expected, but not set` (or RANK, WORLD_SIZE,
               MASTER_PORT), `KeyError: 'LOCAL_RANK'`, or `Default process group has not been
               initialized` at the first collective.
Why            init_process_group uses env:// by default: it reads RANK, WORLD_SIZE, MASTER_ADDR and
               MASTER_PORT from the environment, where a launcher puts them. They are missing when
               the script is started as `python train.py`, by mp.spawn, or by a scheduler that uses
               its own names (SLURM_PROCID, OMPI_COMM_WORLD_RANK). If init_process_group was never
               called in this process, every call that needs a group fails.
How to be sure `env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_)'` where the script is started.
Fix            Start it with a launcher: `torchrun --nproc-per-node=N train.py`. With mp.spawn set
               MASTER_ADDR and MASTER_PORT before the spawn and pass rank= and world_size=. Under
               srun translate Slurm's variables. With one process: do not create a group.
Known limits   `holdfast lint` does not know the environment in which a script will be started; it
               reports only what the script or the launch scripts beside it show.
Sources        torch 2.13.0: torch/distributed/rendezvous.py (_env_rendezvous_handler)
               torch 2.13.0: torch/distributed/distributed_c10d.py (_get_default_group)
               https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
               horovod/horovod horovod/common/basics.py (hvd.init)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.checkpoints.own_calls import made_before_the_group
from holdfast.analysis.source.collectives import init_calls
from holdfast.analysis.source.collectives.init_calls import InitCall
from holdfast.analysis.source.program import Program, constant
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD623",
    slug="init-without-address",
    related=("rank-assignment", "wrong-master-address", "launcher-config", "rendezvous-config"),
)


NOT_SET = FAULT.log_pattern(
    "not-set",
    r"environment variable (?P<name>\w+) expected, but not set",
    anchors="expected, but not set",
    example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
    "variable MASTER_ADDR expected, but not set",
)
RAISING = FAULT.log_pattern(
    "raising",
    # The line of torch's source that raises it: all that is left of a traceback cut at its end.
    r"(?:raise _env_error|_get_env_or_raise)\(['\"](?P<name>\w+)['\"]\)",
    anchors=("raise _env_error(", "_get_env_or_raise("),
    example='    raise _env_error("MASTER_ADDR")',
)
INCOMPLETE = FAULT.log_pattern(
    "parameter-missing",
    r"using (?P<scheme>\w+):// rendezvous: "
    r"(?P<name>rank parameter|world size parameter|port number|path) missing",
    anchors=("parameter missing", "port number missing", "rendezvous: path missing"),
    example="ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank "
    "parameter missing",
)
NO_SUCH_KEY = FAULT.log_pattern(
    "key-error",
    r"KeyError: ['\"](?P<name>(?:LOCAL_|GROUP_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE"
    r"|MASTER_(?:ADDR|PORT)"
    r"|SLURM_(?:PROCID|LOCALID|NODEID|NTASKS(?:_PER_NODE)?|NNODES|(?:JOB_|STEP_)?NODELIST)"
    r"|OMPI_COMM_WORLD_(?:LOCAL_)?(?:RANK|SIZE))['\"]",
    anchors=("KeyError: '", 'KeyError: "'),
    example="KeyError: 'LOCAL_RANK'",
)
NO_GROUP = FAULT.log_pattern(
    "no-group",
    r"[Dd]efault process group (?:has not been|is not) initialized"
    r"|backend not set, please initialize it using init_process_group"
    r"|(?P<horovod>Horovod has not been initialized; use hvd\.init)",
    anchors=(
        "efault process group has not been init",
        "efault process group is not init",
        "please initialize it using init_process_group",
        "Horovod has not been initialized",
    ),
    example="ValueError: Default process group has not been initialized, please make sure to call "
    "init_process_group.",
)


@FAULT.explain
def address_or_rank_is_missing(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_SET, INCOMPLETE, NO_SUCH_KEY) or wreckage.seen(RAISING)
    if not seen:
        return None
    first = seen[0]
    return FAULT.diagnosis(
        f"{_writer(first)} tried to join a group, but {_missing(first)}: the script was not "
        f"started {_by(first.fields['name'])} and did not set it itself",
        confidence=0.88 if first.pattern == NO_SUCH_KEY.name else 0.95,
        seen=seen,
        culprit=Culprit(rank=first.rank, what=first.fields["name"]),
        fix=_fix(first),
    )


def _writer(one: Sighting) -> str:
    return "the process" if one.rank is None else f"rank {one.rank}"


def _missing(one: Sighting) -> str:
    if one.pattern == INCOMPLETE.name:
        scheme = one.fields["scheme"]
        return f"the {one.fields['name']} for {scheme}:// is missing"
    return f"{one.fields['name']} is not set"


def _by(name: str) -> str:
    if name.startswith("SLURM_"):
        return "inside a Slurm step (srun)"
    return "by mpirun" if name.startswith("OMPI_") else "by a launcher"


def _fix(one: Sighting) -> str:
    if one.pattern == INCOMPLETE.name:
        return "pass rank=, world_size= and an init_method with host and port"
    if one.fields["name"].startswith("SLURM_"):
        return "start it with `srun python SCRIPT` inside an allocation, or with torchrun"
    return (
        "start the script with a launcher (`torchrun --nproc-per-node=N SCRIPT`), which sets RANK, "
        "LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; with mp.spawn set the last "
        "two before the spawn"
    )


@FAULT.explain
def group_was_not_initialized(wreckage: Wreckage) -> Diagnosis | None:
    """Ambiguous: never called, called in another process, or called later than it was needed."""
    seen = wreckage.seen(NO_GROUP)
    if not seen or wreckage.seen(NOT_SET, INCOMPLETE, NO_SUCH_KEY, RAISING):
        return None
    call = "hvd.init()" if "horovod" in seen[0].fields else "init_process_group"
    return FAULT.diagnosis(
        f"{_writer(seen[0])} used the process group before {call} created one in this process: "
        "never called, not called yet, or called in another process",
        confidence=0.7,
        seen=seen,
        fix=f"call {call} in every process before the first use (a spawned worker is a separate "
        "process); with one process, leave out what needs a group (DDP, SyncBatchNorm, "
        "DistributedSampler)",
        unknown=("whether the script was started by a launcher at all",),
    )


# --- in what a user wrote ------------------------------------------------------------------------

NEEDS = {"rank": "RANK", "world_size": "WORLD_SIZE"}
SET_BOTH = (
    "before the processes start, call `os.environ.setdefault('MASTER_ADDR', '127.0.0.1')` and "
    "`os.environ.setdefault('MASTER_PORT', '29500')`, or pass "
    "`init_method='tcp://127.0.0.1:29500'` to init_process_group"
)


@FAULT.lint_python
def script_sets_no_address(program: Program, source: Source) -> Iterator[Finding]:
    for init in init_calls.init_calls_of(program):
        if not init.known or init.given("store") is not None:
            continue
        method = init.given("init_method")
        url = constant(names(program).follow(method)) if method is not None else "env://"
        if init_calls.backend(program, init) == "mpi" or not isinstance(url, str):
            continue
        if url.startswith("env://"):
            yield from _environment_lacks(source, program, init)
        elif url.startswith(("tcp://", "file://")):
            yield from _url_lacks(program, init, url)


def _environment_lacks(source: Source, program: Program, init: InitCall) -> Iterator[Finding]:
    starter = init_calls.started_here(program, init)
    if starter is None:
        plain = _started_with_plain_python(source, program, init)
        if finding := plain or _literal_rank(source, program, init):
            yield finding
        return
    given = {s.name for launch in source.started_by for s in launch.settings}
    wanted = [NEEDS[name] for name in NEEDS if init.given(name) is None]
    wanted += ["MASTER_ADDR", "MASTER_PORT"]
    missing = [
        name for name in wanted if name not in given and not init_calls.mentions(program, name)
    ]
    if not missing or any(launch.kind in LAUNCHERS for launch in source.started_by):
        return
    address = [name for name in missing if name.startswith("MASTER_")]
    yield FAULT.error(
        f"init_process_group reads {_and(missing)} from the environment, and nothing here sets "
        f"{'it' if len(missing) == 1 else 'them'}",
        reason=f"the ranks are started by {starter.written} (line {starter.node.lineno}), which "
        "does not set "
        f"{'it' if len(missing) == 1 else 'them'}. This raises ValueError: environment variable "
        f"{missing[0]} expected, but not set",
        fix=SET_BOTH if address else _numbers(missing),
        at=program.place(init.call.node),
    )


def _numbers(missing: list[str]) -> str:
    options = [option for option, name in NEEDS.items() if name in missing]
    given = ", ".join(f"{option}={option}" for option in options)
    return f"`init_process_group(…, {given})`"


LAUNCHERS = ("torchrun", "torch.distributed.launch", "deepspeed", "accelerate", "holdfast")


def _started_with_plain_python(source: Source, program: Program, init: InitCall) -> Finding | None:
    """A script that may be started by anything; the files here start it with plain python."""
    plain = [one for one in source.started_by if one.kind == "python" and not one.around]
    told = init_calls.mentions(program, "MASTER_ADDR") or any(
        one.setting("MASTER_ADDR") for one in source.started_by
    )
    if not plain or len(plain) < len(source.started_by) or told:
        return None
    where = plain[0].place
    return FAULT.warning(
        "init_process_group reads MASTER_ADDR and MASTER_PORT from the environment, and the script "
        f"is started with plain python ({where.file}:{where.line})",
        reason="python sets none of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; unless the "
        "environment already has them, this raises ValueError",
        fix="start it with `torchrun --nproc-per-node=N SCRIPT` instead of `python SCRIPT`",
        at=program.place(init.call.node),
    )


def _literal_rank(source: Source, program: Program, init: InitCall) -> Finding | None:
    """A literal `rank=0`: no launcher starts this, since every rank would be rank 0."""
    given = [init.given(name) for name in NEEDS]
    by_hand = all(one and isinstance(constant(names(program).follow(one)), int) for one in given)
    told = any(init_calls.mentions(program, name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not by_hand or told or source.started_by or not source.complete:
        return None
    if not init_calls.runs(program, init):
        return None
    return FAULT.warning(
        "init_process_group reads MASTER_ADDR and MASTER_PORT from the environment, even with a "
        "literal rank=",
        reason="rank= and world_size= do not say where the ranks meet; unless the environment has "
        "both, this raises ValueError",
        fix="`init_process_group(…, init_method='tcp://127.0.0.1:29500')`, or for a single "
        "process `store=torch.distributed.HashStore()`",
        at=program.place(init.call.node),
    )


def _url_lacks(program: Program, init: InitCall, url: str) -> Iterator[Finding]:
    scheme = url.partition(":")[0]
    missing = [name for name in NEEDS if init.given(name) is None and f"{name}=" not in url]
    host = url.partition("//")[2].partition("?")[0].partition("/")[0]
    if scheme == "tcp" and not re.search(r":\d+$|[{}<>$]", host):
        missing = ["a port in the address", *missing]
    if missing and (host not in ("", "...") or scheme == "file"):
        yield FAULT.error(
            f"init_process_group(init_method='{scheme}://…') lacks {_and(missing)}",
            reason=f"{scheme}:// reads nothing from the environment. This raises ValueError: … "
            "rank parameter missing",
            fix="`init_process_group(…, rank=rank, world_size=world_size)`, or remove init_method "
            "and start the script with torchrun",
            at=program.place(init.call.node),
        )


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


@FAULT.lint_python
def checkpoint_is_made_before_the_group(program: Program, _: Source) -> Iterator[Finding]:
    for made, group in made_before_the_group(program):
        yield FAULT.error(
            "this Checkpoint is made before the process group",
            reason=f"it learns its rank and the number of ranks from the group, which "
            f"{group.written}() in line {group.node.lineno} makes; with more than one rank it "
            "raises",
            fix=f"make it after {group.written}()",
            at=program.place(made.node),
        )
