"""The same failure comes back at the same step.

What you see   The job restarts, runs to the same step and falls in the same way, until the
               restarts are used up: hours of machine time for one bug.
Why            A restart cures what comes from outside: a killed rank, a flaky link. It does not
               cure a bug, a bad record in the data, or too little memory for a certain batch:
               these wait at the same place.
How to be sure holdfast compares how the attempts ended: the same fault on the same ranks after the
               same number of steps, twice in a row. An attempt that got on for ten minutes counts
               as progress: then it is chance, and the job goes on.
Fix            Repair what the verdict of the last attempt names. `holdfast explain` on the run
               folder shows both attempts.
Sources        https://docs.pytorch.org/docs/stable/elastic/run.html (max-restarts counts all alike)
               https://github.com/pytorch/pytorch/issues/60910
               https://github.com/pytorch/pytorch/issues/108158
               nvidia-resiliency-ext fault_tolerance: no-progress stop
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs import blame, own_errors
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Failure, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD906", slug="restart-loop", traits=RunTraits(priority=640, from_history=True)
)

PROGRESS = 600.0
"""seconds an attempt must have got on to count as progress"""


@FAULT.run
def the_last_two_attempts_ended_alike(scene: Scene) -> Verdict | None:
    if len(scene.failures) < 2:
        return None
    before, last = scene.failures[-2:]
    if not alike(before, last):
        return None
    ranks = f" on {text.ranks(last.ranks)}" if last.ranks else ""
    step = f"after step {last.step}" if last.step else "before the first step"
    return FAULT.verdict(
        f"{last.slug}{ranks} {step}, twice in a row: another restart would end the same way",
        ranks=last.ranks,
        certain=True,
        fatal=True,
        fix=f"`holdfast explain {last.slug}` tells what it is",
        evidence=[Evidence(quote=f"{f.slug} {step}") for f in (before, last)],
    )


def alike(before: Failure, last: Failure) -> bool:
    same = (before.slug, before.ranks, before.step) == (last.slug, last.ranks, last.step)
    return same and last.lasted < PROGRESS


# --- explain -------------------------------------------------------------------------------------

RESTARTING = FAULT.log_pattern(
    "restarting",
    r"[Ww]orker group FAILED\. (?P<left>\d+)/(?P<of>\d+) attempts left"
    r"|(?P<again>CrashLoopBackOff|Back-off restarting failed container)",
    anchors=("orker group FAILED", "CrashLoopBackOff", "Back-off restarting failed"),
    example="[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
    role=Role.CONFIRMATION,
)
ENOUGH = 2


@FAULT.explain
def it_failed_alike_again_and_again(wreckage: Wreckage) -> Diagnosis | None:
    """Beneath whatever it is that comes back: restarts do not cure it."""
    seen = wreckage.seen(RESTARTING)
    backing_off = [s for s in seen if "again" in s.fields]
    again = sum(s.count for s in seen)
    same = [r for r in wreckage.raised if own_errors.tells_a_cause(r)]
    kinds = {(r.kind, r.text[:60]) for r in same}
    repeated = again >= ENOUGH and len(same) >= ENOUGH and len(kinds) == 1
    if not repeated and not backing_off:
        return None
    what = f"with {same[0].kind} each time" if same and repeated else "each time"
    return FAULT.diagnosis(
        f"the job was restarted {again} times and failed {what}: a restart does not cure it",
        confidence=0.5 if backing_off and not blame.of(wreckage).explained else 0.4,
        seen=seen,
        culprit=Culprit(),
        fix="repair what the first of these failures shows; the later ones repeat it. Give "
        "`holdfast explain` the log of the first attempt alone",
        unknown=("at which step each attempt ended, unless the logs of all are here",),
    )
