"""A GPU runs out of memory.

What you see   `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …` on one rank;
               timeouts and lost connections on the others.
Why            The first rank to ask for more than is left raises; the others only notice that it
               is gone. Often it is rank 0 (extra copies for saving, logging or evaluation), or the
               rank that got the longest sequences. Another process on the same GPU counts too.
How to be sure The message says how much was asked for, reserved and free. `nvidia-smi` shows who
               else is there. A line `Tried to allocate more than 1EB memory` after a timeout is
               fallout of a broken collective and no lack of memory.
Fix            A smaller batch, activation checkpointing, sharded optimizer state; load checkpoints
               with map_location="cpu"; bind one device a rank. Fragmentation (reserved far above
               allocated): PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
Sources        https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://github.com/NVIDIA/nccl/issues/1235
               https://github.com/NVIDIA/nccl/issues/1284
"""

from __future__ import annotations

import re

from holdfast import endings, scene_words
from holdfast.endings import Ending
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD308", slug="gpu-oom")

TEXT = re.compile(r"(CUDA|HIP|XPU) out of memory|Cuda failure.*out of memory")


@FAULT.notice
def it_was_out_of_gpu_memory_first(scene: Scene) -> Verdict | None:
    short = [e for e in endings.cause(scene) if _short_of_memory(e)]
    if not short:
        return None
    ranks = [e.rank for e in short]
    victims = endings.fallen(scene, ranks)
    words = short[0].view.words
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} ran out of GPU memory"
        f"{scene_words.at_step(short[0].view)}: {scene_words.quoted(words) if words else ''}"
        f"{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="see who holds memory there with `nvidia-smi`; a smaller batch or activation "
        "checkpointing needs less",
        evidence=[scene_words.how_it_ended(e) for e in short],
    )


def _short_of_memory(ending: Ending) -> bool:
    words = ending.view.words
    if words is None or "more than 1EB" in words.text:
        return False
    return words.kind.endswith("OutOfMemoryError") or bool(TEXT.search(words.text))
