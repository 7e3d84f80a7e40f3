"""One rank is a straggler: slower than all others.

What you see   Every rank shows the same long step: all wait for the slowest in every collective,
               so the step times look alike and the job is just slow.
Why            One rank always arrives last: a throttled GPU or CPU, another process on its cores, a
               slower disk under its data, more work than its share, logging on rank 0. With four
               ranks and one five times slower, all run at its pace.
How to be sure The flight recorders show when each rank entered the same collective: holdfast names
               the rank that came last again and again, and how much of the time the others spent
               waiting for it.
Fix            Look at that rank's machine and data: `nvidia-smi -q -d PERFORMANCE`, `top`, the
               loader's time per batch. It is never a reason to kill a job.
               Before a job, `holdfast check --smoke` across nodes compares each node's best time
               and bandwidth with the median of all.
Known limits   With NCCL these times show when the host issued the collective, not when the GPU was
               ready. Two ranks that take turns being slow are not seen.
Sources        https://github.com/pytorch/pytorch/issues/71303
               nvidia-resiliency-ext docs/source/straggler_det/usage_guide.rst
               torch/csrc/distributed/c10d/FlightRecorder.hpp: time_created
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.collectives import arrivals, groups
from holdfast.analysis.drill.host_acts import LimitCpu
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import known
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.smoke import SmokeBetween, tests_of
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD609",
    slug="slow-rank",
    traits=RunTraits(priority=470, needs_steps=True, never_acts=True, survives_steps=True),
    related=("slow-rank-timeout", "cpu-contention", "slow-nic", "rank-stuck"),
)

FIND_OUT = "on {}: `nvidia-smi -q -d PERFORMANCE`, `top`, `ethtool` of its interfaces"
SHARE = 0.25
"""of the time; less is the noise of every healthy job"""


@FAULT.check_nodes
def node_is_a_straggler(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    alone = {node.name: node.why for node in smoke.slow_alone}
    with_others = {node.name: f"it {node.why}" for node in smoke.isolation.stragglers}
    findings = [
        FAULT.warning(
            f"{name} is a straggler",
            reason="; ".join(one[name] for one in (with_others, alone) if name in one),
            evidence=[
                Evidence(quote=words, source="smoke test", host=name)
                for words in tests_of(smoke, [name])
            ],
            fix=FIND_OUT.format(name),
            host=name,
        )
        for name in dict.fromkeys([*with_others, *alone])
    ]
    return findings or _no_straggler(smoke)


def _no_straggler(smoke: SmokeBetween) -> Finding:
    measured = [one for results in smoke.rounds for one in results if one.speed]
    if len(measured) < 2:
        return FAULT.skipped("fewer than two pairs were timed: there is no median to compare with")
    unsure = [remark for remark in smoke.isolation.remarks if "slow" in remark]
    if unsure:
        return FAULT.note(
            "speeds differ too much to name a straggler",
            reason="; ".join(unsure),
            evidence=[
                Evidence(quote=f"{one.first} and {one.second}: {text.bandwidth(one.speed or 0)}")
                for one in measured
            ],
        )
    return FAULT.ok(f"no node is slower than half the median of {len(measured)} pairs")


@FAULT.run
def rank_keeps_arriving_last(scene: Scene) -> Verdict | None:
    late = arrivals.straggler(scene)
    if late is None or late.share < SHARE:
        return None
    others = tuple(v.rank for v in scene.ranks if v.rank != late.rank and v.death is None)
    return FAULT.verdict(
        f"{phrases.who(scene, [late.rank])} is slow: last in {late.last} of the last "
        f"{late.seen} collectives, by {late.lag * 1000:.0f} ms each; {text.ranks(others)} "
        f"spend {late.share:.0%} of the time waiting for it",
        ranks=[late.rank],
        victims=others,
        certain=False,
        fix="find what slows it down: `top`, `nvidia-smi -q -d PERFORMANCE`, its loader's time per "
        "batch",
        evidence=[
            Evidence(
                quote=f"arrived last {late.last} of {late.seen} times in group {late.group}",
                source="flight recorders",
                rank=late.rank,
            )
        ],
    )


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def rank_kept_arriving_last(wreckage: Wreckage) -> Diagnosis | None:
    """By the times in the dumps. It breaks no job by itself, so it never leads where one broke."""
    late = arrivals.among(groups.named(wreckage.recorders))
    if late is None or late.share < SHARE or set(wreckage.recorders) != wreckage.members:
        return None
    others = [rank for rank in wreckage.recorders if rank != late.rank]
    broke = blame.of(wreckage).explained or blame.of(wreckage).victims
    return FAULT.diagnosis(
        f"rank {late.rank} was last in {late.last} of the last {late.seen} collectives, by "
        f"{late.lag * 1000:.0f} ms each: {text.ranks(others)} spent {late.share:.0%} of the time "
        "waiting for it",
        confidence=0.25 if broke else 0.7,
        culprit=Culprit(rank=late.rank),
        victims=others,
        evidence=[
            Evidence(
                quote=f"arrived last {late.last} of {late.seen} times in group {late.group}",
                source="flight recorders",
                rank=late.rank,
            )
        ],
        fix="find what slows it down: its CPU, its GPU's clock rates, its loader's time per batch",
        next="nvidia-smi -q -d PERFORMANCE",
        unknown=("when the GPU was ready: with NCCL these times show when the host issued it",),
    )


# --- drill ---------------------------------------------------------------------------------------

ENOUGH_STEPS = 20
"""a pace is known by as many"""


@FAULT.drill()
def rank_gets_little_cpu(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    left = rehearsal.job.steps - rehearsal.at_step
    if left < ENOUGH_STEPS:
        return CannotInject(f"{left} steps are left after it: too few to know a pace by")
    return Injection(
        does=f"a small share of a core for rank {rehearsal.rank} {rehearsal.when}",
        act=LimitCpu(),
        then=Then.GOES_ON,
        blameless=("cpu-contention",),
        lifted=True,
    )


@FAULT.drill("input")
def rank_waits_in_every_step(rehearsal: Rehearsal) -> Injection | CannotInject:
    """As for slow data: the rank has all of its core, and needs no cgroup to be slow."""
    slow = rank_gets_little_cpu(rehearsal)
    if isinstance(slow, CannotInject):
        return slow
    return msgspec.structs.replace(
        slow,
        does=f"rank {rehearsal.rank} waits in every step from step {rehearsal.at_step} on, until "
        "that was named",
        act=BreakInside(how="slow"),
        beside=("cpu-contention", "rank-stuck"),
    )
