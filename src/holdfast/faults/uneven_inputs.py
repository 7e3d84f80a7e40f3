"""The ranks' data end at different times.

What you see   The job hangs near the end of an epoch, then times out. One rank sits in a barrier,
               an evaluation or a save after the loop; the others are still in backward().
Why            One rank got fewer batches: a dataset that does not divide evenly, a filter, an
               iterable dataset split by hand. It leaves the loop one step earlier, and its next
               collective meets the others' gradient all-reduce.
How to be sure Compare the number of batches per rank. holdfast sees the rank at a later line of the
               same function than the others, in another operation at the same position. Code that
               only that rank runs looks the same, and the verdict says so.
Fix            `drop_last=True` and a DistributedSampler (which pads), `with Join([model]):` around
               the loop, or stop all ranks together by an all_reduce of 'I have data'.
Sources        https://docs.pytorch.org/tutorials/advanced/generic_join.html
               https://github.com/pytorch/pytorch/issues/141069
               torch/utils/data/distributed.py: padding
"""

from __future__ import annotations

from holdfast import endings, hold_up, scene_words
from holdfast.collectives import progress, waits
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD603", slug="uneven-inputs")


@FAULT.notice
def it_left_the_loop_before_the_others(scene: Scene) -> Verdict | None:
    found = waits.analyse(scene).mismatch
    if found is None or not progress.left_the_loop(scene, found):
        return None
    victims = endings.fallen(scene, found.odd)
    ahead = scene.rank(found.odd[0])
    part = progress.part(scene, found.right)
    return FAULT.verdict(
        f"{scene_words.who(scene, found.odd)} is past the loop, {hold_up.place(ahead)}, while "
        f"{scene_words.plain(found.right)} {_is(found.right)} still in {part}: it had fewer "
        f"batches, or only it runs that code (collective #{found.sequence})",
        ranks=found.odd,
        victims=victims,
        certain=True,
        fix="drop_last=True, a DistributedSampler, or `with Join([model]):` around the loop",
        evidence=[
            Evidence(quote=f"#{found.sequence} {kind}", source="flight recorder", rank=rank)
            for rank, kind in found.kinds.items()
        ],
    )


def _is(ranks: tuple[int, ...]) -> str:
    return scene_words.one_or_many(ranks, "is", "are")
