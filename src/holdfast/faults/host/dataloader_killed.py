"""A DataLoader worker process died.

What you see   `RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.` or `…Bus
               error. It is possible that dataloader's workers are out of shared memory.` or
               `DataLoader worker (pid(s) 4711) exited unexpectedly`, on one rank; the others lose
               their connection to it.
Why            Loader workers are separate processes. The kernel kills one when memory runs out
               (`Killed`), a full /dev/shm ends one with a bus error, a crash in a decoder with a
               segmentation fault. torch raises it as an exception in the rank.
How to be sure The signal in the message: Killed is memory (`dmesg -T | grep -i oom`, memory.events
               of the cgroup), Bus error is shared memory (`df -h /dev/shm`), Segmentation fault is
               native code in the dataset: use num_workers=0 to see it directly.
Fix            Killed: fewer workers, a smaller prefetch_factor, no dataset copied into each worker.
               Bus error: a larger /dev/shm (`--shm-size`, `--ipc=host`).
Known limits   torch reports the signal, not its sender: whether the OOM killer sent it is known
               only where the kernel log names the worker's pid. Pools outside torch report no
               signal at all.
Sources        pytorch/pytorch torch/utils/data/_utils/signal_handling.py
               pytorch/pytorch torch/csrc/DataLoader.cpp: the messages
               https://github.com/pytorch/pytorch/issues/5040
               https://github.com/pytorch/pytorch/issues/13246
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.analysis.drill.host_acts import KillLoaderWorker
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import kernel
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene import exits, surroundings
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD406",
    slug="dataloader-killed",
    related=("host-oom", "shm-too-small", "python-exception"),
    traits=RunTraits(priority=205),
)

WORKER_DIED = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\) "
    r"(?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)"
)
MEANING = {
    "Killed": "usually the kernel's OOM killer",
    "Bus error": "usually a full /dev/shm",
    "Segmentation fault": "native code in the dataset crashed",
}


@FAULT.run
def loader_worker_died_first(scene: Scene) -> Verdict | None:
    reports = [
        (e, match)
        for e in exits.cause(scene)
        if e.view.words and (match := WORKER_DIED.search(e.view.words.text))
    ]
    if not reports:
        return None
    ranks = [e.rank for e, _ in reports]
    victims = exits.fallen(scene, ranks)
    match = reports[0][1]
    name = (match["signal"] or "").strip()
    meaning = _kill_in_words(scene, ranks[0]) if name == "Killed" else MEANING.get(name)
    how = f"was killed ({name}: {meaning or 'see its signal'})" if name else "exited"
    return FAULT.verdict(
        f"a DataLoader worker of {phrases.who(scene, ranks)} {how}"
        f"{phrases.at_step(reports[0][0].view)}{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="check `df -h /dev/shm` after a bus error, `dmesg -T | grep -i oom` after a kill; use "
        "fewer workers",
        evidence=[phrases.how_it_ended(e) for e, _ in reports],
    )


def _kill_in_words(scene: Scene, rank: int) -> str:
    """What the kernel's counter for the job's cgroup says, where it can be read."""
    kills = surroundings.of_rank(scene, rank).oom_kills
    if kills > 0:
        return f"the kernel's OOM killer: cgroup oom_kill {kills} since the start"
    return "no cgroup OOM kill: something else sent SIGKILL" if not kills else MEANING["Killed"]


# --- explain -------------------------------------------------------------------------------------

DIED = FAULT.log_pattern(
    "died",
    # Pasted logs often have the number masked: 'pid xxx'.
    r"DataLoader worker (?:\(pid(?:\(s\))? ?(?P<pids>[^()]*)\) )?(?:is killed by signal: "
    r"(?P<signal>(?!Terminated|Interrupt|Hangup)[\w ]+)"
    r"|exited unexpectedly(?: with exit code (?P<code>\d+))?|is killed by(?: signal:?)? *$)"
    r"|Unexpected (?P<crash>segmentation fault|floating-point exception) encountered in worker",
    anchors=(
        "DataLoader worker (pid",
        "DataLoader worker is killed",
        "segmentation fault encountered in worker",
        "exception encountered in worker",
    ),
    example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
)
SWEPT = FAULT.log_pattern(
    "swept",
    r"DataLoader worker .*killed by signal: (?:Terminated|Interrupt|Hangup)",
    anchors="killed by signal: ",
    example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. ",
    # Ctrl-C, or a launcher that ends the job after another failure.
    role=Role.TEARDOWN,
)
POOL = FAULT.log_pattern(
    "pool",
    # nnU-Net's augmenters, Hugging Face datasets, Python's pool: the parent sees no signal.
    r"(?:One or more|Some) background workers are no longer alive"
    r"|MultiThreadedAugmenter\.abort_event"
    r"|One of the subprocesses has abruptly died during map operation"
    r"|process in the process pool was terminated abruptly"
    r"|process managed by the executor was unexpectedly terminated"
    # PaddlePaddle's loader puts advice into the brackets.
    r"|DataLoader process \(pid.{0,300}(?:exited unexpectedly|is killed by signal)",
    anchors=(
        "background workers are no longer",
        "MultiThreadedAugmenter.abort",
        "has abruptly died during map",
        "process pool was terminated",
        "executor was unexpectedly",
        "DataLoader process (pid",
    ),
    example="RuntimeError: One or more background workers are no longer alive. Exiting. Please "
    "check the print statements above for the actual error message",
)
CONFIDENCE = {"Killed": 0.9, "Bus error": 0.6, "Segmentation fault": 0.9, "Aborted": 0.8}


@FAULT.explain
def loader_worker_died(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(DIED)
    if not seen:
        return _pool_worker_died(wreckage)
    pids = sightings.field(seen, "pids").strip()
    pids = pids if re.fullmatch(r"[\d, ]+", pids) else ""
    signal = sightings.field(seen, "signal").strip() or sightings.field(seen, "crash").capitalize()
    named = {one.fields.get("pid") for one in wreckage.seen(kernel.OOM_KILL)}
    by_kernel = bool(named & set(pids.replace(" ", "").split(",")))
    line = seen[0].line
    worker = f"DataLoader worker pid {pids}" if pids else "DataLoader worker"
    return FAULT.diagnosis(
        f"a DataLoader worker{f' (pid {pids})' if pids else ''} of {sightings.who(seen)} "
        f"{_how_it_died(seen, signal, by_kernel=by_kernel)}, and torch raised an exception in the "
        "rank",
        confidence=0.97 if by_kernel else CONFIDENCE.get(signal, 0.85),
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=worker),
        fix=_fix_for(signal),
        next="df -h /dev/shm" if signal == "Bus error" else "dmesg -T | grep -iE 'oom|killed|segf'",
        unknown=[]
        if signal or sightings.field(seen, "code")
        else ["why: run once with num_workers=0 to see its error"],
    )


def _how_it_died(seen: Sequence[Sighting], signal: str, *, by_kernel: bool) -> str:
    if by_kernel:
        return "was killed by the kernel's OOM killer"
    if signal:
        return f"died of a signal ({signal}: {MEANING.get(signal, 'native code crashed')})"
    if code := sightings.field(seen, "code"):
        return f"exited with code {code}"
    return "was killed" if "is killed by" in seen[0].line.text else "exited without a message"


def _pool_worker_died(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(POOL)
    if not seen:
        return None
    line = seen[0].line
    return FAULT.diagnosis(
        f"a process that prepared data for {sightings.who(seen)} died, and its parent does not "
        "know why: usually the kernel's OOM killer, or a crash in native code",
        # Another error in the same log may be what the worker died of.
        confidence=0.5 if wreckage.roots(but=[FAULT.slug, "python-exception"]) else 0.75,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what="data worker"),
        fix="use fewer such workers (num_proc, num_workers, nnUNet_n_proc_DA); run once with a "
        "single one to see the error where it happens",
        next="dmesg -T | grep -iE 'oom|killed|segf'; df -h /dev/shm",
        unknown=["why it died: see its own lines further up, if it wrote any"],
    )


def _fix_for(signal: str) -> str:
    if signal == "Bus error":
        return "enlarge /dev/shm (`--shm-size=8g`, `--ipc=host`), or use fewer workers"
    if signal == "Killed":
        return (
            "use less memory: fewer workers, a smaller prefetch_factor, no dataset copied into "
            "each worker; or raise the limit (docker --memory, Slurm --mem, limits.memory)"
        )
    return "run once with num_workers=0 to see the error where it happens"


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def kill_a_loader_worker(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"SIGKILL to a DataLoader worker of rank {rehearsal.rank} {rehearsal.when}",
        act=KillLoaderWorker(),
        then=Then.RESTARTS,
        # For a batch that it had sent already torch raises ConnectionResetError, and nothing says
        # by whom it was to be handed over.
        slugs=(FAULT.slug, "python-exception"),
    )
