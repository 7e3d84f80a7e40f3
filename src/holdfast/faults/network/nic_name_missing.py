"""The network interface that a setting selects does not exist on this machine.

What you see   NCCL: `Bootstrap : no socket interface found`, then `ncclInternalError`, from 2.28 on
               `ncclInvalidUsage`, on every rank; 2.27 may only report an address with an unknown
               family. Gloo: `Unable to find address for: eth0` from init_process_group. Often on
               one machine of several only, while the others wait for it until their timeout.
Why            NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME select interfaces. NCCL takes each name as
               a prefix (`=eth0` is exact, `^eth0` excludes) and gives up when nothing matches:
               there is no fallback. Gloo wants exact names, and every one of them must have an
               address. Names differ between machines (eth0, ens5, enp1s0f0), so a value that worked
               on one fails on the next. NCCL from 2.28.3 also skips interfaces that are not
               running. With NCCL_COMM_ID set, NCCL wants an interface in the subnet of that address
               instead.
How to be sure `ip -br addr` lists the interfaces of this machine. `holdfast check` reads the value
               as the installed NCCL and Gloo do and compares it with that list.
Fix            Set the interface that carries the job on this machine, or unset the variable and let
               NCCL choose. Where names differ, put each machine's own value into its
               /etc/nccl.conf; for Gloo set the variable per machine.
Known limits   The check covers this machine only. `lint` compares with the machine it runs on,
               which need not be the one that runs the job.
Sources        NVIDIA/nccl src/misc/socket.cc and src/os/linux.cc: find or fail
               https://github.com/NVIDIA/nccl/issues/1837
               pytorch/gloo gloo/transport/tcp/device.cc: lookupAddrForIface
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import TypeOnHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.patterns import missing_interfaces
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    Interface,
    MachineFacts,
    Setting,
    gloo_choice,
    known,
    nccl_choice,
    nic_filter,
    way_out,
)
from holdfast.analysis.machine.interface_choice import ChoiceRule, InterfaceChoice
from holdfast.analysis.source.source import Source
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.analysis.variables.in_source import (
    as_fact,
    at,
    is_of_here,
    machines,
    may_be_of_here,
    put,
    readable,
    without,
)
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD202",
    slug="nic-name-missing",
    related=("nic-filter-syntax", "wrong-nic", "hca-name-missing", "env-mismatch-nodes"),
)
FAULT.error_text(
    r"Unable to find address for|no socket interface found",
    "the interface filter (…_SOCKET_IFNAME) matches no interface",
)
FAULT.log_patterns.extend(missing_interfaces.ALL)


SIMULATION = ("interfaces", "master_name", "own_name", "routes", "settings", "software")


@FAULT.check(needs=("accelerators", *SIMULATION))
def nccl_finds_no_interface(facts: MachineFacts) -> Finding:
    named, comm_id = facts.setting(nic_filter.NCCL), facts.setting(nccl_choice.COMM_ID)
    if named is not None and nic_filter.is_ignored(named.value):
        named = None
    if named is None and comm_id is None:
        return FAULT.does_not_apply(f"{nic_filter.NCCL} selects no interface")
    choices = [nccl_choice.bootstrap(facts), nccl_choice.sockets(facts)]
    for choice in choices:
        setting = comm_id if choice.rule is ChoiceRule.COMM_ID else named
        if choice.error and setting is not None:
            return _nccl_fails(facts, setting, choice)
    dead = _not_running(facts, choices[0])
    if dead:
        setting = named or comm_id
        assert setting is not None
        return _selects_dead(facts, setting, dead)
    return FAULT.ok(choices[0].sentence)


def _nccl_fails(facts: MachineFacts, setting: Setting, choice: InterfaceChoice) -> Finding:
    interfaces = known(facts.interfaces)
    summary = choice.sentence
    if setting.name == nic_filter.NCCL:
        wanted = nic_filter.read_nccl(setting.value)
        admitted = [one.name for one in interfaces if wanted.admits(one.name)]
        reasons = [f"{one.name} ({one.why})" for one in choice.passed if one.name in admitted]
        summary = f"{setting.name}={setting.value} " + (
            f"selects {', '.join(reasons)}, which NCCL skips"
            if reasons
            else "matches no interface of this machine"
        )
    # Without a GPU there is no NCCL, and the job may not be affected.
    no_gpu = facts.accelerators == ()
    speak = FAULT.warning if no_gpu else FAULT.error
    return speak(
        summary,
        reason="NCCL does not fall back to another interface: every rank here will fail at its "
        "first collective" + (", if it uses NCCL (no GPU was found here)" if no_gpu else ""),
        evidence=_evidence(setting, interfaces),
        fix=_advice(setting, facts),
    )


@FAULT.check(needs=SIMULATION)
def gloo_finds_no_interface(facts: MachineFacts) -> Finding:
    setting = facts.setting(nic_filter.GLOO)
    if setting is None or nic_filter.is_ignored(setting.value):
        return FAULT.does_not_apply(f"{nic_filter.GLOO} selects no interface")
    interfaces = known(facts.interfaces)
    names = nic_filter.read_gloo(setting.value)
    if any(not nic_filter.is_possible_name(name) or name[0] in "^=" for name in names):
        return FAULT.does_not_apply(f"{setting.name}={setting.value}: see nic-filter-syntax")
    choice = gloo_choice.choose(facts)
    if choice.error:
        here = {one.name for one in interfaces}
        missing = [name for name in names if name not in here]
        lacks = f"no interface is named {', '.join(missing)}" if missing else "one has no address"
        return FAULT.error(
            f"{setting.name}={setting.value}: {lacks}",
            reason="Gloo needs an address for every name in the list, exactly; init_process_group "
            f"will raise {choice.error}",
            evidence=_evidence(setting, interfaces),
            fix=_advice(setting, facts),
        )
    dead = _not_running(facts, choice)
    return _selects_dead(facts, setting, dead) if dead else FAULT.ok(choice.sentence)


def _not_running(facts: MachineFacts, choice: InterfaceChoice) -> list[Interface]:
    taken = {one.name for one in choice.taken}
    return [one for one in known(facts.interfaces) if one.name in taken and not one.running]


def _selects_dead(facts: MachineFacts, setting: Setting, dead: Iterable[Interface]) -> Finding:
    interfaces = known(facts.interfaces)
    return FAULT.warning(
        f"{setting.name}={setting.value} selects {_names(dead)}, which cannot carry traffic now",
        reason="it is not running (no carrier, or down); NCCL from 2.28.3 on skips such an "
        "interface, while Gloo and older versions use it without success",
        evidence=_evidence(setting, interfaces),
        fix=_advice(setting, facts),
    )


def _names(interfaces: Iterable[Interface]) -> str:
    return ", ".join(i.name for i in interfaces)


def _evidence(setting: Setting, interfaces: Iterable[Interface]) -> list[Evidence]:
    def state(interface: Interface) -> str:
        addresses = " ".join(a.ip for a in interface.addresses) or "no address"
        return f"{interface.name} ({'running' if interface.running else 'down'}, {addresses})"

    return [
        setting.evidence,
        Evidence(quote=f"here: {'; '.join(map(state, interfaces))}", source="ip -br addr"),
    ]


def _advice(setting: Setting, facts: MachineFacts) -> str:
    usable = way_out.usable(facts)
    unset = f"`unset {shell_words.variable(setting.name)}`"
    if setting.origin != "environment":
        unset = f"remove the line at {text.name(setting.origin)}"
    if setting.name == nccl_choice.COMM_ID:
        return f"{unset}: torch gives NCCL the address by itself"
    if not usable:
        return f"{unset}, or bring the interface up"
    exact = "=" if setting.name == nic_filter.NCCL else ""
    use = shell_words.setting(setting.name, f"{exact}{usable[0]}")
    return f"`export {use}` (choose from {text.name(', '.join(usable))}), or {unset}"


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def named_interface_is_not_here(source: Source) -> Iterator[Finding]:
    """A script may be meant for other machines: then it is only a note."""
    here = source.here.interfaces
    for setting in readable(source, nic_filter.NCCL, nic_filter.GLOO):
        if here is None or nic_filter.is_ignored(setting.value):
            continue
        missing = _missing_here(setting, here)
        if missing and may_be_of_here(setting, source) and not _for_other_machines(setting, source):
            yield at(_not_here(as_fact(setting), missing, here, source), setting)


def _for_other_machines(setting: Written, source: Source) -> bool:
    """A batch job, or one on several machines: their interfaces may differ from those here."""
    batch = any(launch.kind == "sbatch" for launch in source.launches)
    return not is_of_here(source) and (batch or (machines(source, setting) or 1) > 1)


def _missing_here(setting: Written, here: tuple[str, ...]) -> list[str]:
    """The names that match nothing, except those that nic-filter-syntax reports."""
    if setting.name == nic_filter.GLOO:
        names = nic_filter.read_gloo(setting.value)
        strange = any(map(nic_filter.strange, names))
        return [] if strange else [name for name in names if name not in here]
    wanted = nic_filter.read_nccl(setting.value)
    if any(map(wanted.admits, here)) or any(map(nic_filter.strange, wanted.names)):
        return []
    return list(wanted.names)


def _not_here(
    setting: Setting, missing: list[str], here: tuple[str, ...], source: Source
) -> Finding:
    gloo = setting.name == nic_filter.GLOO
    speak = FAULT.error if is_of_here(source) else FAULT.note
    choice = [name for name in here if name.startswith(("en", "eth", "ib", "bond"))]
    example = put(setting, setting.name, ("" if gloo else "=") + choice[0]) if choice else ""
    suggestion = f"{example} (choose from {text.name(', '.join(choice))}), or " if example else ""
    elsewhere = "" if is_of_here(source) else "; the machine that runs the job may have it"
    return speak(
        f"{setting.name}={setting.value}: this machine has no interface {', '.join(missing)}"
        f"{elsewhere}",
        reason="Gloo needs every name in the list, exactly; init_process_group will raise"
        if gloo
        else "NCCL does not fall back to another interface: every rank will fail at its first "
        "collective",
        fix=f"{suggestion}{without(setting)}",
    )


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def no_interface_matched(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(
        missing_interfaces.NCCL_NONE,
        missing_interfaces.NCCL_OOB,
        missing_interfaces.NCCL_FAMILY,
        missing_interfaces.NCCL_SUBNET,
    ) or _gloo(wreckage)
    if not seen:
        return None
    name, value = _setting(wreckage, seen[0])
    host = seen[0].line.host
    reason = f"{name}={value} matched no interface" if value else "NCCL found no interface to use"
    if seen[0].pattern == missing_interfaces.NCCL_SUBNET.name:
        reason = f"no interface was in the network of {seen[0].fields['address']} (NCCL_COMM_ID)"
    return FAULT.diagnosis(
        f"{reason}{f' of {host}' if host else ''}, and there is no fallback: every rank there "
        "failed before its first collective",
        confidence=_confidence(seen[0], name, value),
        seen=seen,
        culprit=Culprit(what=f"{name}={value}" if value else name, host=host),
        victims=[one.rank for one in seen if one.rank is not None],
        fix=f"set {name} to an interface that the machine has, or `unset {name}`; where names "
        "differ, set it per machine",
        next="ip -br address",
    )


def _gloo(wreckage: Wreckage) -> tuple[Sighting, ...]:
    """Gloo prints the same text about a host's own name, in another check."""
    return tuple(
        s for s in wreckage.seen(missing_interfaces.GLOO_NONE) if "rp != nullptr" not in s.line.text
    )


