"""What an elected launcher is for a time: the coordinator with its watch, or a member with its."""

from __future__ import annotations

import math
import signal
import threading
import time

from holdfast.analysis.scene import attempt_start
from holdfast.nodes.clock_exchange import boot_time
from holdfast.nodes.etcd.election import must_step_down
from holdfast.nodes.etcd.elector import Elector, Say
from holdfast.run.nodes.coordination import Coordination
from holdfast.run.nodes.link.fencing import OWN_ENDING, SHORT_LEASE
from holdfast.run.nodes.link.interface import CoordinatorLost, LauncherLink
from holdfast.run.nodes.member_watch import MemberWatch
from holdfast.run.nodes.membership import Fence, Membership
from holdfast.run.nodes.messages import EndRound
from holdfast.run.nodes.round_source import OpenStore, RoundPlace, ToldToEnd
from holdfast.run.nodes.takeover import CarriedJob, fence_after_election, may_hand_over
from holdfast.run.watch.watch import Watch

LONGEST_PROOF = SHORT_LEASE.lease.lost
"""seconds; also where no other node is in the round: the next one may have some"""


class ElectedMembership(Membership):
    """Whether the coordinator is lost is not its business: then there is another one."""

    def lost(self) -> CoordinatorLost | None:
        return None

    @property
    def is_over(self) -> bool:
        """By the coordinator's word."""
        return self._over


class MemberRole:
    def __init__(
        self, link: LauncherLink, membership: ElectedMembership, watch: MemberWatch, *, say: Say
    ) -> None:
        self._link, self._membership, self._say = link, membership, say
        self.rounds, self.watch = membership, watch

    def over(self) -> str:
        lost = self._link.lost()
        if lost:
            self.watch.last_orders()
        if lost is None or self._membership.is_over:
            return ""
        return f"the coordinator {self._link.coordinator} is lost: {lost.words}"

    def say_over(self, why: str, action: str) -> None:
        if (lost := self._link.lost()) and self._membership.place:
            self.watch.say_who_is_lost(lost, action=action, last=False)
        else:
            self._say(f"{why}; {action}")

    def hand_over(self, sign: signal.Signals) -> bool:
        del sign  # the coordinator decides
        return False

    def own_address(self, place: RoundPlace) -> str:
        del place
        return self._link.own_address

    def carried(self) -> CarriedJob | None:
        return None

    def close(self) -> None:
        self._membership.close()


class CoordinatorLease:
    """Until when no other node can have been elected: by the word of etcd, or because all nodes of
    the round hear this one. Once it is over it stays so: its ranks and its link end with it, even
    where etcd then takes this node back."""

    def __init__(self, fence: Fence) -> None:
        self._extend = fence.extend
        self._lock = threading.Lock()
        self._until = -math.inf

    def until(self) -> float:
        with self._lock:
            return self._until

    def is_over(self) -> bool:
        return -math.inf < self.until() <= boot_time()

    def proven_until(self, at: float) -> None:
        """By CLOCK_BOOTTIME; from the elector's thread, and from the agent's."""
        with self._lock:
            lapsed = -math.inf < self._until <= boot_time()
            if at > self._until and not lapsed:
                self._until = at
                self._extend(at + OWN_ENDING)


class CoordinatorRole:
    def __init__(
        self,
        elector: Elector,
        coordination: Coordination,
        watch: Watch,
        *,
        took_over: bool,
        least: int,
        fence: Fence,
        say: Say,
    ) -> None:
        self._elector, self._coordination, self._say = elector, coordination, say
        self.lease = CoordinatorLease(fence)
        elector.tell_proof(self.lease.proven_until)
        self._least = least
        self._leaving = ""
        self._elected_at = time.monotonic() if took_over else -math.inf
        self.rounds, self.watch = self, watch

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        while told() is None and time.monotonic() - self._elected_at < self._fence():
            self._coordination.look(time.monotonic())  # launchers join meanwhile
            time.sleep(0.1)
        return self._coordination.next_round(open_store, told)

    def _fence(self) -> float:
        before = self._coordination.round()
        return fence_after_election(
            self._coordination.not_joined(), coordinator=before.store_node if before else ""
        )

    def over(self) -> str:
        if self.lease.is_over():
            return "this node did not run, or was cut off, for so long that another may be elected"
        states = self._coordination.states()
        missing = [n for n, s in states.items() if s.hearing == "lost" and s.farewell != "left"]
        if not must_step_down(
            overruled=bool(self._elector.overruled),
            unproven=self._elector.unproven(),
            member_missing=bool(missing),
        ):
            if not (missing or self._elector.overruled):
                heard_for = min(self._coordination.heard_until() - time.monotonic(), LONGEST_PROOF)
                self.lease.proven_until(boot_time() + heard_for)
            return ""
        if self._elector.overruled:
            return f"{self._elector.overruled} was elected while this node was cut off from etcd"
        return (
            f"neither {', '.join(missing)} nor etcd can be reached: another node may have been "
            "elected"
        )

    def say_over(self, why: str, action: str) -> None:
        self._say(f"{why}; {action}")

    def hand_over(self, sign: signal.Signals) -> bool:
        """All ranks save and end; then the others go on without this node, if they are enough."""
        start, others = self._coordination.round(), self._coordination.states().values()
        heard = sum(state.hearing == "heard" and state.told is None for state in others)
        left, policy = self.carried(), self.watch.policy
        if start is None or sign is signal.SIGINT:
            return False
        if not may_hand_over(left, policy, others=heard, least=self._least):
            return False
        self.watch.stop_signal = sign.name
        self._leaving = f"{self.watch.observer.host} was told to stop ({sign.name})"
        told = f"{self._leaving}: saving, then another node coordinates"
        self._say(told)
        self._coordination.say([told])
        order = EndRound(round=start.round, action="restart", reason=told)
        self._coordination.end_round(order)
        return True

    def own_address(self, place: RoundPlace) -> str:
        return place.address

    def carried(self) -> CarriedJob:
        account = self.watch.observer.events.account
        return CarriedJob(
            newest=self._coordination.round(),
            restarts=self.watch.restarts,
            failures=self.watch.failures,
            resumes=attempt_start.can_resume(account),
            script_saved=account.script_saved,
            step=account.base + self.watch.progress.steps,
            saved=self.watch.observer.newest_save(),
            leaving=self._leaving,
        )

    def close(self) -> None:
        self._coordination.close()
