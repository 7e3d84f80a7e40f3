"""What happens between lab hosts: paths that lose packets, partitions, firewalls."""

from __future__ import annotations

from holdfast.analysis.drill.network_acts import BlockPort, BreakPath, SplitNetwork
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.lab_stage import ENDPOINT_PORT, host_of, lab_of, start_where_none_runs
from holdfast.drill.stage import Stage

CUT_OFF_ENDS = 15.0
"""seconds for a launcher that hears nothing"""
_PASSES = ("ct state established,related accept", "iifname lo accept", "ip protocol icmp accept")


@carries_out(BreakPath)
class PathCarrier(Carrier):
    def inject(self, act: BreakPath, stage: Stage) -> None:
        first, second = (host_of(stage, name) for name in act.ends)
        link = lab_of(stage).link(first, second)
        to = second if act.one_way else None
        if act.how == "loss":
            link.loss(act.amount, to=to)
        elif act.how == "mtu":
            link.mtu(act.amount, to=to)
        else:
            link.drop(to=to)
        stage.release()

    def lift(self, act: BreakPath, stage: Stage) -> None:
        first, second = (host_of(stage, name) for name in act.ends)
        lab_of(stage).link(first, second).restore()
        # one that was not heard any more ends; where some packets pass, none does
        start_where_none_runs(stage, act.ends, seconds=CUT_OFF_ENDS if act.how == "drop" else 0.0)


@carries_out(SplitNetwork)
class PartitionCarrier(Carrier):
    def inject(self, act: SplitNetwork, stage: Stage) -> None:
        stage.lost.update(name for group in act.groups[1:] for name in group)
        lab_of(stage).partition(*([host_of(stage, name) for name in one] for one in act.groups))
        stage.release()

    def lift(self, act: SplitNetwork, stage: Stage) -> None:
        lab_of(stage).restore()
        apart = [name for group in act.groups[1:] for name in group]
        stage.lost.difference_update(apart)
        start_where_none_runs(stage, apart)


@carries_out(BlockPort)
class FirewallCarrier(Carrier):
    def prepare(self, act: BlockPort, stage: Stage) -> None:
        verdict = "drop" if act.answer == "drop" else "reject with icmpx admin-prohibited"
        meeting = f"tcp dport {ENDPOINT_PORT}"
        rules = (
            (f"{meeting} {verdict}",)
            if act.blocked == "endpoint"
            else (*_PASSES, f"{meeting} accept", verdict)
        )
        host_of(stage, act.host).firewall(*rules)
        stage.checks_first = True

    def lift(self, act: BlockPort, stage: Stage) -> None:
        host_of(stage, act.host).firewall()
