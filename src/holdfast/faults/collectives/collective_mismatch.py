"""Ranks meet in different collectives, or with different sizes.

What you see   With NCCL a silent hang until the timeout, or `Message truncated`. With Gloo
               `terminate called after throwing an instance of 'gloo::EnforceNotMet' … Received data
               size doesn't match expected size` and SIGABRT, mostly on a rank that did nothing
               wrong; the others report `Connection reset by peer`. With equal sizes Gloo reports
               nothing and the sums are wrong.
Why            Collectives are matched only by their order within a group. A rank that issues
               another operation or another size at the same position, or skips one, meets the
               others in the wrong collective.
How to be sure The flight recorders show operation, size and type of every rank at that position.
               The majority is taken to be right; with two ranks or a tie it is undecided, and
               holdfast says so. TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare them at every
               call.
Fix            Make all ranks take the same branch with the same shapes: pad the last batch or drop
               it (drop_last=True), and call no collective under a condition that differs between
               ranks.
Known limits   Two mismatched collectives of equal operation, size and type cannot be seen. A rank
               that crashed before its recorder was read does not show what it had issued.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications
               https://github.com/pytorch/pytorch/pull/100213
               pytorch/gloo gloo/transport/tcp/pair.cc: the size check
               https://github.com/NVIDIA/nccl/issues/626
               NVIDIA/nccl src/ras/client_support.cc: launches by operation
               torch 2.15.0: torch/distributed/flight_recorder/components/types.py (torchfrtrace)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.collectives import call_sites, groups, progress, waits
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, fingerprints, odd_ranks, ras_evidence
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD601",
    slug="collective-mismatch",
    traits=RunTraits(priority=310),
    related=("uneven-inputs", "rank-conditional-code", "unused-parameters", "foreign-job-on-port"),
)

FIX = "make all ranks issue the same collectives in the same order and size"


@FAULT.run
def ranks_issued_different_collectives(scene: Scene) -> Verdict | None:
    found = waits.analyse(scene).mismatch
    if found is None or progress.left_the_loop(scene, found):
        return None
    name = groups.in_words(found.group, scene.world or "")
    place = f"collective #{found.sequence}{name}"
    if found.undecided:
        sides = ", ".join(f"{text.ranks(ranks)} {said}" for said, ranks in _sides(scene, found))
        reason = f"ranks disagree in {place}: {sides}; no majority, so undecided which is wrong"
    else:
        lines = ", ".join(_lines(scene, found))
        reason = f"{phrases.who(scene, found.odd)} {_differs(found)} in {place}"
        reason += f": {lines}" if lines else ""
    victims = [r for r in exits.fallen(scene, found.odd) if r not in found.odd]
    return FAULT.verdict(
        reason + (f"; {text.ranks(victims)} cannot continue" if victims else ""),
        ranks=found.odd,
        one_of=found.undecided,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[
            Evidence(quote=f"#{found.sequence} {kind}", source="flight recorder", rank=rank)
            for rank, kind in found.kinds.items()
        ],
    )


@FAULT.run
def gloo_or_torch_reported_a_mismatch(scene: Scene) -> Verdict | None:
    """Gloo or torch rejected what it received, and no recorder shows which rank sent it."""
    told = [e for e in exits.endings(scene) if e.consequence == secondary_errors.MISMATCH]
    if not told or waits.analyse(scene).mismatch:
        return None
    lines = call_sites.each(scene, [view.rank for view in scene.ranks])
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in told)} received a collective of a different size or kind "
        "than expected; the sender is unknown, because no flight recorder could be read"
        + (f": {lines}" if lines else ""),
        ranks=(),
        victims=exits.fallen(scene, ()),
        certain=True,
        fix=FIX,
        evidence=[phrases.how_it_ended(e) for e in told],
    )


def _sides(scene: Scene, found: Mismatch) -> list[tuple[str, list[int]]]:
    """What the ranks called and from which line -> who; also a rank that left no recorder."""
    sides: dict[str, list[int]] = {}
    for rank in sorted({*found.kinds, *found.odd}):
        kind = found.kinds.get(rank, "an unknown one")
        line = call_sites.of_collective(scene, rank, found.group, found.sequence)
        sides.setdefault(f"{kind} {line}".rstrip(), []).append(rank)
    return list(sides.items())


def _lines(scene: Scene, found: Mismatch) -> Iterator[str]:
    """'rank 2 in evaluate() at train.py:26', of one rank on each side."""
    for side in (found.odd, found.right):
        lines = {r: call_sites.of_collective(scene, r, found.group, found.sequence) for r in side}
        known = next(((rank, line) for rank, line in lines.items() if line), None)
        if known:
            yield f"rank {known[0]} {known[1]}"


def _differs(found: Mismatch) -> str:
    theirs = next((found.kinds[r] for r in found.right if r in found.kinds), "a different one")
    own = next((found.kinds[r] for r in found.odd if r in found.kinds), "")
    issued = (
        f"called {own} where all others called {theirs}"
        if own
        else f"called a smaller collective than {theirs}, which all others called,"
    )
    return issued + (" (it probably skipped one)" if found.skipped else "")


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
NCCL_REFUSED = FAULT.log_pattern(
    "nccl-refused",
    # NET/IB and NET/Socket compare sizes while data moves; a thread of NCCL's then returns
    # ncclInvalidUsage, which the watchdog finds. Whatever is wrong at the start is raised instead.
    r"raised the following async exception: NCCL error: invalid usage",
    anchors=("async exception: NCCL error: invalid usage",),
    example="[rank1]:[E1115 01:03:15.1 ProcessGroupNCCL.cpp:552] [Rank 1] Collective WorkNCCL("
    "SeqNum=11, OpType=ALLREDUCE) raised the following async exception: NCCL error: invalid usage",
    role=Role.CASCADE,
)
TENSORS = FAULT.log_pattern(
    "tensors",
    # torch checks the tensors of one call before anything is sent.
    r"Invalid usage of tensors with different dtypes|Tensors must have identical type"
    r"|(?:in|out)put tensor must (?:be|have) the same type as"
    r"|output tensor size must be equal to world_size times input tensor size"
    r"|input tensor must be the same size as output size times world size"
    r"|Split sizes doesn't match total dim 0 size|Number of tensor splits not equal to group size"
    r"|Tensor's dim 0 does not divide equally across group size"
    r"|ProcessGroup\w{1,20}::\w{1,30}: invalid tensor (?:size|type) at index",
    anchors=(
        *("tensors with different dtypes", "Tensors must have identical type"),
        *("tensor must be the same type as", "tensor must have the same type as"),
        *("equal to world_size times input", "the same size as output size times"),
        *(
            "Split sizes doesn't match",
            "tensor splits not equal to group",
            "does not divide equally",
        ),
        *(": invalid tensor size at", ": invalid tensor type at"),
    ),
    example="ValueError: Invalid usage of tensors with different dtypesFound torch.float32 and  "
    "torch.float16",
)
DETAIL = "export TORCH_DISTRIBUTED_DEBUG=DETAIL"
"""then start the job again: torch compares the collectives at every call"""


@FAULT.explain
def recorders_show_different_collectives(wreckage: Wreckage) -> Diagnosis | None:
    """By the recorders, or by the watchdog messages of several ranks."""
    found = blame.of(wreckage).disagreement
    if found is None:
        return None
    return FAULT.diagnosis(
        f"the ranks met in different collectives ({found.words()})",
        confidence=_sure(found),
        seen=blame.first_complaint(wreckage),
        evidence=odd_ranks.evidence(found),
        culprit=odd_ranks.culprit(found),
        victims=found.others,
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
def nccl_ras_counts_different_collectives(wreckage: Wreckage) -> Diagnosis | None:
    """Some ranks are ahead in one operation, others in another, and it stays so."""
    late = ras_evidence.late_ranks(wreckage)
    if late is None or not late.gap.crossed or not late.lasted:
        return None
    fewest = late.gap.crossed[0]
    odd = fewest if len(fewest) * 2 < sum(map(len, late.gap.crossed)) else ()
    who = ras_evidence.named(late.answer, odd) if odd else "some ranks"
    return FAULT.diagnosis(
        f"{who} launched other collectives than the rest of communicator {late.gap.communicator}, "
        f"as each has counted for NCCL's RAS; nothing changed in {text.elapsed(late.lasted)}",
        confidence=0.6,
        evidence=ras_evidence.different_calls(late),
        culprit=ras_evidence.culprit(late.answer, odd),
        victims=ras_evidence.others(late.answer, odd) if odd else (),
        fix=FIX,
        next=DETAIL,
        unknown=() if odd else (odd_ranks.UNDECIDED,),
    )


@FAULT.explain
def torch_found_a_mismatch(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(fingerprints.FINGERPRINTS)
    if not seen:
        return None
    found = fingerprints.compare(seen)
    if found is None:
        data = not fingerprints.same_everywhere(seen)
    else:
        data = found.what == "size" and not fingerprints.is_bucket(found)
    return FAULT.diagnosis(
        "torch compared the collectives of the ranks before running them and found a difference"
        + (f" ({found.words()})" if found else ""),
        confidence=0.75 if data else 0.65,
        seen=seen,
        culprit=odd_ranks.culprit(found) if found else Culprit(),
        victims=found.others if found else (),
        fix=FIX,
        next="grep -B 30 'Detected mismatch' *.log",
        unknown=() if found and found.odd else (odd_ranks.UNDECIDED,),
    )


TORCHFRTRACE = FAULT.log_pattern(
    "torchfrtrace",
    r"^error msg: Culprit rank (?P<rank>\d{1,7}); Error type: "
    r"(?P<what>COLLECTIVE_TYPE|SIZE_OR_SYNTAX|COLLECTIVE_DTYPE)_MISMATCH"
    r"(?:, (?P<how>[^\n]{1,300}))?",
    anchors=("error msg: Culprit rank ",),
    example="error msg: Culprit rank 2; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: "
    "'[[8]]' does not match found input sizes: '[[17]]'",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def torchfrtrace_found_a_mismatch(wreckage: Wreckage) -> Diagnosis | None:
    """Its finding, where the dumps themselves were not given."""
    seen = wreckage.seen(TORCHFRTRACE)
    if not seen or wreckage.recorders:
        return None
    ranks = sorted({int(one.fields["rank"]) for one in seen})
    return FAULT.diagnosis(
        f"torchfrtrace found that {text.ranks(ranks)} issued another collective than the first rank"
        f" it read ({seen[0].fields.get('how') or seen[0].fields['what']})",
        confidence=0.6,
        seen=seen,
        culprit=odd_ranks.named(ranks),
        fix=FIX,
        next=DETAIL,
        unknown=("whether that first rank is the odd one: torchfrtrace compares with it alone",),
    )


@FAULT.explain
def horovod_found_a_mismatch(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(HOROVOD)
    if not seen:
        return None
    told = seen[0].fields
    return FAULT.diagnosis(
        f"the ranks submitted different tensors to Horovod under one name ({told['what']}: one "
        f"rank {told['one']}, another {told['other'].rstrip('. ')})",
        confidence=0.88,
        seen=seen,
        culprit=Culprit(),
        fix="submit the same tensors (shape, type, device) from every rank, each under its own "
        "name; use the same model and the same devices on all ranks",
        next="grep -n 'Mismatched' *.log",
        unknown=("which side is wrong: Horovod names neither rank",),
    )


@FAULT.explain
def ddp_models_differ(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(MODELS)
    if not seen:
        return None
    odd = seen[0].fields.get("odd")
    return FAULT.diagnosis(
        "DDP compared the parameters of the ranks' models and found a difference: the ranks built "
        "different models",
        confidence=0.85,
        seen=seen,
        culprit=Culprit(rank=int(odd)) if odd else None,
        fix="build the same model on every rank (same configuration, same code, no layer that "
        "depends on the rank or on data seen so far); log the number of parameters on every rank "
        "to compare",
    )


EITHER_SIDE = (
    "which rank differs: the one that reports it, or the one whose data it met; these lines do not "
    "show which"
)


@FAULT.explain
def received_message_had_a_different_size(wreckage: Wreckage) -> Diagnosis | None:
    """Reported by the rank that received it; the message does not name the sender."""
    seen = wreckage.seen(GLOO_SIZE, TRUNCATED, NCCL_COMPARED, NCCL_REFUSED)
    if not seen or blame.of(wreckage).disagreement or wreckage.seen(fingerprints.FINGERPRINTS):
        return None
    starting = all(s.pattern == TRUNCATED.name and "bootstrap" in s.line.text for s in seen)
    unshown = all(s.pattern == NCCL_REFUSED.name for s in seen)
    what = (
        "NCCL refused a message as invalid while the job ran, when it compares nothing but sizes"
        if unshown
        else "a rank received a message of a different size than it expected"
    )
    return FAULT.diagnosis(
        f"{what}: the ranks "
        + (
            "started NCCL differently (other versions or settings, or two jobs on one port)"
            if starting
            else "were in different collectives, or in one with different sizes"
        ),
        confidence=0.45 if starting else 0.6 if unshown else 0.75,
        seen=seen,
        culprit=Culprit(),
        victims={s.rank for s in seen if s.rank is not None},
        fix=FIX if not starting else "use the same NCCL, torch and NCCL_… settings on every node",
        next=DETAIL,
        unknown=(EITHER_SIDE,),
    )


@FAULT.explain
def tensors_of_a_call_do_not_fit(wreckage: Wreckage) -> Diagnosis | None:
    """Refused on a few ranks while the others went on to wait: those few differ from them."""
    seen = wreckage.seen(TENSORS)
    if not seen:
        return None
    ranks = sorted({s.rank for s in seen if s.rank is not None})
    others = blame.of(wreckage).others(*ranks)
    odd = bool(ranks) and len(ranks) < len(others) + 1
    who = text.ranks(ranks) if ranks else "a rank"
    waited = (
        f"; {text.ranks(others)}, whose tensors passed that check, waited for it" if odd else ""
    )
    return FAULT.diagnosis(
        f"torch refused a collective call of {who}: the sizes or types of its tensors do not fit "
        f"together{waited}",
        confidence=0.8 if odd else 0.55,
        seen=seen,
        culprit=odd_ranks.named(ranks) if odd else Culprit(what="the call in the traceback"),
        victims=others,
        fix="log shape and dtype of these tensors on every rank, right before the call",
        next=DETAIL,
    )


@FAULT.drill()
def call_another_size(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} calls all_reduce with a size of its own {rehearsal.when}",
        act=BreakInside(how="mismatch"),
        then=Then.RESTARTS,
        # Of two ranks neither is the majority: both are named, as undecided.
        culprits=(0, 1) if rehearsal.job.ranks == 2 else None,
    )
