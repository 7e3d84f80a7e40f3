"""Ranks meet in different collectives, or with different sizes.

What you see   With NCCL a silent hang until the timeout, or `Message truncated`. With Gloo
               `terminate called after throwing an instance of 'gloo::EnforceNotMet' … Received data
               size doesn't match expected size` and SIGABRT, mostly on a rank that did nothing
               wrong; the others report `Connection reset by peer`. With equal sizes Gloo says
               nothing at all and the sums are wrong.
Why            Collectives are matched by their order within a group, nothing else. A rank that
               issues another operation or another size at the same position, or skips one, meets
               the others in the wrong one.
How to be sure The flight recorders: operation, size and type of every rank at that position. The
               majority is taken to be right; with two ranks or a tie nobody can tell, and holdfast
               says so. TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare them at every call.
Fix            Make all ranks take the same branch and the same shapes: pad the last batch, drop it
               (drop_last=True), no collective under a condition that differs between ranks.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications
               https://github.com/pytorch/pytorch/pull/100213
               pytorch/gloo gloo/transport/tcp/pair.cc: the size check
               https://github.com/NVIDIA/nccl/issues/626
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.collectives import groups, progress, waits
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, fingerprints, odd_ranks
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(code="HOLD601", slug="collective-mismatch", traits=RunTraits(priority=310))

FIX = "make all ranks issue the same collectives in the same order and size"


@FAULT.run
def they_disagree_at_one_position(scene: Scene) -> Verdict | None:
    found = waits.analyse(scene).mismatch
    if found is None or progress.left_the_loop(scene, found):
        return None
    where = "" if groups.is_default(found.group) else f" of group {found.group}"
    place = f"collective #{found.sequence}{where}"
    if found.undecided:
        sides = ", ".join(f"rank {rank} {kind}" for rank, kind in found.kinds.items())
        reason = f"ranks disagree in {place}: {sides}; undecided which is wrong, no majority"
    else:
        reason = f"{phrases.who(scene, found.odd)} {_differs(found)} in {place}"
    victims = [r for r in exits.fallen(scene, found.odd) if r not in found.odd]
    return FAULT.verdict(
        reason + (f"; {text.ranks(victims)} can not go on" if victims else ""),
        ranks=found.odd,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[
            Evidence(quote=f"#{found.sequence} {kind}", source="flight recorder", rank=rank)
            for rank, kind in found.kinds.items()
        ],
    )


@FAULT.run
def the_library_says_so(scene: Scene) -> Verdict | None:
    """Gloo or torch refused what came, and no recorder is left to say from whom."""
    told = [e for e in exits.endings(scene) if e.consequence == secondary_errors.MISMATCH]
    if not told or waits.analyse(scene).mismatch:
        return None
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in told)} got a collective of another size or kind than "
        "expected; from whom is undecided, no recorder was left to tell",
        ranks=(),
        victims=exits.fallen(scene, ()),
        certain=True,
        fix=FIX,
        evidence=[phrases.how_it_ended(e) for e in told],
    )


def _differs(found: Mismatch) -> str:
    theirs = next((found.kinds[r] for r in found.right if r in found.kinds), "another one")
    own = next((found.kinds[r] for r in found.odd if r in found.kinds), "")
    issued = (
        f"issued {own} where the others have {theirs}"
        if own
        else (f"expected something smaller than {theirs}, which all others have,")
    )
    return issued + (" (it looks as if it skipped one)" if found.skipped else "")


# --- explain -------------------------------------------------------------------------------------

FAULT.log_patterns.append(fingerprints.FINGERPRINTS)

GLOO_SIZE = FAULT.log_pattern(
    "gloo-size",
    r"Received data size doesn't match expected size|op\.preamble\.length <= op\.nbytes"
    r"|op\.(?:nread|nwritten) \+ \S+ <= op\.nbytes",
    anchors=("Received data size doesn't match", "op.preamble.length <= op.nbytes", "op.nbytes"),
    example="[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:454] "
    "op.preamble.length <= op.nbytes. 32 vs 16",
    role=Role.CASCADE,
)
TRUNCATED = FAULT.log_pattern(
    "truncated",
    r"[Mm]essage truncated ?: receiv(?:ed|ing) (?P<got>\d+) bytes instead of (?P<wanted>\d+)",
    anchors=("essage truncated",),
    example="node-a:411:498 [0] bootstrap.cc:40 NCCL WARN Message truncated : received 1024 bytes "
    "instead of 256",
    role=Role.CASCADE,
)
NCCL_COMPARED = FAULT.log_pattern(
    "nccl-compared",
    # The device code of NCCL 2.3 and 2.4, and the size check of NET/IB: without 'size' and the
    # peer until 2.11.
    r"Mismatched collective detected, please check your collective calls"
    r"|collective mismatch error,? local size (?P<own>\d+) remote(?: size)? (?P<theirs>-?\d+)",
    anchors=("Mismatched collective detected", "collective mismatch error"),
    example="node-a:411:498 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer "
    "192.0.2.7<43210> collective mismatch error, local size 4096 remote size 1024",
    # Said by the rank that noticed; either side may be the odd one.
    role=Role.CASCADE,
)
MODELS = FAULT.log_pattern(
    "ddp-models",
    r"DDP expects same model across all ranks, but Rank (?P<odd>\d+) has (?:been getting )?"
    r"(?P<own>\d+) params, while rank (?P<other>\d+) has inconsistent (?P<theirs>\d+) params"
    r"|appears not to match (?:sizes|strides) of the same param in process (?P<process>\d+)",
    anchors=("DDP expects same model across all ranks", "of the same param in process"),
    example="RuntimeError: DDP expects same model across all ranks, but Rank 1 has 148 params, "
    "while rank 0 has inconsistent 146 params.",
)
HOROVOD = FAULT.log_pattern(
    "horovod-compared",
    # Its coordinator compares what the ranks submit under one name, and tells all of them.
    r"Mismatched (?P<what>data types|(?:MPI |collective )?operations|[\w/ ]{1,40} factors"
    r"|\w{1,20} (?:tensor shapes|root ranks|CPU/GPU device selection|reduce ops?)): "
    r"One (?:rank|process) (?P<one>.{1,200}?), but another (?:rank|process) (?P<other>.{1,200})",
    anchors=(": One rank ", ": One process "),
    example="horovod.common.exceptions.HorovodInternalError: Mismatched ALLREDUCE tensor shapes: "
    "One rank sent a tensor of shape [4, 8], but another rank sent a tensor of shape [2, 8].",
)
DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL"
"""then start the job again: torch compares the collectives at every call"""


@FAULT.explain
def they_were_in_different_ones(wreckage: Wreckage) -> Diagnosis | None:
    """By the recorders, or by what the watchdogs of several ranks told."""
    found = blame.of(wreckage).disagreement
    if found is None:
        return None
    return FAULT.diagnosis(
        f"the ranks met in different collectives ({found.words()})",
        confidence=_sure(found),
        seen=blame.first_complaint(wreckage),
        evidence=odd_ranks.evidence(found),
        culprit=odd_ranks.culprit(found),
        victims=[rank for rank in found.ranks if rank not in found.odd],
        fix=FIX,
        next=DETAIL,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if found.odd else (odd_ranks.UNDECIDED,),
    )


def _sure(found: Disagreement) -> float:
    if found.what == "size":
        return 0.85 if found.odd else 0.75
    return 0.6


@FAULT.explain
def torch_compared_them(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(fingerprints.FINGERPRINTS)
    if not seen:
        return None
    found = fingerprints.compare(seen)
    if found is None:
        data = not fingerprints.same_everywhere(seen)
    else:
        data = found.what == "size" and not fingerprints.is_bucket(found)
    return FAULT.diagnosis(
        "torch compared the collectives of the ranks before running them, and they differ"
        + (f" ({found.words()})" if found else ""),
        confidence=0.75 if data else 0.65,
        seen=seen,
        culprit=odd_ranks.culprit(found) if found else Culprit(),
        victims=[rank for rank in found.ranks if rank not in found.odd] if found else (),
        fix=FIX,
        next="grep -B 30 'Detected mismatch' *.log",
        unknown=() if found and found.odd else (odd_ranks.UNDECIDED,),
    )


@FAULT.explain
def horovod_compared_them(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(HOROVOD)
    if not seen:
        return None
    told = seen[0].fields
    return FAULT.diagnosis(
        f"Horovod compared what the ranks submitted under one name, and it differs ({told['what']}"
        f": one rank {told['one']}, another {told['other'].rstrip('. ')})",
        confidence=0.88,
        seen=seen,
        culprit=Culprit(),
        fix="submit the same tensors, in shape, type and device, from every rank, each under a "
        "name of its own; the same model and the same devices on all of them",
        next="grep -n 'Mismatched' *.log",
        unknown=("which side is wrong: Horovod names neither rank",),
    )


@FAULT.explain
def the_models_differ(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(MODELS)
    if not seen:
        return None
    odd = seen[0].fields.get("odd")
    return FAULT.diagnosis(
        "DDP compared the parameters of the ranks' models, and they are not the same: the ranks "
        "built different models",
        confidence=0.85,
        seen=seen,
        culprit=Culprit(rank=int(odd)) if odd else None,
        fix="build the same model on every rank: same configuration, same code, no layer that "
        "depends on the rank or on data seen so far; log "
        "`sum(1 for _ in model.parameters())` on every rank to see which differs",
    )


@FAULT.explain
def what_came_had_another_size(wreckage: Wreckage) -> Diagnosis | None:
    """Seen by the one that received it; from whom it came these words do not say."""
    seen = wreckage.seen(GLOO_SIZE, TRUNCATED, NCCL_COMPARED)
    if not seen or blame.of(wreckage).disagreement or wreckage.seen(fingerprints.FINGERPRINTS):
        return None
    starting = all(s.signature == TRUNCATED.name and "bootstrap" in s.line.text for s in seen)
    return FAULT.diagnosis(
        "a rank received a message of another size than it expected: the ranks "
        + (
            "do not start NCCL alike (other versions or settings, or two jobs on one port)"
            if starting
            else "were in different collectives, or in one with different sizes"
        ),
        confidence=0.45 if starting else 0.75,
        seen=seen,
        culprit=Culprit(),
        victims={s.rank for s in seen if s.rank is not None},
        fix=FIX if not starting else "same NCCL, torch and NCCL_… settings on every node",
        next=DETAIL,
        unknown=("who sent it: the message shows only who received it",),
    )
