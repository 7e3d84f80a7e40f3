"""What happens in a job of a drill at this moment, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.records import RankAttempt
from holdfast.analysis.drill.rehearsal import JobShape


def happens_now(
    attempts: Sequence[RankAttempt],
    said: Sequence[Spoken],
    job: JobShape,
    *,
    injected: float | None,
    now: float,
) -> str:
    """'step 12 of 60', 'fault 3 s ago, not noticed yet', 'named rank-killed after 0.3 s, starting
    again'. `job` has no steps while the undisturbed one runs."""
    newest = max(attempts, key=lambda one: one.began.t, default=None)
    taken = len(newest.steps) if newest else 0
    if injected is None:
        of = f" of {job.steps}" if job.steps else ""
        ranks = text.counted(job.ranks, "rank") if job.steps else "the ranks"
        return f"step {taken}{of}" if taken else f"starting {ranks}"
    named = next((one for one in said if one.t >= injected), None)
    noticed = _noticed(named, injected) if named else f"fault {now - injected:.0f} s ago"
    if newest and newest.began.t > injected:
        return f"{noticed}, " + (
            f"{_steps(taken)} since the restart" if taken else "starting again"
        )
    if newest and newest.steps and newest.steps[-1].t > injected:
        return f"{noticed}, step {taken} of {job.steps}"
    return noticed if named else f"{noticed}, not noticed yet"


def _noticed(named: Spoken, injected: float) -> str:
    return f"named {named.slug or 'by the launcher'} after {named.t - injected:.1f} s"


def _steps(count: int) -> str:
    return text.counted(count, "step")
