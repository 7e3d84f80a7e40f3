"""NCCL's other transports, each by itself: what a round is, when it is left out, what it means.

NCCL takes the best transport that it can between two ranks and says nothing of the others. A broken
one shows as a hang or as wrong numbers, and nothing names it. NCCL reads these settings once in a
process, so each round has ranks of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import catalogue
from holdfast.analysis.machine import NcclLink, Smoke, SmokeRound, SmokeStage
from holdfast.analysis.machine.nccl_links import in_words, transports
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.check.smoke.stages import LADDER

# NVLS goes by the switches between GPUs, which these rounds are not about either.
_WITHOUT_P2P = {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
ROUNDS = {"shm": _WITHOUT_P2P, "net": {**_WITHOUT_P2P, "NCCL_SHM_DISABLE": "1"}}
"""the transport that is left -> what switches the faster ones off"""
SAYS_MORE = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": ""}
"""so that NCCL says on stdout which transport it takes"""
BROKEN_P2P = "p2p-acs-iommu"


def why_no_rounds(smoke: Smoke) -> str:
    """'' where rounds can say more than the stage 'nccl' did."""
    stage = smoke.stage("nccl")
    if stage is None or stage.status == "skipped":
        return "NCCL was not used"
    if smoke.world < 2:
        return "one rank has no other to send to"
    if stage.status == "failed" and not _without_a_word(stage):
        return f"NCCL failed for a reason of its own: {stage.cause}"
    return ""


def why_left_out(name: str, links: Sequence[NcclLink], *, shared_gpus: bool) -> str:
    """'' where this round brings something new. Ranks that share a GPU do so for a test."""
    used = transports(links)
    if not used or shared_gpus or "P2P" in used:
        return ""
    if name == "shm" or used == {"NET"}:
        return f"NCCL used no faster transport in stage 'nccl' either: {in_words(links)}"
    return ""


def round_of(name: str, smoke: Smoke) -> SmokeRound:
    """What a pass with these settings brought."""
    settings = ROUNDS[name]
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    nccl = smoke.stage("nccl")
    if failed is not None and failed.name != "nccl":
        # Its ranks got through these stages before: that says nothing about a transport.
        reason = f"stage '{failed.name}' failed this time: {failed.reason}"
        return SmokeRound(name=name, settings=settings, status="skipped", reason=reason)
    top = smoke.top_rung("nccl")
    return SmokeRound(
        name=name,
        settings=settings,
        status=nccl.status if nccl else "skipped",
        seconds=nccl.seconds if nccl else 0.0,
        reason=nccl.reason if nccl else "",
        links=smoke.links,
        bandwidth=top.bandwidth if top else 0.0,
    )


def conclude(smoke: Smoke, rounds: Sequence[SmokeRound]) -> Smoke:
    """The smoke test with its rounds. Where sums failed without a word, and pass once GPUs no
    longer write into each other's memory, that is the cause. Rounds have sums only: they prove
    nothing about what failed after those."""
    smoke = msgspec.structs.replace(smoke, rounds=tuple(rounds))
    stage = smoke.stage("nccl")
    passed = [one for one in rounds if one.status == "ok" and "P2P" not in transports(one.links)]
    if stage is None or stage.status != "failed" or not _without_a_word(stage):
        return smoke
    if not passed or _all_sums_right(smoke):
        return smoke
    settings = " ".join(f"{name}={value}" for name, value in passed[0].settings.items())
    instead = in_words(passed[0].links)
    fault = catalogue.by_slug(BROKEN_P2P)
    told = msgspec.structs.replace(
        stage,
        reason=f"{stage.reason}; with {settings} the same ranks passed ({instead}): direct access "
        "between GPUs is broken",
        cause=BROKEN_P2P,
        fix="`export NCCL_P2P_DISABLE=1` until it is repaired, which is slower; then "
        f"`holdfast explain {BROKEN_P2P}`",
        cause_speaks="smoke" in fault.needs,
    )
    return msgspec.structs.replace(
        smoke, stages=tuple(told if one is stage else one for one in smoke.stages)
    )


def _all_sums_right(smoke: Smoke) -> bool:
    rungs = [rung for rung in smoke.ladder if rung.stage == "nccl"]
    return {*LADDER} <= {rung.size for rung in rungs} and all(rung.correct for rung in rungs)


def _without_a_word(stage: SmokeStage) -> bool:
    """It hung, crashed or gave wrong sums: nothing that ranks said names the cause."""
    silent = (SmokeFailure.MISSING, SmokeFailure.CRASH)
    return stage.cause in ("", *(catalogue.fault_of(one).slug for one in silent))
