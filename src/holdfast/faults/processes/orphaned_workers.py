"""Ranks keep running without their launcher.

What you see   After a job 'ended', its processes still use CPU and GPU memory; the next launch
               finds a taken port, full GPUs, or slow machines.
Why            A launcher that is killed by SIGKILL, by the OOM killer, or with its terminal does
               not end its ranks: the kernel reparents them to pid 1 (or another reaper), where they
               wait in a collective that will never complete. torch.multiprocessing.spawn asks the
               kernel for a signal when the parent dies; torchrun, for scripts, does not.
How to be sure `ps -o pid,ppid,etime,cmd -p PID`: the parent is 1. Their environment
               (`/proc/PID/environ`) still names the run: TORCHELASTIC_RUN_ID, RANK.
Fix            End them by pid: `kill PID`, after some seconds `kill -9 PID`. To prevent it, run the
               job inside something that ends with it: a systemd scope, a Slurm step, a container.
               `holdfast run` asks the kernel to end its ranks with it, ends processes they had
               detached when an attempt fails, and ends the leftovers of its own earlier run.
Known limits   `check` sees orphans by the variables in their environment; processes of other users,
               or with a cleared environment, are not recognized. It never ends a process itself.
Sources        torch/multiprocessing/spawn.py: PR_SET_PDEATHSIG
               https://man7.org/linux/man-pages/man2/prctl.2.html
               https://man7.org/linux/man-pages/man2/wait.2.html: who adopts orphans
               torch/distributed/elastic/multiprocessing/api.py: children end on the agent's signals
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import phrases
from holdfast.analysis.machine import MachineFacts, Orphan, PortFacts, known, port_evidence
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD707",
    slug="orphaned-workers",
    related=("stale-process", "port-in-use", "gpu-occupied"),
    traits=RunTraits(priority=500, whole_job=True),
)


@FAULT.check(needs=("leftovers", "port"))
def ranks_without_launcher(facts: MachineFacts) -> Finding:
    orphans = known(facts.leftovers).orphans
    if not orphans:
        return FAULT.ok("no training process without its launcher")
    pids = " ".join(str(orphan.process.pid) for orphan in orphans)
    count = "1 rank keeps" if len(orphans) == 1 else f"{len(orphans)} ranks keep"
    evidence = [_orphan_evidence(orphan) for orphan in orphans]
    blocking = port_evidence.orphans_on_port(facts) if isinstance(facts.port, PortFacts) else []
    if blocking:
        report = FAULT.error if facts.plan.port_named else FAULT.warning
        holders = text.numbers(orphan.process.pid for orphan in blocking)
        return report(
            f"{count} running without a launcher, and pid {holders} holds port {facts.plan.port}",
            reason="leftovers of a job that is over; this job's store cannot listen on the port",
            evidence=evidence,
            fix=f"if they are yours: `kill {pids}`",
        )
    return FAULT.warning(
        f"{count} running without a launcher",
        reason="leftovers of a job that is over still use CPU, GPU memory and ports",
        evidence=evidence,
        fix=f"if they are yours: `kill {pids}`",
    )


def _orphan_evidence(orphan: Orphan) -> Evidence:
    rank = "" if orphan.rank is None else f"rank {orphan.rank} "
    run = f"of run {orphan.run_id}" if orphan.run_id else "of an unnamed run"
    return Evidence(
        quote=f"{rank}{run}: {orphan.process.description}; {orphan.sign}",
        source=f"/proc/{orphan.process.pid}/environ",
        rank=orphan.rank,
    )


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def child_outlived_rank(scene: Scene) -> Verdict | None:
    """No rank is to blame: detached helpers are common, and they were ended."""
    if not scene.outlived:
        return None
    what_happened = text.plural(
        [p.pid for p in scene.outlived], "it and was ended", "their ranks and were ended"
    )
    return FAULT.verdict(
        f"{phrases.children(scene.outlived)} outlived {what_happened}",
        ranks=[],
        certain=False,
        fix="no action needed; ranks that end their own helpers restart faster",
        evidence=[
            Evidence(
                quote=f"{p.name} (pid {p.pid}) was running after its rank had exited", rank=p.rank
            )
            for p in scene.outlived[: phrases.MOST]
        ],
    )
