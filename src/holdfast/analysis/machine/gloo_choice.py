"""The addresses Gloo takes inside torch.

Read from pytorch/gloo gloo/transport/tcp/device.cc (lookupAddrForIface, lookupAddrForHostname) and
torch's ProcessGroupGloo.cpp (createDefaultDevice); compared with torch 2.13. With
GLOO_SOCKET_IFNAME: one device for each name, the first of its addresses, whether the interface
runs or not. Without: the first address of gethostname() that can be bound, loopback included and
without a warning; 127.0.0.1 with a warning where none can.
"""

from __future__ import annotations

from holdfast.analysis.machine import Interface, MachineFacts, addresses, known, nic_filter
from holdfast.analysis.machine.interface_choice import (
    ChoiceRule,
    InterfaceChoice,
    Passed,
    Taken,
    listed,
)

LIBRARY = "Gloo"
FALLBACK = "127.0.0.1"
EMPTY_NAME = "interface or hostname can't be empty"
"""what torch says of `eth0,,eth1`"""


def choose(facts: MachineFacts) -> InterfaceChoice:
    """What Gloo binds, and so what it announces to the other ranks."""
    setting = facts.setting(nic_filter.GLOO)
    if setting is None or nic_filter.is_ignored(setting.value):
        return by_own_name(facts)
    return _by_names(known(facts.interfaces), setting.value)


def _by_names(interfaces: tuple[Interface, ...], value: str) -> InterfaceChoice:
    names = nic_filter.read_gloo(value)
    first: dict[str, Taken] = {}
    for entry in listed(interfaces):
        first.setdefault(entry.name, entry.taken)
    missing = [name for name in names if name not in first]
    error = ""
    if missing:
        words = f"Unable to find address for: {missing[0]}" if missing[0] else EMPTY_NAME
        error = f"`{words}`"
    return InterfaceChoice(
        library=LIBRARY,
        taken=() if error else tuple(first[name] for name in names),
        passed=tuple(
            Passed(name=one.name, why=_why_not(one, names, value))
            for one in interfaces
            if error or one.name not in names
        ),
        error=error,
        rule=ChoiceRule.NAMED,
        because=f"named by {nic_filter.GLOO}={value}",
    )


def _why_not(interface: Interface, names: tuple[str, ...], value: str) -> str:
    if interface.name not in names:
        return f"not named in {nic_filter.GLOO}={value}"
    return "another name in the list is missing" if interface.addresses else "no address"


def by_own_name(facts: MachineFacts) -> InterfaceChoice:
    """What Gloo takes without GLOO_SOCKET_IFNAME."""
    own, interfaces = known(facts.own_name), known(facts.interfaces)
    rule, because = ChoiceRule.OWN_NAME, f"this machine's own name {own.name} resolves to it"
    for ip in own.addresses:
        carrier = addresses.carrier(interfaces, ip)
        if carrier is not None:
            taken = Taken(name=carrier.name, address=ip)
            break
    else:
        rule = ChoiceRule.FALLBACK
        problem = f"resolves to {', '.join(own.addresses)}" if own.addresses else "does not resolve"
        because = f"own name {own.name} {problem}, and Gloo falls back to loopback with a warning"
        loopback = next((one.name for one in interfaces if one.kind == "loopback"), "lo")
        taken = Taken(name=loopback, address=FALLBACK)
    why = f"Gloo goes by the machine's own name, {own.name}"
    return InterfaceChoice(
        library=LIBRARY,
        taken=(taken,),
        passed=tuple(
            Passed(name=one.name, why=why) for one in interfaces if one.name != taken.name
        ),
        error="",
        rule=rule,
        because=because,
    )
