"""A replica of the model holds other parameters than the others.

What you see   Nothing at first: every rank takes its steps. The loss drifts, evaluations differ
               between ranks, or a checkpoint is worse than the log promised.
Why            Data parallel training adds the same gradients to the same values on every rank, so
               replicas stay equal to the last bit. A value that a GPU or its memory changed without
               an error (silent data corruption) stays wrong, and spoils the gradients of all ranks.
               A script that changes parameters on one rank only, or loads another checkpoint there,
               looks the same.
How to be sure `holdfast run --verify-replicas N` compares digests of the parameters every N steps
               and names the ranks that differ from the majority, the step, and the parameters. Of
               two ranks it cannot say which is wrong. If the same GPU is named again, on another
               job, it is the GPU.
Fix            Stop the job, resume from a checkpoint of a step at which the replicas were equal,
               and leave that GPU out until it has passed `dcgmi diag -r 3`. Checkpoints since then
               may be wrong: rank 0 usually writes them, with what it holds.
               Where no two ranks hold the same it is no hardware: parameters outside DDP, a step
               inside `no_sync`, unfrozen after DDP was made, another learning rate on each rank.
Known limits   Compared is what torch keeps equal: parameters that DistributedDataParallel trains,
               and the same shard of HSDP replicas (FSDP2, FSDP1). Shards of FSDP, tensor and
               pipeline parallel ranks, buffers, frozen parameters and EMA copies are not replicas;
               DeepSpeed, Megatron and Horovod keep replicas equal themselves and are not known
               here. Of gradients and activations nothing is seen: an error that reaches all ranks
               in the all-reduce leaves the replicas equal. Ranks that the script itself spawned do
               not report. The sums are 64-bit: several flips may cancel out until the next step.
Sources        https://engineering.fb.com/2021/02/23/data-infrastructure/silent-data-corruption/
               https://arxiv.org/abs/2407.21783 (Llama 3, 3.3.4: silent data corruption among the
               interruptions)
               https://docs.pytorch.org/docs/stable/notes/ddp.html (same gradients on all ranks)
               NVIDIA/Megatron-LM: megatron/core/utils.py check_param_hashes_across_dp_replicas,
               megatron/training/training.py (the assertion's text)
               https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import odd_replicas, phrases
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.numbers import ReplicaDifference
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD317",
    slug="replica-mismatch",
    traits=RunTraits(priority=604, is_news=True, never_acts=True),
    related=("gpu-hardware", "nan-loss", "config-changed"),
)

PARAMETERS_SHOWN = 3
NO_HARDWARE = (
    "if the script does not change parameters on one rank only: run `dcgmi diag -r 3` on the GPUs "
    "of all of them; with three or more ranks the wrong one is named"
)
NOT_KEPT = (
    "look for parameters outside DistributedDataParallel, steps inside `no_sync()`, or a learning "
    "rate or seed that depends on the rank"
)


@FAULT.run
def replicas_differ(scene: Scene) -> Verdict | None:
    found = next((d for d in scene.numbers.differences if d.attempt == scene.attempt), None)
    if found is None:
        return None
    odd = odd_replicas.find(found)
    step = scene.checkpoints.base + found.step
    since = _since(scene, found)
    return FAULT.verdict(
        f"{_who(scene, found, odd)} at step {step}: {_where(found)}; {since}",
        ranks=odd.ranks,
        certain=False,
        fix=_fix(scene, found, odd),
        evidence=[
            *(Evidence(quote=_alike(kind), rank=kind[0]) for kind in found.kinds[:4]),
            *(Evidence(quote=_gpu(scene, r), rank=r) for r in odd.ranks if _gpu(scene, r)),
        ],
    )


def _who(scene: Scene, found: ReplicaDifference, odd: odd_replicas.OddReplicas) -> str:
    if not odd.ranks:
        them = text.ranks(found.ranks)
        return f"replicas differ on {them} (which is wrong is undecided: {odd.undecided})"
    known = {view.rank for view in scene.ranks}
    named = phrases.who(scene, odd.ranks) if known.issuperset(odd.ranks) else text.ranks(odd.ranks)
    verb = text.plural(odd.ranks, "holds", "hold")
    return f"{named} {verb} other parameters than the {len(found.kinds[0])} ranks that agree"


def _alike(kind: tuple[int, ...]) -> str:
    if len(kind) == 1:
        return "its parameters equal those of no other rank"
    return f"equal parameters: {text.ranks(kind)}"


def _where(found: ReplicaDifference) -> str:
    shown = ", ".join(found.where[:PARAMETERS_SHOWN])
    more = len(found.where) - PARAMETERS_SHOWN
    return f"in {shown}" + (f" and {more} more" if more > 0 else "") if shown else "in its digest"


def _since(scene: Scene, found: ReplicaDifference) -> str:
    if found.equal_until is None:
        return "no earlier check found them equal"
    return f"at step {scene.checkpoints.base + found.equal_until} they were equal"


def _fix(scene: Scene, found: ReplicaDifference, odd: odd_replicas.OddReplicas) -> str:
    if not odd.ranks:
        alike = any(len(kind) > 1 for kind in found.kinds)
        return NO_HARDWARE if alike or len(found.ranks) == 2 else NOT_KEPT
    where = phrases.on_node(scene, odd.ranks[0])
    if found.equal_until is None:
        return f"check that all ranks load the same checkpoint; then `dcgmi diag -r 3`{where}"
    good = scene.checkpoints.base + found.equal_until
    saved = [one for one in scene.checkpoints.saves if one.step <= good]
    resume = f"resume from {saved[-1].path}" if saved else f"resume from step {good} or earlier"
    return f"stop the job and {resume}, on another GPU; test this one: `dcgmi diag -r 3`{where}"


def _gpu(scene: Scene, rank: int) -> str:
    view = next((view for view in scene.ranks if view.rank == rank), None)
    device = view.beat.claim.device if view and view.beat and view.beat.claim else ""
    return f"GPU {device}" if device else ""


MEGATRON = FAULT.log_pattern(
    "megatron",
    r"Parameter hashes not matching across DP replicas",
    anchors="hashes not matching across DP replicas",
    example="AssertionError: Parameter hashes not matching across DP replicas",
)


@FAULT.explain
def replicas_differed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(MEGATRON)
    if not seen:
        return None
    return FAULT.diagnosis(
        "data parallel replicas held different parameters: a GPU changed a value without an error, "
        "or the ranks loaded different checkpoints",
        confidence=0.9,
        seen=seen,
        culprit=Culprit(),
        fix="resume from a checkpoint of the last iteration at which the hashes matched; test the "
        "GPUs of the job with `dcgmi diag -r 3`",
        next="dcgmi diag -r 3",
        unknown=["which rank is wrong: the assertion does not say"],
    )
