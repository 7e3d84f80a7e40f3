"""What a launcher sees at the place where it is to meet the coordinator, in words; pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from holdfast import text
from holdfast.analysis.machine import addresses
from holdfast.nodes.channel_errors import endpoint
from holdfast.nodes.reach.meeting import MeetingPlan

Answered = Literal["", "holdfast", "torch's store", "something else"]
UNREACHABLE = ("EHOSTUNREACH", "ENETUNREACH")


class MeetingSight(NamedTuple):
    """One look; the errno's name is that of the last address that was tried."""

    resolved: tuple[str, ...] = ()
    resolve_error: str = ""
    error: str = ""
    """'' when a connect got through"""
    answered: Answered = ""
    no_neighbour: bool = False
    """nothing answered ARP or neighbour discovery for it"""


class SightWords(NamedTuple):
    sentence: str
    hint: str
    slug: str = ""
    """of the fault that it is; '' where it may have another cause"""


def in_words(plan: MeetingPlan, sight: MeetingSight, *, own: Collection[str]) -> SightWords:
    where = endpoint(plan.host, plan.port)
    at = ", ".join(sight.resolved)
    place = where if at in (plan.host, "") else f"{where} ({at})"
    if sight.resolve_error:
        return SightWords(
            f"{plan.host} ({plan.host_source}) does not resolve on this node: "
            f"{sight.resolve_error}",
            f"see what it resolves to: getent ahosts {plan.host}; or name an address",
            "dns-failure",
        )
    if all(map(addresses.is_loopback, sight.resolved)) and sight.error:
        return SightWords(
            f"{plan.host} ({plan.host_source}) is {at} here, which is this machine itself, and "
            f"nothing listens there at port {plan.port}",
            "start node 0 on this machine, or name node 0 by an address that this node can reach, "
            f"in place of {plan.host}",
            "hostname-misresolves",
        )
    if not sight.error:
        return _answers(place, sight.answered, plan)
    return _unanswered(place, plan, sight, own)


def _answers(place: str, answered: Answered, plan: MeetingPlan) -> SightWords:
    if answered == "torch's store":
        return SightWords(
            f"a store of torch listens at {place}, not holdfast: torchrun, or a training that was "
            "started without holdfast, has that port",
            "start all nodes with `holdfast run`, or choose another port on every node",
            "foreign-job-on-port",
        )
    return SightWords(
        f"something listens at {place}, and it is not holdfast",
        f"see what it is, on that machine: ss -ltnp 'sport = :{plan.port}'; or choose another port "
        "on every node",
        "port-in-use",
    )


def _unanswered(
    place: str, plan: MeetingPlan, sight: MeetingSight, own: Collection[str]
) -> SightWords:
    host = sight.resolved[0] if sight.resolved else plan.host
    start = f"start `holdfast run` on {plan.host}, with this very address and port"
    if sight.error == "ECONNREFUSED":
        seen = f"{place} refuses connections: that machine is up, and no launcher listens there yet"
        hint, slug = start, "master-not-listening"
    elif sight.error in UNREACHABLE or sight.no_neighbour:
        seen = f"no machine answers at {place} ({_reason(sight)})"
        hint = f"is this the address of a node? see the way to it: ip route get {host}"
        slug = "wrong-master-address"
    elif sight.error == "ETIMEDOUT":
        seen = (
            f"nothing comes back from {place}: a firewall drops it, or no machine has this address"
        )
        hint = f"on {plan.host} let port {plan.port} in (`sudo nft list ruleset`), then {start}"
        slug = "peer-unreachable"
    else:
        seen, hint, slug = f"cannot connect to {place}: {sight.error}", start, ""
    if plan.by_address:
        mine = text.names(sorted(ip for ip in own if _counts(ip))) or "none"
        seen += f"; none of this node's addresses ({mine}) is {host}"
        hint += "; if this machine is meant (NAT), start it with --rdzv-conf is_host=1"
    return SightWords(seen, hint, slug)


def _reason(sight: MeetingSight) -> str:
    if sight.error == "ENETUNREACH":
        return "no route to that network"
    return "no neighbour answers for it" if sight.no_neighbour else "no route to host"


def _counts(ip: str) -> bool:
    return not (addresses.is_loopback(ip) or addresses.is_link_local(ip))
