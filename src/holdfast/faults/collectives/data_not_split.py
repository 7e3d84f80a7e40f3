"""Every rank trains on all of the data instead of its part.

What you see   Nothing fails. With four GPUs an epoch has as many steps as with one, and each sample
               is trained on four times. If all ranks set the same seed, they even train on the
               same batches: the GPUs compute the same gradients, and nothing is gained at all.
Why            DistributedDataParallel averages gradients; it does not deal out data.
               `DataLoader(data, shuffle=True)` draws from the whole data set on each rank, each
               rank in the order of its own generator. Dealing out is the work of a sampler.
How to be sure Compare `len(loader)` with the size of the data set: it must be about `len(data) /
               (batch size × ranks)`. Print the first indices on two ranks: none may be on both.
Fix            `sampler = DistributedSampler(data)`, `DataLoader(data, sampler=sampler, …)` in place
               of `shuffle=True`, and `sampler.set_epoch(epoch)` first in each epoch. Or
               `holdfast.Sampler`, which also resumes in the middle of an epoch.
Known limits   Seen only where one file wraps the model, makes the loader and trains. Nothing is
               said where any word shows that data may be dealt out in another way: a sampler, a
               trainer, `prepare()`, a subset, a data set that asks for its rank.
Sources        https://docs.pytorch.org/docs/stable/data.html (DistributedSampler)
               https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
               torch/utils/data/sampler.py: RandomSampler draws its seed from the default generator
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks.data_loaders import whole_data
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD629",
    slug="data-not-split",
    related=("uneven-inputs", "data-position-lost"),
)


@FAULT.lint_python
def every_rank_loads_everything(program: Program, _: Source) -> Iterator[Finding]:
    for one in whole_data(program):
        speak = FAULT.warning if one.sure else FAULT.note
        yield speak(
            "this loader shuffles all of the data on every rank: no sampler deals it out",
            reason=f"{one.wrap.written} (line {one.wrap.node.lineno}) averages gradients and "
            "leaves the data to you: each sample is trained on once per rank and epoch, and where "
            "all ranks set the same seed, all train on the same batches",
            fix="`sampler = DistributedSampler(data)` and `DataLoader(…, sampler=sampler)` instead "
            "of `shuffle=True`, with `sampler.set_epoch(epoch)` first in each epoch",
            at=program.place(one.loader.node),
        )
