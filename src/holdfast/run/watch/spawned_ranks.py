"""Processes that a rank started itself and that form the group of the job (`mp.spawn`).

The process that the launcher started only waits for them: they stand in for it in the scene, as
ranks by their number in their group, as long as all of them live. What ends the job is its end,
never theirs: a script may take note of a child that failed, and continue.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.rank import heartbeat_page
from holdfast.rank.delivery import member_file
from holdfast.run.launch import terminate
from holdfast.run.watch.rank_state import ObservedRank


def look(parent: ObservedRank, now: float) -> None:
    """Find them, and read their pages."""
    for number, page in heartbeat_page.members(parent.page).items():
        pid = heartbeat_page.writer(page)
        known = parent.members.get(number)
        if known is None or known.pid != pid:
            parent.members[number] = _member(parent, number, pid, page, now)
        else:
            page.release()
    for member in parent.members.values():
        member.read_page(now)


def _member(
    parent: ObservedRank, number: int, pid: int, page: memoryview, now: float
) -> ObservedRank:
    return ObservedRank(
        rank=number,
        local_rank=parent.local_rank,
        pid=pid,
        host=parent.host,
        page=page,
        words_file=member_file(parent.words_file, number),
        stderr_file=parent.stderr_file,
        stderr_tail=parent.stderr_tail,
        socket=member_file(parent.socket, number),
        started_at=now,
    )


def release(parent: ObservedRank) -> None:
    """A page cannot be closed while a part of it is in use."""
    for member in parent.members.values():
        assert isinstance(member.page, memoryview)
        member.page.release()
    parent.members.clear()


def standing_in(ranks: Sequence[ObservedRank]) -> list[ObservedRank]:
    """The ranks of the job: those started by the launcher, or those that its only one started.

    Where several ranks start their own, numbers mean nothing: the launcher's remain.
    """
    if len(ranks) != 1 or not ranks[0].members:
        return list(ranks)
    parent, members = ranks[0], ranks[0].members
    in_a_group = parent.beat is not None and parent.beat.claim is not None
    if in_a_group or parent.death or not all(map(_runs, members.values())):
        return list(ranks)
    return [members[number] for number in sorted(members)]


def _runs(member: ObservedRank) -> bool:
    leaving = member.beat is None or bool(member.beat.leaving_at)
    return not leaving and not terminate.is_leaving(member.pid)
