"""After a resume the job does not know which samples it has seen.

What you see   Nothing breaks. Samples of the epoch are seen again, others never: a validation that
               is a little too good, a loss that dips after every restart. With holdfast: `… samples
               would be skipped or seen twice`.
Why            Weights and optimizer were saved, the place in the data was not: a DataLoader starts
               its epoch anew. Or it was saved for each rank, and their number has changed. Or the
               data, the seed or the batch are others than they were.
How to be sure The manifest of a checkpoint says 'data': 'global' fits any number of ranks,
               'per-rank' the same number only, 'unknown' means that none was given.
Fix            `holdfast.State(…, data=sampler)` with `holdfast.Sampler`, or torchdata's
               StatefulDataLoader. If an epoch more or less does not matter, nothing has to be done.
Sources        https://docs.pytorch.org/docs/stable/data.html (DistributedSampler.set_epoch)
               https://meta-pytorch.org/data/main/stateful_dataloader_tutorial.html
"""

from __future__ import annotations

from holdfast import refusal
from holdfast.fault import Fault
from holdfast.model import Evidence, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD808", slug="data-position-lost")


@FAULT.notice
def they_refused_to_go_on(scene: Scene) -> Verdict | None:
    found = refusal.refused(scene, FAULT.slug)
    if found is None:
        return None
    return refusal.verdict(
        FAULT,
        found,
        fix="start with the data, seed and batch it was saved with, or in an empty folder",
    )


@FAULT.notice
def no_place_was_saved(scene: Scene) -> Verdict | None:
    resumed = [r for r in scene.kept.resumed if r.attempt == scene.attempt and r.step > 0]
    if not resumed or resumed[-1].data != "unknown":
        return None
    last = resumed[-1]
    return FAULT.verdict(
        f"resumed at step {last.step}, but no place in the data was saved: a loader that starts "
        "its epoch anew shows samples again that were already seen",
        ranks=(),
        certain=False,
        fix="holdfast.State(…, data=sampler) with holdfast.Sampler keeps it",
        evidence=[Evidence(quote="manifest: data is unknown", source=last.path)],
    )
