"""The checkpoint was saved by a different number of ranks.

What you see   With holdfast: `… was saved by 4 ranks, this job has 2`. Without it often nothing:
               the weights load, and the run continues with a different global batch, a different
               position in the data and a learning rate tuned for the old number. Sharded states
               that are read file by file fail with a missing `rank_3.pt`, or with shapes that do
               not match.
Why            With plain data parallelism the weights are the same on every rank. The rest is not:
               which samples a rank has seen, its random number generators, its part of a sharded
               state; and the global batch is the batch of one rank times the number of ranks.
How to be sure `holdfast check --ckpt DIR --nproc-per-node N` shows both numbers. A checkpoint of
               holdfast whose data is a `holdfast.Sampler` fits any number of ranks: its order
               depends only on seed and epoch, and the global batch stays the same.
Fix            Start with the old number of ranks; or use `holdfast.Sampler(…, global_batch_size=…,
               micro_batch_size=…)`; or accept the change: `resume(accept={"world-size"})` or
               HOLDFAST_ACCEPT=world-size. Then reconsider the learning rate.
Known limits   Checkpoints not written by `holdfast.Checkpoint` mostly do not say how many ranks
               saved them; `holdfast check` then does not apply.
Sources        https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (resharding)
               deepspeedai/DeepSpeed deepspeed/runtime/engine.py (_load_zero_checkpoint)
               NVIDIA/Megatron-LM megatron/training/checkpointing.py (check_checkpoint_args)
               https://docs.pytorch.org/docs/stable/data.html (DistributedSampler)
               https://arxiv.org/abs/1706.02677 (batch size and learning rate)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import resume_refused
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, checkpoint_items, known
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD806",
    slug="world-size-mismatch",
    traits=RunTraits(priority=240, blocks_start=True),
    related=("config-changed", "data-position-lost", "elastic-lr-drift", "checkpoint-incomplete"),
)

FIX = (
    "start with the old number of ranks, use `holdfast.Sampler` to keep the data position, or "
    "accept the change: HOLDFAST_ACCEPT=world-size"
)


@FAULT.check(needs=("checkpoints",))
def planned_ranks_differ_from_saved(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if not plan.checkpoint_folders:
        return FAULT.does_not_apply(checkpoint_items.NO_FOLDER)
    told = [item for item in known(facts.checkpoints) if item.world_size and not item.problem]
    if not told:
        return FAULT.does_not_apply("no checkpoint in the folder says how many ranks saved it")
    newest = min(told, key=lambda item: item.age)
    assert newest.world_size
    if not plan.nproc_named:
        return FAULT.does_not_apply(
            f"{newest.path} was saved by {newest.world_size} ranks; add --nproc-per-node N to "
            "compare"
        )
    least, most = plan.nproc * plan.min_nodes, plan.nproc * plan.max_nodes
    if least <= newest.world_size <= most or newest.data == "global":
        any_number = " and fits any number" if newest.data == "global" else ""
        return FAULT.ok(f"the newest checkpoint was saved by {newest.world_size} ranks{any_number}")
    planned = f"{least}" if least == most else f"{least} to {most}"
    return FAULT.note(
        f"the newest checkpoint was saved by {newest.world_size} ranks, {planned} are planned",
        reason="its data position was saved per rank or not at all: samples would be skipped or "
        "seen twice, and the global batch would change; `resume()` will refuse",
        evidence=[
            Evidence(
                quote=f"step {newest.step}, {newest.world_size} ranks, "
                f"{text.duration(newest.age)} old",
                source=newest.path,
            )
        ],
        fix=FIX,
    )


@FAULT.run
def ranks_refused_to_resume(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


@FAULT.run
def changed_world_size_was_accepted(scene: Scene) -> Verdict | None:
    last = scene.checkpoints.accepted("world-size", attempt=scene.attempt)
    if last is None:
        return None
    return FAULT.verdict(
        f"resumed with {last.world_size} ranks from a checkpoint of {last.saved_world} (the change "
        "was accepted): samples are skipped or seen twice in this epoch, and the global batch has "
        "changed",
        ranks=(),
        certain=False,
        fix="scale the learning rate, or use `holdfast.Sampler` to fix the global batch",
        evidence=[Evidence(quote=f"saved by {last.saved_world} ranks", source=last.path)],
    )


# --- in what is left of a job -------------------------------------------------------------------

ZERO = FAULT.log_pattern(
    "zero",
    r"used a DP world size of (?P<saved>\d+) but the current world size is (?P<now>\d+)"
    r"|optimizer state partitioning with a new world size is not",
    anchors=("used a DP world size of", "partitioning with a new world size"),
    example="deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a "
    "DP world size of 8 but the current world size is 4. Automatic adjustment of ZeRO's optimizer "
    "state partitioning with a new world size is not currently supported.",
)
SHARDED = FAULT.log_pattern(
    "sharded-tensor",
    r"(?:Local|Global) (?P<what>world size|rank) at save time was (?P<saved>\d+), ?but at load "
    r"time was (?P<now>\d+)",
    anchors=" at save time was ",
    example="RuntimeError: Global world size at save time was 8, but at load time was 4",
)
PARALLEL_SIZE = FAULT.log_pattern(
    "parallel-size",
    r"(?<!\w)(?P<what>\w{0,64}(?:parallel_size|world_size)) value from checkpoint "
    r"\((?P<saved>[^)]*)\) is not equal to the "
    r"(?:input|currently set) argument value \((?P<now>[^)]*)\)",
    anchors="value from checkpoint (",
    example="AssertionError: tensor_model_parallel_size value from checkpoint (4) is not equal to "
    "the input argument value (2).",
)
OWN_WORDS = FAULT.log_pattern(
    "holdfast",
    r"is not from this run: (?P<why>.*?) ?\[(?:[a-z-]+, )*world-size-mismatch[a-z, -]*\]",
    anchors="world-size-mismatch",
    example="holdfast.errors.ConfigError: ckpts/step-1200 is not from this run: it was saved by 4 "
    "ranks, this job has 2 [world-size-mismatch]",
)
FLAT_SHARD = FAULT.log_pattern(
    "flat-parameter",
    r"size mismatch for (?P<what>\S*_?flat_param\S*): copying a param",
    anchors="flat_param",
    example="size mismatch for _fsdp_wrapped_module._flat_param: copying a param with shape "
    "torch.Size([1024]) from checkpoint, the shape in current model is torch.Size([2048]).",
)
ACCESS = FAULT.log_pattern(
    "access-pattern",
    # Megatron's dist_checkpointing: what the ranks ask for does not cover the whole once.
    r"Invalid (?:access|sharding) pattern(?: for (?P<what>Sharded\w+)|: (?P<count>\d+) Sharded)",
    anchors=("Invalid access pattern", "Invalid sharding pattern"),
    example="CheckpointingException: Invalid access pattern for ShardedTensor(key='decoder.weight'",
)
RANKS_FILE = FAULT.log_pattern(
    "ranks-file",
    r"No such file or directory: b?'(?P<path>[^']*(?:rank_?|random_states_|rng_state_)(?P<of>\d+)"
    r"[^']*\.\w+)(?:'|$)",
    anchors="No such file or directory: ",
    example="FileNotFoundError: [Errno 2] No such file or directory: '/ckpts/step-90/rank_3.pt'",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def saved_by_a_different_number_of_ranks(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ZERO, SHARDED, PARALLEL_SIZE, OWN_WORDS)
    if not seen:
        return _from_shards(wreckage)
    first = next((one for one in seen if "saved" in one.fields), seen[0])
    return FAULT.diagnosis(
        _two_numbers(first),
        confidence=0.75 if first.fields.get("what") == "rank" else 0.95,
        seen=seen,
        culprit=Culprit(what=first.fields.get("what", "world size")),
        fix=_fix(first),
    )


def _two_numbers(one: Sighting) -> str:
    if "why" in one.fields:
        return f"the checkpoint was saved by a different number of ranks: {one.fields['why']}"
    what = one.fields.get("what", "world size").replace("_", " ")
    if "saved" not in one.fields:
        return "the checkpoint was saved by a different number of ranks than are loading it"
    return (
        f"the checkpoint was saved with {what} {one.fields['saved']} and is loaded with "
        f"{one.fields['now']}: its shards are sized for the old number"
    )


def _fix(one: Sighting) -> str:
    if one.pattern == ZERO.name:
        return (
            "start with the old number of ranks; or convert it to a universal checkpoint "
            "(DeepSpeed's ds_to_universal.py), which any number can load; or load only the "
            "weights: `load_checkpoint(…, load_optimizer_states=False)`"
        )
    if one.pattern == PARALLEL_SIZE.name:
        return "start with the sizes it was saved with, or convert the checkpoint to the new ones"
    return FIX


def _from_shards(wreckage: Wreckage) -> Diagnosis | None:
    """A shard of a different size, or a missing one: mostly the number of ranks changed."""
    seen = wreckage.seen(FLAT_SHARD) or wreckage.seen(RANKS_FILE)
    if not seen:
        return _from_access_pattern(wreckage)
    flat = seen[0].pattern == FLAT_SHARD.name
    what = seen[0].fields.get("what") or seen[0].fields["path"]
    return FAULT.diagnosis(
        f"{what} is one rank's shard of the state, and it "
        + ("has a different size than the shards of this job" if flat else "does not exist")
        + ": it was probably saved by a different number of ranks",
        confidence=0.6 if flat else 0.4,
        seen=seen,
        culprit=Culprit(what=what),
        fix=FIX,
        unknown=("how many ranks saved it: the log does not say",),
    )


def _from_access_pattern(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ACCESS)
    if not seen:
        return None
    return FAULT.diagnosis(
        "the shards that the ranks request do not cover the checkpoint exactly once: it was "
        "probably saved with different parallel sizes than this job has",
        confidence=0.5,
        seen=seen,
        culprit=Culprit(what="parallel sizes"),
        fix="start with the tensor, pipeline and expert parallel sizes it was saved with, or "
        "convert the checkpoint to the new ones",
        unknown=("whether the sizes differ, or a layer names its shards wrongly",),
    )
