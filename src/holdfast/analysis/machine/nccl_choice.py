"""The interfaces NCCL takes, by the rules of its version.

Read from NVIDIA/nccl, tags 2.4.8 to 2.30.7: ncclFindInterfaces (src/misc/socket.cc),
ncclOsFindInterfaces (src/os/linux.cc), bootstrapNetInit (src/bootstrap.cc), ncclNetSocketInit
(src/transport/net_socket.cc). The rules changed once, in 2.28.3: only interfaces that are RUNNING
count, and virbr* comes last. The bootstrap takes the first match; it is the address that a rank
announces to the others. The socket transport, and RDMA for its handshake, use the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.machine import (
    CouldNotLook,
    Interface,
    MachineFacts,
    Resolution,
    Software,
    addresses,
    comm_id,
    known,
    nic_filter,
)
from holdfast.analysis.machine.interface_choice import (
    ChoiceRule,
    InterfaceChoice,
    Listed,
    Passed,
    listed,
)
from holdfast.analysis.versions import release

NO_LISTENING_INTERFACE = "No usable listening interface found"
COMM_ID = comm_id.COMM_ID
FAMILY = "NCCL_SOCKET_FAMILY"
NEEDS_RUNNING = (2, 28, 3)
"""from here on carrier-less interfaces are skipped, and virbr* comes last"""
BEFORE_RUNNING, NEWEST = "2.27.7", "2.30.7"
MOST = 16
"""interfaces of the socket transport (MAX_IFS)"""
LAST = {ChoiceRule.DOCKER: "docker", ChoiceRule.LOOPBACK: "lo", ChoiceRule.VIRBR: "virbr"}
"""prefixes that come after all others, in this order; before 2.28.3 virbr was not among them"""
IPV6 = {"AF_INET": False, "AF_INET6": True}
"""the two values that NCCL_SOCKET_FAMILY understands; any other is ignored"""


class NcclSettings(NamedTuple):
    """What NCCL's choice depends on, beside the interfaces."""

    version: str = ""
    """'' when not known: the newest rules are assumed"""
    ifname: str = ""
    family: str = ""
    comm_id: str | None = None
    """None when not set; an empty value is an error to NCCL's bootstrap"""
    resolved: Mapping[str, Sequence[str]] = {}
    """addresses of the names that NCCL_COMM_ID may hold"""

    @property
    def is_new(self) -> bool:
        return (release(self.version) or NEEDS_RUNNING) >= NEEDS_RUNNING

    @property
    def wants_ipv6(self) -> bool | None:
        return IPV6.get(self.family)


class _Search(NamedTuple):
    rule: ChoiceRule
    value: str
    """in the syntax of NCCL_SOCKET_IFNAME"""
    because: str


def settings_of(facts: MachineFacts) -> NcclSettings:
    def value(name: str) -> str | None:
        setting = facts.setting(name)
        return None if setting is None else setting.value

    names = [name for name in (facts.own_name, facts.master_name) if isinstance(name, Resolution)]
    return NcclSettings(
        version=_version(facts),
        ifname=value(nic_filter.NCCL) or "",
        family=value(FAMILY) or "",
        comm_id=value(COMM_ID),
        resolved={name.name: name.addresses for name in names},
    )


def _version(facts: MachineFacts) -> str:
    """'' when the library does not tell, or could not be looked for; without one the newest."""
    if not isinstance(facts.software, Software):
        return ""
    return facts.software.nccl[0].version if facts.software.nccl else NEWEST


def bootstrap(facts: MachineFacts) -> InterfaceChoice:
    """The one address that a rank here announces to the others."""
    return _by_version(facts, settings_of(facts), bootstrap_choice)


def sockets(facts: MachineFacts) -> InterfaceChoice:
    """The interfaces over which data goes where there is no RDMA."""
    return _by_version(facts, settings_of(facts), socket_choice)


def unfiltered(facts: MachineFacts) -> InterfaceChoice:
    """What its bootstrap would take if nothing were set."""
    return _by_version(facts, NcclSettings(version=_version(facts)), bootstrap_choice)


def _by_version(
    facts: MachineFacts,
    settings: NcclSettings,
    choose: Callable[[Sequence[Interface], NcclSettings], InterfaceChoice],
) -> InterfaceChoice:
    interfaces = known(facts.interfaces)
    choice = choose(interfaces, settings)
    if release(settings.version):
        return choice
    older = choose(interfaces, settings._replace(version=BEFORE_RUNNING))
    if older.taken != choice.taken:
        raise CouldNotLook(
            f"NCCL's version is not known: from {'.'.join(map(str, NEEDS_RUNNING))} on it takes "
            f"{_words(choice)}, before {_words(older)}"
        )
    return choice


def _words(choice: InterfaceChoice) -> str:
    return ", ".join(one.name for one in choice.taken) or "nothing"


def bootstrap_choice(interfaces: Sequence[Interface], settings: NcclSettings) -> InterfaceChoice:
    library = "NCCL bootstrap"
    if settings.comm_id is None:
        return _choose(library, interfaces, settings, most=1)
    found = _hinted(library, interfaces, settings)
    if found is not None:
        return found
    where = comm_id.address_in(settings.comm_id or "", settings.resolved)
    error = f"no interface is in the subnet of {where} ({COMM_ID}): `{NO_LISTENING_INTERFACE}`"
    return _failure(library, interfaces, error)


def socket_choice(interfaces: Sequence[Interface], settings: NcclSettings) -> InterfaceChoice:
    return _choose("NCCL sockets", interfaces, settings, most=MOST)


