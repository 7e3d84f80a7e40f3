"""The checkpoint was saved by another number of ranks.

What you see   With holdfast: `… was saved by 4 ranks, this job has 2`. Without it often nothing:
               the weights load, and the run goes on with another global batch, another place in
               the data and a learning rate made for the old number. Sharded states that are read
               file by file fail with a missing `rank_3.pt`, or with shapes that do not match.
Why            Weights of plain data parallelism are the same on every rank. The rest is not: which
               samples a rank has seen, its random numbers, its piece of a sharded state; and the
               global batch is the batch of one rank times their number.
How to be sure `holdfast check --ckpt DIR --nproc-per-node N` names both numbers. A checkpoint of
               holdfast whose data is a `holdfast.Sampler` fits any number: its order depends on
               seed and epoch only, and the global batch stays what it was.
Fix            Start with the old number; or use `holdfast.Sampler`; or say that it is meant:
               `resume(accept={"world-size"})` or HOLDFAST_ACCEPT=world-size. Then think about the
               learning rate.
Sources        https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (resharding)
               https://docs.pytorch.org/docs/stable/data.html (DistributedSampler)
               https://arxiv.org/abs/1706.02677 (batch size and learning rate)
"""

from __future__ import annotations

from holdfast import refusal, wording
from holdfast.facts import MachineFacts, known
from holdfast.model import Evidence, Fault, Finding, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD806", slug="world-size-mismatch")

FIX = (
    "start with the old number of ranks, let `holdfast.Sampler` keep the place in the data, or "
    "accept it: HOLDFAST_ACCEPT=world-size"
)


@FAULT.foresee
def another_number_is_planned(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if not plan.checkpoint_folders:
        return FAULT.does_not_apply("no checkpoint folder was named: add --ckpt DIR")
    told = [item for item in known(facts.checkpoints) if item.world_size and not item.problem]
    if not told:
        return FAULT.does_not_apply("no checkpoint there tells how many ranks saved it")
    newest = min(told, key=lambda item: item.age)
    assert newest.world_size
    if not plan.nproc_named:
        return FAULT.does_not_apply(
            f"{newest.path} is from {newest.world_size} ranks; compared with --nproc-per-node N"
        )
    least, most = plan.nproc * plan.min_nodes, plan.nproc * plan.max_nodes
    if least <= newest.world_size <= most or newest.data == "global":
        any_number = ", and fits any number" if newest.data == "global" else ""
        return FAULT.ok(f"the newest checkpoint is from {newest.world_size} ranks{any_number}")
    planned = f"{least}" if least == most else f"{least} to {most}"
    return FAULT.note(
        f"the newest checkpoint was saved by {newest.world_size} ranks, {planned} are planned",
        reason="its place in the data is kept for each rank, or not at all: samples would be "
        "skipped or seen twice, and the global batch would change; `resume()` will refuse",
        evidence=[
            Evidence(
                quote=f"step {newest.step}, {newest.world_size} ranks, "
                f"{wording.span(newest.age)} old",
                source=newest.path,
            )
        ],
        fix=FIX,
    )


@FAULT.notice
def they_refused_to_resume(scene: Scene) -> Verdict | None:
    found = refusal.refused(scene, FAULT.slug)
    if found is None:
        return None
    return refusal.verdict(FAULT, found, fix=FIX)


@FAULT.notice
def it_was_accepted(scene: Scene) -> Verdict | None:
    resumed = [
        r for r in scene.kept.resumed if r.attempt == scene.attempt and "world-size" in r.accepted
    ]
    if not resumed:
        return None
    last = resumed[-1]
    return FAULT.verdict(
        f"resumed with {last.world_size} ranks what {last.saved_world} had saved, as accepted: "
        "samples are skipped or seen twice in this epoch, and the global batch is another",
        ranks=(),
        certain=False,
        fix="scale the learning rate, or let `holdfast.Sampler` pin the global batch",
        evidence=[Evidence(quote=f"saved by {last.saved_world} ranks", source=last.path)],
    )
