"""Ranks are numbered or placed wrongly.

What you see   `ValueError: … environment variable RANK expected, but not set`, a store that waits
               for ranks that do not exist (`1/2 clients joined`), two ranks with one number, or
               NCCL's `Duplicate GPU detected` (from 2.30 on `Multiple ranks … using the same GPU`).
Why            Every process needs its own RANK in 0..WORLD_SIZE-1, the same WORLD_SIZE and master
               as all others, and its own device. torchrun sets all of that for its ranks, whatever
               the shell has set; `python train.py` uses what the shell has set. Values exported by
               hand, or left from an earlier attempt, therefore work with one way of starting only.
How to be sure Run `env | grep -E 'RANK|WORLD_SIZE|MASTER'` in the same shell or job step that
               starts the job; `holdfast check --smoke` shows rank, device and master of each
               process. `holdfast run` compares what each rank claims at the entry of
               init_process_group with what it was given. A script that renumbers its ranks is fine
               as long as every number below its world size is used once.
Fix            Leave the numbering to the launcher: `unset RANK WORLD_SIZE LOCAL_RANK
               LOCAL_WORLD_SIZE`, then torchrun. In the script bind the device by LOCAL_RANK:
               `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`.
Known limits   In a log, the rank that reports a duplicate is a witness; which of the two processes
               has the wrong number is not known. The check sees one shell, not the environments
               that a scheduler will set.
Sources        https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
               torch/distributed/rendezvous.py: env:// and its variables
               NVIDIA/nccl src/init.cc at v2.29.7-1 and v2.30.7-1: two ranks on one GPU
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import text
from holdfast.analysis.job import join, own_ranks, phrases, rank_numbers
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Plan, Smoke, SmokeRank, known
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD113",
    slug="rank-assignment",
    related=("duplicate-gpu", "ranks-missing", "launcher-config", "foreign-job-on-port"),
    traits=RunTraits(priority=225, needs_stall=True, whole_job=True),
)
FAULT.smoke_failures.add(SmokeFailure.NUMBERING)

CHECKED_IN_TWICE = FAULT.log_pattern(
    "twice",
    r"Bootstrap Root ?: rank (?P<rank>\d+) of (?P<world>\d+) ranks has already checked in",
    anchors=("ranks has already checked in",),
    example="node-a:411:498 [0] bootstrap.cc:348 NCCL WARN Bootstrap Root : rank 1 of 4 ranks has "
    "already checked in",
)
SIZE_MISMATCH = FAULT.log_pattern(
    "unequal",
    r"Bootstrap Root ?: mismatch in (?:rank count from procs (?P<one>\d+) : (?P<other>\d+)"
    r"|info from procs, nranks (?P<a>\d+) vs (?P<b>\d+))",
    anchors=("Bootstrap Root : mismatch in",),
    example="node-a:411:498 [0] bootstrap.cc:190 NCCL WARN Bootstrap Root : mismatch in rank count "
    "from procs 4 : 8",
)
RANK_OUT_OF_RANGE = FAULT.log_pattern(
    "beyond",
    r"Invalid rank (?P<rank>-?\d+), rank should be in the interval|rank < size\. (?P<a>\d+) vs "
    r"(?P<b>\d+)|Invalid rank requested ?: (?P<c>\d+)/(?P<d>\d+)|rank (?P<e>\d+) (?:must be|should"
    r" be|is not) (?:less|smaller) than (?:the )?world.?size",
    anchors=(
        "Invalid rank ",
        "rank < size",
        "Invalid rank requested",
        "than world",
        "than the wor",
    ),
    example="ValueError: Invalid rank 4, rank should be in the interval [0, 3]",
)

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
RANK_AND_SIZE = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
UNSET = "let the launcher number the ranks: `unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE`"


@FAULT.check(needs=())
def environment_numbers_ranks_wrongly(facts: MachineFacts) -> Finding:
    texts = {n: facts.plan.environment[n] for n in RANK_VARIABLES if n in facts.plan.environment}
    if not texts:
        return FAULT.does_not_apply(
            "no rank is set in the environment: the launcher numbers the ranks"
        )
    evidence = [Evidence(quote=f"{n}={value}", source="environment") for n, value in texts.items()]
    impossible = _impossible(texts)
    if impossible:
        return FAULT.error(
            impossible,
            reason="init_process_group with env:// cannot start with this; torchrun overrides it "
            "for its ranks",
            evidence=evidence,
            fix=UNSET,
        )
    doubtful = _doubtful(facts.plan, {n: int(value) for n, value in texts.items()})
    if doubtful:
        return FAULT.warning(
            doubtful,
            reason="the job would wait for ranks that are not started, or reject ranks beyond the "
            "world size",
            evidence=evidence,
            fix=UNSET,
        )
    return _consistent(facts.plan, texts, evidence)


@FAULT.check(needs=("smoke",))
def smoke_ranks_are_mixed_up(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return ()  # not asked for
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.cause == FAULT.slug), None)
    if failed is None:
        return FAULT.ok(f"{smoke.world} ranks, each with its own number and device, one master")
    return FAULT.error(
        failed.reason,
        reason="seen in the smoke test, which ran with this job's settings",
        evidence=[_describe(smoke, rank) for rank in smoke.ranks],
        fix="bind the device by LOCAL_RANK and leave RANK, WORLD_SIZE and MASTER_ADDR to the "
        "launcher",
    )


def _impossible(texts: Mapping[str, str]) -> str:
    """Why no job can start with these values; '' when one can."""
    for name, value in texts.items():
        if not (value.isascii() and value.isdigit()):
            return f"{name}={value!r} is not a whole number"
    for rank, size in RANK_AND_SIZE:
        if rank in texts and size in texts and int(texts[rank]) >= int(texts[size]):
            return f"{rank}={texts[rank]} is not below {size}={texts[size]}"
    return ""


def _doubtful(plan: Plan, values: Mapping[str, int]) -> str:
    """What does not fit the size of the planned job; '' when all does.

    Kubeflow sets WORLD_SIZE to the number of nodes for torchrun's sake, so WORLD_SIZE is judged
    only beside LOCAL_WORLD_SIZE, which only a launcher of ranks sets.
    """
    if "RANK" in values and "WORLD_SIZE" not in values:
        return "RANK is set, but WORLD_SIZE is not"
    if plan.multi_node and values.get("NODE_RANK", 0) >= plan.max_nodes:
        return f"NODE_RANK={values['NODE_RANK']} is out of range for {plan.max_nodes} nodes"
    world, local = values.get("WORLD_SIZE"), values.get("LOCAL_WORLD_SIZE")
    fixed = plan.multi_node and plan.min_nodes == plan.max_nodes
    if world and local and fixed and world != local * plan.max_nodes:
        return f"WORLD_SIZE={world} is not {plan.max_nodes} nodes of LOCAL_WORLD_SIZE={local}"
    if world and local and world < local:
        return f"WORLD_SIZE={world} is below LOCAL_WORLD_SIZE={local}"
    return ""


def _consistent(plan: Plan, texts: Mapping[str, str], evidence: list[Evidence]) -> Finding:
    started_by = [
        n
        for n in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
        if n in plan.environment
    ]
    said = ", ".join(f"{n}={value}" for n, value in texts.items())
    if started_by or "RANK" not in texts:
        return FAULT.ok(f"{said}: consistent")
    return FAULT.note(
        f"this shell has RANK={texts['RANK']} and WORLD_SIZE={texts['WORLD_SIZE']} set",
        reason="`python train.py` started here would be this one rank and wait for the others; "
        "torchrun overrides it for its ranks",
        evidence=evidence,
        fix=f"if they are left over, {UNSET}",
    )


def _describe(smoke: Smoke, rank: SmokeRank) -> Evidence:
    where = f"device {rank.device or 'unknown'} master {rank.master or 'unknown'}"
    return Evidence(
        quote=f"[rank {rank.rank}/{smoke.world}] pid {rank.pid} {where}",
        source="smoke test",
        rank=rank.rank,
    )


@FAULT.check_nodes
def node_ranks_are_not_distinct(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2 or facts.plan.rdzv_backend == "c10d":
        return FAULT.does_not_apply("one node, or c10d, which numbers the nodes by itself")
    by_rank: dict[int, list[str]] = {}
    for node in facts.nodes:
        if node.facts.plan.node_rank is not None:
            by_rank.setdefault(node.facts.plan.node_rank, []).append(node.name)
    twice = {rank: names for rank, names in by_rank.items() if len(names) > 1}
    if not by_rank:
        return FAULT.does_not_apply("no node rank is set in the environment")
    if not twice:
        return FAULT.ok(f"the nodes have distinct node ranks: {text.numbers(by_rank)}")
    rank, names = min(twice.items())
    return FAULT.error(
        f"{text.names(names)} have the same node rank {rank}",
        reason="the static rendezvous gives both the same ranks: the store counts each twice and "
        "waits for the rest",
        evidence=[
            Evidence(quote=f"{name}: node rank {rank}", source="environment", host=name)
            for name in names[:SHOWN]
        ],
        fix="give every node its own: `export PET_NODE_RANK=$SLURM_NODEID`, or `torchrun "
        "--node-rank N …`",
    )


@FAULT.run
def ranks_claim_conflicting_numbers(scene: Scene) -> Verdict | None:
    conflict = rank_numbers.find_conflict(scene)
    if conflict is None or stopped.any_stopped(scene) or not _explains_the_exits(scene):
        return None
    ranks = [view.rank for view in conflict.misnumbered]
    victims = exits.fallen(scene, ranks)
    ended = exits.endings(scene)
    seen = all(join.shown_joining(view) for view in conflict.misnumbered)
    others = (
        f"; {text.ranks(victims)} cannot join without {text.plural(ranks, 'it', 'them')}"
        if victims
        else ""
    )
    return FAULT.verdict(
        f"{rank_numbers.describe_claims(conflict.misnumbered)}: {conflict.problem}{others}",
        ranks=ranks,
        victims=victims,
        certain=conflict.sure and (seen or bool(ended)),
        fix="leave the numbers to the launcher: call `init_process_group()` without rank= and "
        "world_size=, and do not set RANK or WORLD_SIZE in the script",
        evidence=[
            *(_claim_evidence(view) for view in conflict.members),
            *(phrases.how_it_ended(ending) for ending in ended),
        ],
    )


@FAULT.run
def ranks_started_the_same_ranks(scene: Scene) -> Verdict | None:
    """Whatever error it ended with, a script that starts its own ranks was started twice. One that
    never took a step is only named: no rank waits for another."""
    starters = own_ranks.clash(scene.ranks)
    ended = exits.endings(scene)
    failed = {e.rank for e in ended if not e.signal}
    ranks = [view.rank for view in starters]
    never_began = not ended and not any(view.beat and view.beat.steps for view in starters)
    if not starters or stopped.any_stopped(scene):
        return None
    if failed.isdisjoint(ranks) and not never_began:
        return None
    return FAULT.verdict(
        own_ranks.sentence(starters),
        ranks=ranks,
        victims=exits.fallen(scene, ranks) if ended else [],
        certain=bool(ended),
        fix=own_ranks.FIX,
        evidence=[
            *own_ranks.evidence(starters),
            *(phrases.how_it_ended(ending) for ending in ended[:2]),
        ],
    )


def _explains_the_exits(scene: Scene) -> bool:
    """Every rank that exited did so while joining the group, and not by a signal."""
    return all(
        not e.signal and join.claim_of(e.view) is not None and not join.joined(e.view)
        for e in exits.endings(scene)
    )


def _claim_evidence(view: RankView) -> Evidence:
    claim = join.claim_of(view)
    said = f"claims rank {claim.rank} of {claim.world_size} at {claim.store}" if claim else ""
    given = f"was given {claim.given_rank} of {claim.given_world_size}" if claim else ""
    return Evidence(quote=f"rank {view.rank} {said}, {given}", source="its page", rank=view.rank)


@FAULT.explain
def ranks_were_numbered_wrongly(wreckage: Wreckage) -> Diagnosis | None:
    twice, unequal = wreckage.seen(CHECKED_IN_TWICE), wreckage.seen(SIZE_MISMATCH)
    beyond = wreckage.seen(RANK_OUT_OF_RANGE)
    seen = twice or unequal or beyond
    if not seen:
        return None
    fields = seen[0].fields
    rank = int(fields["rank"]) if "rank" in fields else None
    if twice:
        what = f"rank {rank} joined twice"
        reason = f"two processes joined as rank {rank} of {fields['world']}"
    elif unequal:
        sizes = [v for v in fields.values() if v]
        what = f"world sizes {' and '.join(sizes)}"
        reason = f"the ranks do not agree on the world size: {' and '.join(sizes)}"
    else:
        what = f"rank {rank}" if rank is not None else "a rank outside the world size"
        reason = "a process was given a rank that is out of range for its world size"
    return FAULT.diagnosis(
        reason,
        confidence=0.9 if not beyond else 0.75,
        seen=seen,
        # The rank that reported it is a witness; which of the two is wrong is not known.
        culprit=Culprit(what=what),
        fix=f"{UNSET}, and start each node once, with its own --node-rank",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER'",
    )


@FAULT.explain
def more_processes_joined_than_world_size(wreckage: Wreckage) -> Diagnosis | None:
    """Every process adds one to a counter in the store and waits until it equals the world size."""
    counted = [
        s
        for s in wreckage.seen(watchdog.STORE_BARRIER)
        if int(s.fields["joined"]) > int(s.fields["expected"])
    ]
    if not counted:
        return None
    fields = counted[-1].fields
    joined, expected = int(fields["joined"]), int(fields["expected"])
    beyond = int(fields["rank"]) >= expected
    as_rank = f", one of them as rank {fields['rank']}" if beyond else ""
    return FAULT.diagnosis(
        f"{joined} processes joined a group of {expected}{as_rank}: more processes were started "
        "than WORLD_SIZE says, a file or store still counts those of an earlier run, or two jobs "
        "share one store",
        confidence=0.7 if beyond else 0.55,
        seen=counted,
        culprit=Culprit(what=f"{joined} processes for world size {expected}"),
        fix=f"{UNSET}; start each node once (not `srun -n` and spawn together); use a new file "
        "name for a file:// rendezvous and a separate port for each job",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER'",
        unknown=["which processes are too many: the store counts them, but does not identify them"],
    )
