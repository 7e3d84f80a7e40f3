"""Some ranks never join.

What you see   Nothing, for minutes: the ranks that came wait in silence. Then `DistStoreError:
               Timed out … 3/4 clients joined`, `wait timeout after …ms`, or torchrun's
               `RendezvousTimeoutError`, always on the ranks that did come.
Why            init_process_group returns when WORLD_SIZE ranks have joined, and not before. A rank
               that died while importing, was killed, was stopped, or was never started keeps all
               others waiting until their clock runs out, and it is their message you read.
How to be sure Count the processes, and look at the first one that is gone, not at the one that
               complains: its own log, its exit code, `dmesg` for a kill by the kernel. On one
               machine `holdfast check --smoke` starts the ranks itself and names the one that did
               not come.
Fix            Repair that rank. Exit code 0 or 1: read its first lines (an import, a
               sitecustomize, an argument). SIGKILL: look for memory. State T: `kill -CONT PID`.
               Never started: does the launcher's count agree with WORLD_SIZE?
Sources        pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp: waitForWorkers
               https://docs.pytorch.org/docs/stable/distributed.html#initialization
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from __future__ import annotations

from holdfast.facts import MachineFacts, Smoke, SmokeRank, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD109", slug="ranks-missing")


@FAULT.foresee
def a_rank_of_the_smoke_test_did_not_come(facts: MachineFacts) -> Finding:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    if failed and failed.cause == FAULT.slug:
        return FAULT.error(
            f"the smoke test missed a rank in stage '{failed.name}'",
            reason=f"{failed.reason}; the job's ranks would wait for it until their timeout",
            evidence=[_standing(smoke, rank) for rank in smoke.ranks],
            fix="see what ends or holds that rank: the same environment starts the job's ranks",
        )
    if not all(rank.reached for rank in smoke.ranks):
        stage = failed.name if failed else "start"
        return FAULT.skipped(f"the smoke test ended at stage '{stage}', before all ranks were up")
    return FAULT.ok(f"all {smoke.world} ranks of the smoke test came")


def _standing(smoke: Smoke, rank: SmokeRank) -> Evidence:
    if rank.exit_code is None:
        how = "was still running"
    elif rank.exit_code < 0:
        how = f"was ended by signal {-rank.exit_code}"
    else:
        how = f"ended with exit code {rank.exit_code}"
    came = f"finished '{rank.reached}'" if rank.reached else "finished no stage"
    pid = f" pid {rank.pid}" if rank.pid else ""
    return Evidence(
        quote=f"[rank {rank.rank}/{smoke.world}]{pid} {came} and {how}",
        source="smoke test",
        rank=rank.rank,
    )
