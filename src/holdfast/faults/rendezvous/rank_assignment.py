"""Ranks are numbered or placed wrongly.

What you see   `ValueError: … environment variable RANK expected, but not set`, a store that waits
               for ranks that do not exist (`1/2 clients joined`), two ranks with one number, or
               NCCL's `Duplicate GPU detected` (from 2.30 on `Multiple ranks … using the same GPU`).
Why            Every process needs its own RANK in 0..WORLD_SIZE-1, one WORLD_SIZE for all, one
               master, and a device of its own. torchrun sets all of that for its ranks, whatever
               the shell says; `python train.py` takes what the shell says. Values exported by
               hand, or left by an earlier try, therefore work in one way of starting only.
How to be sure `env | grep -E 'RANK|WORLD_SIZE|MASTER'` in the very shell or job step that starts
               the job; `holdfast check --smoke` shows rank, device and master of each process.
               `holdfast run` compares what each rank says at the entry of init_process_group
               with what it was given. A script that numbers its ranks anew is fine as long as
               every number below its world size is taken once.
Fix            Leave the numbering to the launcher: `unset RANK WORLD_SIZE LOCAL_RANK
               LOCAL_WORLD_SIZE`, then torchrun. In the script bind the device by LOCAL_RANK:
               `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`.
Sources        https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
               torch/distributed/rendezvous.py: env:// and its variables
               NVIDIA/nccl src/init.cc at v2.29.7-1 and v2.30.7-1: two ranks on one GPU
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import text
from holdfast.analysis.job import join, phrases, rank_numbers
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Plan, Smoke, SmokeRank, known
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD113", slug="rank-assignment", traits=RunTraits(priority=225, needs_stall=True)
)
FAULT.smoke_failures.add(SmokeFailure.NUMBERING)

TWICE = FAULT.log_pattern(
    "twice",
    r"Bootstrap Root ?: rank (?P<rank>\d+) of (?P<world>\d+) ranks has already checked in",
    anchors=("ranks has already checked in",),
    example="node-a:411:498 [0] bootstrap.cc:348 NCCL WARN Bootstrap Root : rank 1 of 4 ranks has "
    "already checked in",
)
UNEQUAL = FAULT.log_pattern(
    "unequal",
    r"Bootstrap Root ?: mismatch in (?:rank count from procs (?P<one>\d+) : (?P<other>\d+)"
    r"|info from procs, nranks (?P<a>\d+) vs (?P<b>\d+))",
    anchors=("Bootstrap Root : mismatch in",),
    example="node-a:411:498 [0] bootstrap.cc:190 NCCL WARN Bootstrap Root : mismatch in rank count "
    "from procs 4 : 8",
)
BEYOND = FAULT.log_pattern(
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

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
UNSET = "let the launcher number the ranks: `unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE`"


@FAULT.check(needs=())
def environment_numbers_ranks_well(facts: MachineFacts) -> Finding:
    texts = {n: facts.plan.environment[n] for n in NAMES if n in facts.plan.environment}
    if not texts:
        return FAULT.does_not_apply("no rank is set in the environment: the launcher numbers them")
    evidence = [Evidence(quote=f"{n}={value}", source="environment") for n, value in texts.items()]
    impossible = _impossible(texts)
    if impossible:
        return FAULT.error(
            impossible,
            reason="init_process_group by env:// cannot start with this; torchrun would overrule "
            "it for its ranks",
            evidence=evidence,
            fix=UNSET,
        )
    doubtful = _doubtful(facts.plan, {n: int(value) for n, value in texts.items()})
    if doubtful:
        return FAULT.warning(
            doubtful,
            reason="ranks that are not started will be waited for, and those too many are refused",
            evidence=evidence,
            fix=UNSET,
        )
    return _consistent(facts.plan, texts, evidence)


@FAULT.check(needs=("smoke",))
def smoke_ranks_are_distinct(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return ()  # not asked for
    smoke = known(facts.smoke)
    muddled = next((stage for stage in smoke.stages if stage.cause == FAULT.slug), None)
    if muddled is None:
        return FAULT.ok(f"{smoke.world} ranks, each in its own place, one master")
    return FAULT.error(
        muddled.reason,
        reason="seen in the smoke test, whose ranks ran with this job's own settings",
        evidence=[_describe(smoke, rank) for rank in smoke.ranks],
        fix="bind the device by LOCAL_RANK and leave RANK, WORLD_SIZE and MASTER_ADDR to the "
        "launcher",
    )


def _impossible(texts: Mapping[str, str]) -> str:
    """What no job can start with, in words; '' when there is nothing of the kind."""
    for name, value in texts.items():
        if not (value.isascii() and value.isdigit()):
            return f"{name}={value!r} is not a whole number"
    for rank, size in PAIRS:
        if rank in texts and size in texts and int(texts[rank]) >= int(texts[size]):
            return f"{rank}={texts[rank]} is not below {size}={texts[size]}"
    return ""


def _doubtful(plan: Plan, values: Mapping[str, int]) -> str:
    """What fits no job of the size we were told; '' when nothing does so.

    Kubeflow sets WORLD_SIZE to the number of nodes for torchrun's sake, so WORLD_SIZE is judged
    only beside LOCAL_WORLD_SIZE, which only a launcher of ranks sets.
    """
    if "RANK" in values and "WORLD_SIZE" not in values:
        return "RANK is set, but WORLD_SIZE is not"
    if plan.multi_node and values.get("NODE_RANK", 0) >= plan.max_nodes:
        return f"NODE_RANK={values['NODE_RANK']} does not exist among {plan.max_nodes} nodes"
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
        return FAULT.ok(f"{said} fit together")
    return FAULT.note(
        f"this shell says RANK={texts['RANK']} of {texts['WORLD_SIZE']}",
        reason="`python train.py` started here would be this one rank and wait for the others; "
        "torchrun overrules it for its ranks",
        evidence=evidence,
        fix=f"if it is a leftover, {UNSET}",
    )


def _describe(smoke: Smoke, rank: SmokeRank) -> Evidence:
    where = f"device {rank.device or 'unknown'} master {rank.master or 'unknown'}"
    return Evidence(
        quote=f"[rank {rank.rank}/{smoke.world}] pid {rank.pid} {where}",
        source="smoke test",
        rank=rank.rank,
    )


@FAULT.run
def what_ranks_say_they_are_does_not_fit(scene: Scene) -> Verdict | None:
    muddle = rank_numbers.find(scene)
    if muddle is None or stopped.any_stopped(scene) or not _explains_the_ends(scene):
        return None
    ranks = [view.rank for view in muddle.strayed]
    victims = exits.fallen(scene, ranks)
    ended = exits.endings(scene)
    seen = all(join.shown_joining(view) for view in muddle.strayed)
    others = (
        f"; {text.ranks(victims)} can not join without {text.plural(ranks, 'it', 'them')}"
        if victims
        else ""
    )
    return FAULT.verdict(
        f"{rank_numbers.sayings(muddle.strayed)}: {muddle.trouble}{others}",
        ranks=ranks,
        victims=victims,
        certain=muddle.sure and (seen or bool(ended)),
        fix="leave the numbers to the launcher: `init_process_group()` without rank= and "
        "world_size=, and no RANK or WORLD_SIZE set in the script",
        evidence=[
            *(_stated(view) for view in muddle.members),
            *(phrases.how_it_ended(ending) for ending in ended),
        ],
    )


def _explains_the_ends(scene: Scene) -> bool:
    """Whoever ended did so on the way into the group, and by no signal."""
    return all(
        not e.signal and join.claim_of(e.view) is not None and not join.joined(e.view)
        for e in exits.endings(scene)
    )


def _stated(view: RankView) -> Evidence:
    claim = join.claim_of(view)
    said = f"says rank {claim.rank} of {claim.world_size} at {claim.store}" if claim else ""
    given = f"was given {claim.given_rank} of {claim.given_world_size}" if claim else ""
    return Evidence(quote=f"rank {view.rank} {said}, {given}", source="its page", rank=view.rank)


@FAULT.explain
def numbers_do_not_fit(wreckage: Wreckage) -> Diagnosis | None:
    twice, unequal = wreckage.seen(TWICE), wreckage.seen(UNEQUAL)
    beyond = wreckage.seen(BEYOND)
    seen = twice or unequal or beyond
    if not seen:
        return None
    fields = seen[0].fields
    rank = int(fields["rank"]) if "rank" in fields else None
    if twice:
        what = f"rank {rank} came twice"
        reason = f"two processes say that they are rank {rank} of {fields['world']}"
    elif unequal:
        sizes = [v for v in fields.values() if v]
        what = f"world sizes {' and '.join(sizes)}"
        reason = f"the ranks do not agree on their number: {' and '.join(sizes)}"
    else:
        what = f"rank {rank}" if rank is not None else "a rank beyond the world size"
        reason = "a process was given a rank that does not exist in a world of this size"
    return FAULT.diagnosis(
        reason,
        confidence=0.9 if not beyond else 0.75,
        seen=seen,
        # The one who found out is a witness; which of two is the impostor, nothing tells.
        culprit=Culprit(what=what),
        fix=f"{UNSET}, and start each node once, with its own --node-rank",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER'",
    )


@FAULT.explain
def more_came_than_belong(wreckage: Wreckage) -> Diagnosis | None:
    """Every process adds one to a counter in the store, and waits until it is the world's size."""
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
    return FAULT.diagnosis(
        f"{joined} processes joined a group of {expected}"
        + (f", one as rank {fields['rank']}" if beyond else "")
        + ": the processes were started more often than WORLD_SIZE says, a file or store still "
        "counts those of an earlier run, or two jobs share one",
        confidence=0.7 if beyond else 0.55,
        seen=counted,
        culprit=Culprit(what=f"{joined} processes for a world of {expected}"),
        fix=f"{UNSET}; start each node once (not `srun -n` and spawn together); a new name for "
        "a file:// rendezvous, a port of its own for each job",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER'",
        unknown=["who the others are: the store counts, it knows no names"],
    )
