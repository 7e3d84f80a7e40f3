"""The same failure recurs at the same step.

What you see   The job restarts, runs to the same step and fails the same way, until the restarts
               are used up: hours of machine time for one bug.
Why            A restart helps against causes from outside: a killed rank, a flaky link. It does not
               help against a bug, a bad record in the data, or too little memory for a certain
               batch: these recur at the same place.
How to be sure holdfast compares how the attempts ended: the same fault on the same ranks at the
               same step of the job, twice in a row, however long they lasted. Where no step was
               seen, attempts that lasted about as long count as the same.
Fix            Fix what the verdict of the last attempt names. `holdfast explain` on the run folder
               shows both attempts.
Known limits   A failure that moves by one step, or to another rank, counts as different. From logs
               alone the step of each attempt is not known.
Sources        https://docs.pytorch.org/docs/stable/elastic/run.html (max-restarts counts all alike)
               https://github.com/pytorch/pytorch/issues/60910
               https://github.com/pytorch/pytorch/issues/108158
               nvidia-resiliency-ext fault_tolerance: no-progress stop
               kubernetes-sigs/jobset: pkg/constants/constants.go (ReachedMaxRestartsMessage)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.drill.injection import BreakInside, CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs import blame, own_errors
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Failure, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD906",
    slug="restart-loop",
    related=("max-restarts-zero", "restart-from-zero", "python-exception"),
    traits=RunTraits(priority=640, from_history=True),
)

CLOSE = 30.0
SHARE = 0.1
"""seconds, or share of the longer one, by which two attempts without a step may differ in length
and still count as the same"""
STARTING = 60.0
"""seconds: an attempt that ended within them without a step most likely ended before its first"""


@FAULT.run
def same_failure_twice(scene: Scene) -> Verdict | None:
    if len(scene.failures) < 2:
        return None
    before, last = scene.failures[-2:]
    if not same_failure(before, last):
        return None
    ranks = f" on {text.ranks(last.ranks)}" if last.ranks else ""
    step = _when(last)
    return FAULT.verdict(
        f"{last.slug}{ranks} {step}, twice in a row: another restart would end the same way",
        ranks=last.ranks,
        certain=True,
        fatal=True,
        fix=f"see what it is and how to fix it: `holdfast explain {last.slug}`",
        evidence=[Evidence(quote=f"{f.slug} {step}") for f in (before, last)],
    )


def same_failure(before: Failure, last: Failure) -> bool:
    if (before.slug, before.ranks, before.step) != (last.slug, last.ranks, last.step):
        return False
    longer = max(before.lasted, last.lasted)
    return bool(last.step) or abs(before.lasted - last.lasted) <= max(CLOSE, SHARE * longer)


def _when(failure: Failure) -> str:
    if failure.step:
        return f"after step {failure.step}"
    if failure.lasted < STARTING:
        return "before the first step"
    return f"after {text.elapsed(failure.lasted)} without a step that could be seen"


# --- explain -------------------------------------------------------------------------------------

RESTARTING = FAULT.log_pattern(
    "restarting",
    r"[Ww]orker group FAILED\. (?P<left>\d+)/(?P<of>\d+) attempts left"
    r"|(?P<again>CrashLoopBackOff|Back-off restarting failed container"
    # JobSet, Kubernetes' Job, NVRx.
    r"|jobset failed due to reaching max number of restarts"
    r"|Job has reached the specified backoff limit"
    r"|Progress tracker detected no progress across restarts)",
    anchors=(
        *("orker group FAILED", "CrashLoopBackOff", "Back-off restarting failed"),
        *("due to reaching max number of restarts", "reached the specified backoff limit"),
        "detected no progress across restarts",
    ),
    example="[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
    role=Role.CONFIRMATION,
)
MINIMUM_RESTARTS = 2


@FAULT.explain
def same_failure_in_log(wreckage: Wreckage) -> Diagnosis | None:
    """Reported with low confidence: the recurring failure itself is the better answer."""
    seen = wreckage.seen(RESTARTING)
    backing_off = [s for s in seen if "again" in s.fields]
    restarts = sum(s.count for s in seen)
    same = [r for r in wreckage.raised if own_errors.tells_a_cause(r)]
    kinds = {(r.kind, r.text[:60]) for r in same}
    repeated = restarts >= MINIMUM_RESTARTS and len(same) >= MINIMUM_RESTARTS and len(kinds) == 1
    if not repeated and not backing_off:
        return None
    what = f"with {same[0].kind} each time" if same and repeated else "each time"
    return FAULT.diagnosis(
        f"the job was restarted {restarts} time{'' if restarts == 1 else 's'} and failed {what}: a "
        "restart does not help",
        confidence=0.5 if backing_off and not blame.of(wreckage).explained else 0.4,
        seen=seen,
        culprit=Culprit(),
        fix="fix the first of these failures; the later ones repeat it. Run `holdfast explain` on "
        "the log of the first attempt alone",
        unknown=("at which step each attempt ended",),
    )


# --- drill ---------------------------------------------------------------------------------------


A_WHOLE_ATTEMPT = 600.0
"""seconds in which the second one starts and fails"""


@FAULT.drill()
def raise_in_every_attempt(rehearsal: Rehearsal) -> Injection | CannotInject:
    """Before the first checkpoint: there every attempt begins at the same step."""
    first_saves = rehearsal.job.saved_after[:1]
    step = min([rehearsal.at_step or 1, *(saved - 1 for saved in first_saves)])
    if step < 1:
        return CannotInject("the job saves after its first step, so attempts begin at other steps")
    return Injection(
        does=f"rank {rehearsal.rank} raises an exception at step {step} of every attempt, until "
        "the run ends; then the job is started again",
        act=BreakInside(how="raise", times=2),
        at_step=step,
        then=Then.GIVES_UP,
        beside=("python-exception",),
        notice_within=A_WHOLE_ATTEMPT,
    )
