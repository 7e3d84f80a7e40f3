"""A process wants to join a group that nobody told it about.

What you see   `environment variable MASTER_ADDR expected, but not set` (or RANK, WORLD_SIZE,
               MASTER_PORT), `KeyError: 'LOCAL_RANK'`, or `Default process group has not been
               initialized` at the first collective.
Why            init_process_group without other orders uses env://: it reads RANK, WORLD_SIZE,
               MASTER_ADDR and MASTER_PORT from the environment, where a launcher puts them. Started
               as `python train.py`, by mp.spawn, or from a scheduler that uses names of its own
               (SLURM_PROCID, OMPI_COMM_WORLD_RANK), they are missing. Where init_process_group was
               never called in this process, every call that needs a group fails.
How to be sure `env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_)'` at the place where the
               script is started.
Fix            Start it by a launcher: `torchrun --nproc-per-node=N train.py`. With mp.spawn set
               MASTER_ADDR and MASTER_PORT before the spawn and give rank= and world_size=. Under
               srun translate Slurm's variables. On one process: do not ask for a group.
Sources        torch 2.13.0: torch/distributed/rendezvous.py (_env_rendezvous_handler)
               torch 2.13.0: torch/distributed/distributed_c10d.py (_get_default_group)
               https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
               horovod/horovod horovod/common/basics.py (hvd.init)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.collectives import init_calls
from holdfast.analysis.source.collectives.init_calls import InitCall
from holdfast.analysis.source.program import Program, constant
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD623", slug="init-without-address")


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
def nobody_said_where(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_SET, INCOMPLETE, NO_SUCH_KEY) or wreckage.seen(RAISING)
    if not seen:
        return None
    first = seen[0]
    return FAULT.diagnosis(
        f"{_writer(first)} wanted to join a group, but {_missing(first)}: the script was not "
        f"started {_by(first.fields['name'])}, and did not get the address in another way",
        confidence=0.88 if first.pattern == NO_SUCH_KEY.name else 0.95,
        seen=seen,
        culprit=Culprit(rank=first.rank, what=first.fields["name"]),
        fix=_cure(first),
    )


def _writer(one: Sighting) -> str:
    return "the process" if one.rank is None else f"rank {one.rank}"


def _missing(one: Sighting) -> str:
    if one.pattern == INCOMPLETE.name:
        scheme = one.fields["scheme"]
        return f"the {one.fields['name']} is missing from what it gave {scheme}://"
    return f"the environment has no {one.fields['name']}"


def _by(name: str) -> str:
    if name.startswith("SLURM_"):
        return "inside a Slurm step (srun)"
    return "by mpirun" if name.startswith("OMPI_") else "by a launcher"


def _cure(one: Sighting) -> str:
    if one.pattern == INCOMPLETE.name:
        return "give init_process_group rank=, world_size= and an init_method with host and port"
    if one.fields["name"].startswith("SLURM_"):
        return "start it with `srun python SCRIPT` inside an allocation, or with torchrun"
    return (
        "start the script by a launcher (`torchrun --nproc-per-node=N SCRIPT`), which sets RANK, "
        "LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; with mp.spawn set the last "
        "two before the spawn"
    )


@FAULT.explain
def nobody_made_the_group(wreckage: Wreckage) -> Diagnosis | None:
    """Ambiguous: never called, called in another process, or called later than it was needed."""
    seen = wreckage.seen(NO_GROUP)
    if not seen or wreckage.seen(NOT_SET, INCOMPLETE, NO_SUCH_KEY, RAISING):
        return None
    call = "hvd.init()" if "horovod" in seen[0].fields else "init_process_group"
    return FAULT.diagnosis(
        f"{_writer(seen[0])} used the process group before {call} had made one in this process: it "
        "was never called, not yet called, or called in another process",
        confidence=0.7,
        seen=seen,
        fix=f"call {call} in every process, before the first use (a spawned worker is a process "
        "of its own); where one process shall do, leave out what needs a group (DDP, "
        "SyncBatchNorm, DistributedSampler)",
        unknown=("whether the script was started by a launcher at all",),
    )


# --- in what a user wrote ------------------------------------------------------------------------

NEEDS = {"rank": "RANK", "world_size": "WORLD_SIZE"}
SET_BOTH = (
    "before the processes start: `os.environ.setdefault('MASTER_ADDR', '127.0.0.1')` and "
    "`os.environ.setdefault('MASTER_PORT', '29500')`, or give init_process_group "
    "`init_method='tcp://127.0.0.1:29500'`"
)


@FAULT.lint_python
def it_does_not_say_where(program: Program, source: Source) -> Iterator[Finding]:
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
        if finding := _nobody_sets(source, program, init) or _a_rank_by_hand(source, program, init):
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
        f"init_process_group will look for {_and(missing)} in the environment, and "
        f"nothing here sets {'it' if len(missing) == 1 else 'them'}",
        reason=f"the ranks are started by {starter.written} (line {starter.node.lineno}), which "
        f"sets none of them: ValueError: environment variable {missing[0]} expected, but not set",
        fix=SET_BOTH if address else _numbers(missing),
        at=program.place(init.call.node),
    )


def _numbers(missing: list[str]) -> str:
    options = [option for option, name in NEEDS.items() if name in missing]
    given = ", ".join(f"{option}={option}" for option in options)
    return f"`init_process_group(…, {given})`"


LAUNCHERS = ("torchrun", "torch.distributed.launch", "deepspeed", "accelerate", "holdfast")


def _nobody_sets(source: Source, program: Program, init: InitCall) -> Finding | None:
    """A script that may be started by anything; here it is seen to be started by hand."""
    plain = [one for one in source.started_by if one.kind == "python" and not one.around]
    told = init_calls.mentions(program, "MASTER_ADDR") or any(
        one.setting("MASTER_ADDR") for one in source.started_by
    )
    if not plain or len(plain) < len(source.started_by) or told:
        return None
    where = plain[0].place
    return FAULT.warning(
        "init_process_group will look for MASTER_ADDR and MASTER_PORT in the environment, and the "
        f"script is started by plain python ({where.file}:{where.line})",
        reason="python sets none of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; unless the "
        "environment has them already, this raises ValueError",
        fix="`torchrun --nproc-per-node=N SCRIPT` instead of `python SCRIPT`",
        at=program.place(init.call.node),
    )


def _a_rank_by_hand(source: Source, program: Program, init: InitCall) -> Finding | None:
    """`rank=0` written out: no launcher starts this, since each of its ranks would be number 0."""
    given = [init.given(name) for name in NEEDS]
    by_hand = all(one and isinstance(constant(names(program).follow(one)), int) for one in given)
    told = any(init_calls.mentions(program, name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not by_hand or told or source.started_by or not source.complete:
        return None
    if not init_calls.runs(program, init):
        return None
    return FAULT.warning(
        "init_process_group will look for MASTER_ADDR and MASTER_PORT in the environment, also for "
        "a rank that is written out",
        reason="rank= and world_size= do not say where to meet; unless the environment has both, "
        "this raises ValueError",
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
            reason=f"{scheme}:// reads nothing from the environment: ValueError: … rank "
            "parameter missing",
            fix="`init_process_group(…, rank=rank, world_size=world_size)`, or leave init_method "
            "out and start it by torchrun",
            at=program.place(init.call.node),
        )


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