def _choose(
    library: str, interfaces: Sequence[Interface], settings: NcclSettings, *, most: int
) -> InterfaceChoice:
    searches = _searches(settings)
    for search in searches:
        if found := _matches(interfaces, settings, search.value)[:most]:
            return InterfaceChoice(
                library=library,
                taken=tuple(entry.taken for entry in found),
                passed=_passed(interfaces, settings, search, found),
                error="",
                rule=search.rule,
                because=search.because,
            )
        asks_comm_id = search.rule is ChoiceRule.IB_FIRST and len(settings.comm_id or "") > 1
        if asks_comm_id and (hinted := _hinted(library, interfaces, settings)):
            return hinted
    wanted = (
        f"{nic_filter.NCCL}={settings.ifname} matches no usable interface"
        if searches[0].rule is ChoiceRule.NAMED
        else "no interface has a usable address"
    )
    error = f"{wanted}: `no socket interface found`"
    return InterfaceChoice(
        library=library,
        taken=(),
        passed=_passed(interfaces, settings, searches[-1], []),
        error=error,
        rule=searches[-1].rule,
        because=searches[-1].because,
    )


def _searches(settings: NcclSettings) -> list[_Search]:
    if not nic_filter.is_ignored(settings.ifname):
        words = f"first interface that {nic_filter.NCCL}={settings.ifname} admits"
        return [_Search(ChoiceRule.NAMED, settings.ifname, words)]
    last = [rule for rule in LAST if settings.is_new or rule is not ChoiceRule.VIRBR]
    late = ",".join(LAST[rule] for rule in last)
    words = "docker*, lo or virbr*" if settings.is_new else "docker* or lo"
    return [
        _Search(ChoiceRule.IB_FIRST, "ib", "names that begin with ib come first"),
        _Search(ChoiceRule.ORDINARY, f"^{late}", f"first interface that is not {words}"),
        *(_Search(rule, LAST[rule], f"every usable interface is {words}") for rule in last),
    ]


def _matches(interfaces: Sequence[Interface], settings: NcclSettings, value: str) -> list[Listed]:
    """Each name once, with the first of its addresses."""
    wanted = nic_filter.read_nccl(value)
    found: dict[str, Listed] = {}
    for entry in listed(interfaces):
        if not _unusable(entry, settings) and wanted.admits(entry.name):
            found.setdefault(entry.name, entry)
    return list(found.values())


def _unusable(entry: Listed, settings: NcclSettings) -> str:
    """Why NCCL takes no notice of this address, whatever its name; '' when it does."""
    if settings.is_new and not entry.interface.running:
        return "no carrier, or down (not RUNNING)"
    wanted, has = settings.wants_ipv6, addresses.is_ipv6(entry.address.ip)
    if wanted is not None and wanted != has:
        return f"no {'IPv6' if wanted else 'IPv4'} address ({FAMILY}={settings.family})"
    if has and addresses.is_loopback(entry.address.ip):
        return "only the IPv6 loopback address, which NCCL skips"
    return ""


def _passed(
    interfaces: Sequence[Interface], settings: NcclSettings, search: _Search, found: list[Listed]
) -> tuple[Passed, ...]:
    taken = {entry.interface.name for entry in found}
    return tuple(
        Passed(name=one.name, why=_why_passed(one, settings, search, found))
        for one in interfaces
        if one.name not in taken
    )


def _why_passed(
    interface: Interface, settings: NcclSettings, search: _Search, found: list[Listed]
) -> str:
    entries = listed([interface])
    if not entries:
        return "no address"
    reasons = [_unusable(entry, settings) for entry in entries]
    if all(reasons):
        return reasons[0]
    wanted = nic_filter.read_nccl(search.value)
    if any(wanted.admits(entry.name) for entry in entries):
        most = "only the first counts" if len(found) == 1 else f"NCCL takes {MOST} at most"
        return f"comes after {found[-1].name}, and {most}"
    if search.rule is ChoiceRule.NAMED:
        verb = "excluded by" if wanted.exclude else "does not match"
        return f"{verb} {nic_filter.NCCL}={settings.ifname}"
    if search.rule is ChoiceRule.IB_FIRST:
        return f"{found[0].name} comes first: its name begins with ib"
    prefix = next((p for p in LAST.values() if interface.name.startswith(p)), interface.name)
    return f"prefix {prefix} comes last"


# --- NCCL_COMM_ID: the interface in the subnet of an address, whatever its name or state ---------


def _hinted(
    library: str, interfaces: Sequence[Interface], settings: NcclSettings
) -> InterfaceChoice | None:
    """By NCCL_COMM_ID; None where no interface is in its subnet."""
    try:
        remote = comm_id.address_in(settings.comm_id or "", settings.resolved)
    except ValueError as problem:
        return _failure(library, interfaces, f"{problem}: `Invalid {COMM_ID}`")
    found = comm_id.in_same_subnet(interfaces, remote)
    if found is None:
        return None
    why = f"{found.name} is in the subnet of {remote} ({COMM_ID})"
    return InterfaceChoice(
        library=library,
        taken=(found.taken,),
        passed=_others(interfaces, found.interface.name, why),
        error="",
        rule=ChoiceRule.COMM_ID,
        because=f"first interface in the subnet of {remote} ({COMM_ID})",
    )


def _failure(library: str, interfaces: Sequence[Interface], error: str) -> InterfaceChoice:
    return InterfaceChoice(
        library=library,
        taken=(),
        passed=_others(interfaces, "", error.partition(":")[0]),
        error=error,
        rule=ChoiceRule.COMM_ID,
        because=f"{COMM_ID} decides before the interface's name",
    )


def _others(interfaces: Sequence[Interface], but: str, why: str) -> tuple[Passed, ...]:
    return tuple(Passed(name=one.name, why=why) for one in interfaces if one.name != but)
