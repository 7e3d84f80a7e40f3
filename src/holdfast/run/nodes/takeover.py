"""What a coordinator leaves to the next one, and whether the job may go on with it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from holdfast.analysis.scene.checkpoints import ScriptSaved
from holdfast.analysis.scene.scene import Failure, Policy
from holdfast.nodes.etcd import election, elector
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.messages import RoundStart
from holdfast.run.watch import restart
from holdfast.run.watch.restart import Restart

SLUG = "store-host-lost"
UNDER_WAY = 3.0
"""seconds that a sign of life may take to the coordinator before, and until the next one is sent"""
COORDINATOR_FENCE = fencing.SHORT_LEASE.gone_after - election.LEASE + elector.RENEW_EVERY
"""seconds after an election within which the ranks of the coordinator before have ended. Either it
has not reached etcd for a lease; or it lost us within a moment of our loss of it, and has only
to learn that"""
SILENT_FENCE = fencing.SHORT_LEASE.gone_after + UNDER_WAY
"""the same for any other node of the round before, of which nothing is heard: that coordinator may
have confirmed its lease until its own was over"""


class CarriedJob(msgspec.Struct, frozen=True, kw_only=True):
    newest: RoundStart | None = None
    restarts: int = 0
    failures: tuple[Failure, ...] = ()
    resumes: bool = False
    """something was seen that resumes the job"""
    script_saved: ScriptSaved | None = None
    step: int = 0
    """that it had come to, a few seconds ago; 0 may be 'unknown'"""
    saved: str = ""
    """the newest checkpoint"""
    leaving: str = ""
    """why the coordinator hands over by itself; '' while it does not"""

    def plain(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def carried_job(document: Mapping[str, Any]) -> CarriedJob:
    """Empty before the first round."""
    return msgspec.convert(dict(document), CarriedJob)


def fence_after_election(unheard: Collection[str], *, coordinator: str) -> float:
    """Seconds from the election until the next round may start. `unheard`: nodes of the round
    before that have not joined; `coordinator`: the one of that round."""
    return SILENT_FENCE if set(unheard) - {coordinator} else COORDINATOR_FENCE


def with_loss(left: CarriedJob) -> CarriedJob:
    """The loss of the coordinator is a failure like any other, and counts as one restart; that it
    was told to stop is none."""
    if left.leaving:
        return left
    lost = Failure(slug=SLUG, ranks=(), step=left.step, lasted=0.0)
    return msgspec.structs.replace(
        left, failures=(*left.failures, lost), restarts=left.restarts + 1
    )


def may_continue(left: CarriedJob, policy: Policy) -> Restart:
    """`left` with the loss in it."""
    if left.leaving:  # by its own decision, which is below
        return Restart(True, f"{left.leaving} (not counted)")
    if not policy.max_restarts:
        return Restart(False, "stopping (--max-restarts is 0)")
    if not policy.restarts_typed and not left.resumes:
        return Restart(False, restart.no_resume(left.script_saved))
    return restart.within_budget(left.failures, policy)


def may_hand_over(left: CarriedJob, policy: Policy, *, others: int, least: int) -> bool:
    """Whether a coordinator that is told to stop leaves the job to the `others` that are heard."""
    resumes = policy.max_restarts > 0 if policy.restarts_typed else left.resumes
    return resumes and others >= least
