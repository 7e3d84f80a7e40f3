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

from holdfast.fault import Fault
from holdfast.model import Culprit, Diagnosis
from holdfast.remains.nouns import Sighting, Wreckage

FAULT = Fault(code="HOLD623", slug="init-without-address")

START = "torchrun --nproc-per-node=N SCRIPT"

NOT_SET = FAULT.wording(
    "not-set",
    r"environment variable (?P<name>\w+) expected, but not set",
    anchors="expected, but not set",
    example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
    "variable MASTER_ADDR expected, but not set",
)
RAISING = FAULT.wording(
    "raising",
    # The line of torch's source that raises it: all that is left of a traceback cut at its end.
    r"(?:raise _env_error|_get_env_or_raise)\(['\"](?P<name>\w+)['\"]\)",
    anchors=("raise _env_error(", "_get_env_or_raise("),
    example='    raise _env_error("MASTER_ADDR")',
)
INCOMPLETE = FAULT.wording(
    "parameter-missing",
    r"using (?P<scheme>\w+):// rendezvous: "
    r"(?P<name>rank parameter|world size parameter|port number|path) missing",
    anchors=("parameter missing", "port number missing", "rendezvous: path missing"),
    example="ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank "
    "parameter missing",
)
NO_SUCH_KEY = FAULT.wording(
    "key-error",
    r"KeyError: ['\"](?P<name>(?:LOCAL_|GROUP_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE"
    r"|MASTER_(?:ADDR|PORT)"
    r"|SLURM_(?:PROCID|LOCALID|NODEID|NTASKS(?:_PER_NODE)?|NNODES|(?:JOB_|STEP_)?NODELIST)"
    r"|OMPI_COMM_WORLD_(?:LOCAL_)?(?:RANK|SIZE))['\"]",
    anchors=("KeyError: '", 'KeyError: "'),
    example="KeyError: 'LOCAL_RANK'",
)
NO_GROUP = FAULT.wording(
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


@FAULT.recognise
def nobody_said_where(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOT_SET, INCOMPLETE, NO_SUCH_KEY) or wreckage.seen(RAISING)
    if not seen:
        return None
    first = seen[0]
    scheduler = first.fields["name"].startswith(("SLURM_", "OMPI_"))
    return FAULT.diagnosis(
        f"{_writer(first)} wanted to join a group, but {_missing(first)}: the script was not "
        f"started {_by(first.fields['name'])}, and did not get the address in another way",
        confidence=0.88 if first.signature == NO_SUCH_KEY.name else 0.95,
        seen=seen,
        culprit=Culprit(rank=first.rank, what=first.fields["name"]),
        fix=_cure(first),
        next="srun python SCRIPT" if scheduler else START,
    )


def _writer(one: Sighting) -> str:
    return "the process" if one.rank is None else f"rank {one.rank}"


def _missing(one: Sighting) -> str:
    if one.signature == INCOMPLETE.name:
        scheme = one.fields["scheme"]
        return f"the {one.fields['name']} is missing from what it gave {scheme}://"
    return f"the environment has no {one.fields['name']}"


def _by(name: str) -> str:
    if name.startswith("SLURM_"):
        return "inside a Slurm step (srun)"
    return "by mpirun" if name.startswith("OMPI_") else "by a launcher"


def _cure(one: Sighting) -> str:
    if one.signature == INCOMPLETE.name:
        return "give init_process_group rank=, world_size= and an init_method with host and port"
    if one.fields["name"].startswith("SLURM_"):
        return "start it with srun inside an allocation, or with torchrun and its variables"
    return (
        "start the script by a launcher, which sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT; with mp.spawn set the last two before the spawn"
    )


@FAULT.recognise
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
        next=START,
        unknown=("whether the script was started by a launcher at all",),
    )
