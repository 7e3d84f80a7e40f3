"""What `holdfast run` must know of a fault beside its faces."""

from __future__ import annotations

import msgspec


class RunTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What `holdfast run` must know of a fault to choose among several that it notices."""

    priority: int
    """of two equally certain verdicts the lower one is taken. 100 told to stop, 200 what ended a
    rank, 300 ranks that can never meet, 400 ranks that are late, 500 after the ranks have exited,
    600 news that stops nothing"""
    needs_stall: bool = False
    """read from positions, which in a running job are torn and change by the millisecond"""
    needs_steps: bool = False
    """only while steps continue: when nothing moves it is something else"""
    never_acts: bool = False
    """always a notice, whatever the patience"""
    survives_steps: bool = False
    """a new step does not refute it"""
    is_news: bool = False
    """from what the ranks themselves report: said once an attempt, while the job runs on"""
    no_culprit: bool = False
    """it explains a delay without a culprit, so no rank is to be named"""
    told_to_stop: bool = False
    """the order came from outside and may not wait; there is no cause to look for"""
    general: bool = False
    """a name for 'it ended' or 'it does not come', whatever the reason: a fault with a log line
    of its own is the better name"""
    about_nodes: bool = False
    """it may speak of nodes that are not heard, and is asked once of the whole job; any other fault
    is asked without their ranks, and does nothing to the job while a node is late"""
    whole_job: bool = False
    """asked once of all ranks; any other fault is asked of each world of the job for itself"""
    notice_name: str = ""
    """what a notice is called on the screen, where the slug would claim more than is known"""
    blocks_start: bool = False
    """the next start fails the same way until it is put right: whatever ended the job before, this
    is what its user has to do first"""
    from_history: bool = False
    """judged from earlier attempts when a restart is decided, not from what is happening now"""