def _setting(wreckage: Wreckage, seen: Sighting) -> tuple[str, str]:
    """The variable and its value, as far as the log shows them."""
    if seen.pattern == missing_interfaces.GLOO_NONE.name:
        return nic_filter.GLOO, wreckage.settings.get(nic_filter.GLOO) or seen.fields["name"]
    if seen.pattern == missing_interfaces.NCCL_OOB.name:
        return seen.fields["name"], seen.fields["value"].strip()
    return nic_filter.NCCL, wreckage.settings.get(nic_filter.NCCL, "")


def _confidence(seen: Sighting, name: str, value: str) -> float:
    if value and nic_filter.has_misread_sign(name, value):
        # nic-filter-syntax explains it better; for Gloo, which knows no signs, both are true
        return 0.8 if name == nic_filter.GLOO else 0.6
    if seen.pattern == missing_interfaces.NCCL_SUBNET.name:
        return 0.6
    if seen.pattern == missing_interfaces.NCCL_FAMILY.name:
        return 0.8 if value else 0.75
    return 0.95 if value else 0.9


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def one_host_names_no_interface(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"GLOO_SOCKET_IFNAME=eth7 on {host}, which has no such interface",
        act=TypeOnHost(host=host, environment=(("GLOO_SOCKET_IFNAME", "eth7"),)),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=(host,),
        beside=("ranks-missing", "join-timeout"),
        join_timeout=15.0,
    )
