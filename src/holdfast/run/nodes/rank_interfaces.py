"""Which interface ranks are to use, where Gloo and NCCL would choose a wrong one; pure.

Gloo announces the address of the machine's own name, which many images map to 127.0.1.1; NCCL takes
the first interface in the kernel's order. Both then hang across nodes. The interface by which
launchers reach each other is known to work. What the user set is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from holdfast.analysis.machine import (
    CouldNotLook,
    Interface,
    MachineFacts,
    Setting,
    Unread,
    addresses,
    gloo_choice,
    known,
    nccl_choice,
    nic_filter,
)
from holdfast.analysis.machine.interface_choice import ChoiceRule, InterfaceChoice

ORIGIN = "holdfast run"


class InterfaceRemark(NamedTuple):
    words: str
    slug: str = ""
    """of the fault that is got around"""


class RankInterfaces(NamedTuple):
    settings: Mapping[str, str] = {}
    remarks: tuple[InterfaceRemark, ...] = ()


def choose(facts: MachineFacts, own_address: str) -> RankInterfaces:
    """What ranks are given; `own_address` is the one by which other nodes reach this one."""
    try:
        interfaces = known(facts.interfaces)
        towards = addresses.carrier(interfaces, own_address)
        if towards is None or towards.kind == "loopback":
            return RankInterfaces()
        return _joined(_gloo(facts, towards), _nccl(facts, towards))
    except CouldNotLook:
        return RankInterfaces()


def with_settings(facts: MachineFacts, chosen: Mapping[str, str]) -> MachineFacts:
    """The facts as they are for the ranks."""
    if not chosen or isinstance(facts.settings, Unread):
        return facts
    added = tuple(Setting(name=n, value=value, origin=ORIGIN) for n, value in chosen.items())
    return msgspec.structs.replace(facts, settings=(*facts.settings, *added))


def _gloo(facts: MachineFacts, towards: Interface) -> RankInterfaces:
    choice = gloo_choice.choose(facts)
    if choice.rule is ChoiceRule.NAMED:
        return _contradiction(nic_filter.GLOO, facts, choice, towards)
    taken = choice.taken[0]
    if taken.name == towards.name:
        return RankInterfaces()
    reason = f"Gloo would announce {taken.address} ({choice.because})"
    misresolves = choice.rule is ChoiceRule.OWN_NAME and addresses.is_loopback(taken.address)
    slug = "hostname-misresolves" if misresolves else ""
    return _set(nic_filter.GLOO, towards.name, towards, reason, slug)


def _nccl(facts: MachineFacts, towards: Interface) -> RankInterfaces:
    if not known(facts.accelerators):
        return RankInterfaces()
    choice = nccl_choice.bootstrap(facts)
    if choice.rule is ChoiceRule.NAMED:
        return _contradiction(nic_filter.NCCL, facts, choice, towards)
    if choice.error or choice.rule in (ChoiceRule.COMM_ID, ChoiceRule.IB_FIRST):
        return RankInterfaces()
    taken = choice.taken[0]
    if taken.name == towards.name:
        return RankInterfaces()
    reason = f"NCCL would take {taken.name} ({choice.because})"
    return _set(nic_filter.NCCL, f"={towards.name}", towards, reason)


def _set(name: str, value: str, towards: Interface, reason: str, slug: str = "") -> RankInterfaces:
    words = (
        f"ranks get {name}={value}: {reason}, and the nodes reach each other by {towards.name}; "
        f"set {name} yourself to choose another"
    )
    return RankInterfaces({name: value}, (InterfaceRemark(words, slug),))


def _contradiction(
    name: str, facts: MachineFacts, choice: InterfaceChoice, towards: Interface
) -> RankInterfaces:
    """Another network for the data is fine; loopback, or nothing at all, is not."""
    setting = facts.setting(name)
    if setting is None:
        return RankInterfaces()
    said = f"{name}={setting.value} (set by you)"
    if choice.error:
        words = f"{said} matches no usable interface"
    elif all(addresses.is_loopback(taken.address) for taken in choice.taken):
        words = f"{said} is loopback, which no other node can reach"
    else:
        return RankInterfaces()
    remark = InterfaceRemark(f"{words}; the nodes reach each other by {towards.name}")
    return RankInterfaces({}, (remark,))


def _joined(*parts: RankInterfaces) -> RankInterfaces:
    return RankInterfaces(
        {name: value for part in parts for name, value in part.settings.items()},
        tuple(remark for part in parts for remark in part.remarks),
    )
