"""A worker process of a DataLoader died.

What you see   `RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.` or `…Bus
               error. It is possible that dataloader's workers are out of shared memory.` or
               `DataLoader worker (pid(s) 4711) exited unexpectedly`, on one rank; the others lose
               their connection to it.
Why            The loader's workers are processes of their own. The kernel kills one when memory
               runs out (`Killed`), a full /dev/shm ends one with a bus error, a crash in a decoder
               with a segmentation fault. torch tells it to the rank as an exception.
How to be sure The signal in the message: Killed is memory (`dmesg -T | grep -i oom`, memory.events
               of the cgroup), Bus error is shared memory (`df -h /dev/shm`), Segmentation fault is
               native code in the dataset: try num_workers=0 to see it directly.
Fix            Killed: fewer workers, a smaller prefetch_factor, no dataset copied into each worker.
               Bus error: a larger /dev/shm (`--shm-size`, `--ipc=host`).
Sources        pytorch/pytorch torch/utils/data/_utils/signal_handling.py
               pytorch/pytorch torch/csrc/DataLoader.cpp: the wordings
               https://github.com/pytorch/pytorch/issues/5040
               https://github.com/pytorch/pytorch/issues/13246
"""

from __future__ import annotations

import re

from holdfast import endings, scene_words
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD406", slug="dataloader-killed")

TEXT = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\) "
    r"(?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)"
)
MEANING = {
    "Killed": "mostly the kernel, for lack of memory",
    "Bus error": "mostly because /dev/shm is full",
    "Segmentation fault": "native code in the dataset crashed",
}


@FAULT.notice
def a_worker_of_it_died_first(scene: Scene) -> Verdict | None:
    told = [
        (e, match)
        for e in endings.cause(scene)
        if e.view.words and (match := TEXT.search(e.view.words.text))
    ]
    if not told:
        return None
    ranks = [e.rank for e, _ in told]
    victims = endings.fallen(scene, ranks)
    match = told[0][1]
    name = (match["signal"] or "").strip()
    how = f"was killed ({name}: {MEANING.get(name, 'see its signal')})" if name else "exited"
    return FAULT.verdict(
        f"a DataLoader worker of {scene_words.who(scene, ranks)} {how}"
        f"{scene_words.at_step(told[0][0].view)}{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="`df -h /dev/shm` for a bus error, `dmesg -T | grep -i oom` for a kill; fewer "
        "workers need less of both",
        evidence=[scene_words.how_it_ended(e) for e, _ in told],
    )
