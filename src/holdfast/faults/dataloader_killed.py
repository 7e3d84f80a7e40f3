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
from holdfast.fault import Fault
from holdfast.inference import sighted
from holdfast.model import Culprit, Diagnosis, Verdict
from holdfast.remains import kernel
from holdfast.remains.nouns import Wreckage
from holdfast.remains.signature import Role
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


# --- from the wreckage of a job ----------------------------------------------------------------

DIED = FAULT.wording(
    "died",
    # Pasted logs often have the number blotted out: 'pid xxx'.
    r"DataLoader worker (?:\(pid(?:\(s\))? ?(?P<pids>[^()]*)\) )?(?:is killed by signal: "
    r"(?P<signal>(?!Terminated|Interrupt|Hangup)[\w ]+)"
    r"|exited unexpectedly(?: with exit code (?P<code>\d+))?|is killed by signal: *$)",
    anchors=("DataLoader worker (pid", "DataLoader worker is killed"),
    example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
)
SWEPT = FAULT.wording(
    "swept",
    r"DataLoader worker .*killed by signal: (?:Terminated|Interrupt|Hangup)",
    anchors="killed by signal: ",
    example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. ",
    # Ctrl-C, or the launcher that puts the job away after another failure.
    role=Role.TEARDOWN,
)
CONFIDENCE = {"Killed": 0.9, "Bus error": 0.6, "Segmentation fault": 0.9, "Aborted": 0.8}


@FAULT.recognise
def a_loader_worker_died(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(DIED)
    if not seen:
        return None
    code, pids = sighted.field(seen, "code"), sighted.field(seen, "pids").strip()
    pids = pids if re.fullmatch(r"[\d, ]+", pids) else ""
    signal = sighted.field(seen, "signal").strip()
    named = {one.fields.get("pid") for one in wreckage.seen(kernel.OOM_KILL)}
    by_kernel = bool(named & set(pids.replace(" ", "").split(",")))
    line = seen[0].line
    how = (
        "was killed by the kernel, which had no memory left"
        if by_kernel
        else f"died of a signal ({signal}: {MEANING.get(signal, 'native code crashed')})"
        if signal
        else f"left with exit code {code}"
        if code
        else "was killed"
        if "killed by signal" in line.text
        else "left without a word"
    )
    worker = f"DataLoader worker pid {pids}" if pids else "DataLoader worker"
    return FAULT.diagnosis(
        f"a DataLoader worker{f' (pid {pids})' if pids else ''} of {sighted.who(seen)} {how}, and "
        "torch raised that in the rank",
        confidence=0.97 if by_kernel else CONFIDENCE.get(signal, 0.85),
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=worker),
        fix=_cure(signal),
        next="df -h /dev/shm" if signal == "Bus error" else "dmesg -T | grep -iE 'oom|killed|segf'",
        unknown=[] if signal or code else ["why: try once with num_workers=0 to see its error"],
    )


def _cure(signal: str) -> str:
    if signal == "Bus error":
        return "a larger /dev/shm (`--shm-size=8g`, `--ipc=host`), or fewer workers"
    if signal == "Killed":
        return (
            "need less memory: fewer workers, a smaller prefetch_factor, no dataset copied into "
            "each worker; or allow more (docker --memory, Slurm --mem, limits.memory)"
        )
    return "run once with num_workers=0: then the error itself is raised where it happens"
