"""The named network interface is not on this machine.

What you see   NCCL: `Bootstrap : no socket interface found`, then `ncclInternalError`, from 2.28 on
               `ncclInvalidUsage`, on every rank; 2.27 may only complain of an address with a
               strange family. Gloo: `Unable to find address for: eth0` from init_process_group.
               Often on one machine of several only, while the others wait for it until their
               timeout.
Why            NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name interfaces. NCCL takes each name as a
               prefix (`=eth0` is exact, `^eth0` excludes) and gives up when nothing is left: there
               is no fallback. Gloo wants exact names, and every one of them must have an address.
               Names differ between machines (eth0, ens5, enp1s0f0), so a value that worked on one
               fails on the next. NCCL from 2.28 also passes over interfaces that are not running.
How to be sure `ip -br addr` shows what this machine has. holdfast reads the value as NCCL and Gloo
               do and compares it with that list.
Fix            Name the interface that carries the job here, or unset the variable and let NCCL
               choose. Where names differ, put each machine's own value into its /etc/nccl.conf;
               for Gloo set the variable per machine.
Sources        NVIDIA/nccl src/misc/socket.cc and src/os/linux.cc: find or fail
               https://github.com/NVIDIA/nccl/issues/1837
               pytorch/gloo gloo/transport/tcp/device.cc: lookupAddrForIface
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import nic_filter
from holdfast.facts import Interface, MachineFacts, Setting, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD202", slug="nic-name-missing")


@FAULT.foresee
def nccl_finds_no_interface(facts: MachineFacts) -> Finding:
    setting = facts.setting(nic_filter.NCCL)
    if setting is None or nic_filter.is_ignored(setting.value):
        return FAULT.does_not_apply(f"{nic_filter.NCCL} names no interface")
    interfaces = known(facts.interfaces)
    wanted = nic_filter.read_nccl(setting.value)
    admitted = [i for i in interfaces if wanted.admits(i.name)]
    if not admitted:
        # Without a GPU there is no NCCL, and the job may well not care.
        no_gpu = facts.accelerators == ()
        speak = FAULT.warning if no_gpu else FAULT.error
        return speak(
            f"{nic_filter.NCCL}={setting.value} matches no interface of this machine",
            reason="NCCL does not fall back to another interface: every rank here fails at its "
            "first collective" + (", if it uses NCCL (no GPU was seen here)" if no_gpu else ""),
            evidence=_evidence(setting, interfaces),
            fix=_advice(setting, interfaces),
        )
    if not any(_is_usable(i) for i in admitted):
        return _only_dead(setting, admitted, interfaces)
    return FAULT.ok(f"{setting.name}={setting.value} matches {_names(admitted)}")


@FAULT.foresee
def gloo_finds_no_interface(facts: MachineFacts) -> Finding:
    setting = facts.setting(nic_filter.GLOO)
    if setting is None or nic_filter.is_ignored(setting.value):
        return FAULT.does_not_apply(f"{nic_filter.GLOO} names no interface")
    interfaces = known(facts.interfaces)
    # What no interface can be called is the business of nic-filter-syntax.
    wanted = [
        name
        for name in nic_filter.read_gloo(setting.value)
        if nic_filter.is_possible_name(name) and name[0] not in "^="
    ]
    missing = [name for name in wanted if name not in {i.name for i in interfaces}]
    if missing:
        return FAULT.error(
            f"{setting.name}={setting.value}: no interface is called {', '.join(missing)}",
            reason="Gloo needs every name in the list, exactly; init_process_group raises "
            f"'Unable to find address for: {missing[0]}'",
            evidence=_evidence(setting, interfaces),
            fix=_advice(setting, interfaces),
        )
    dead = [i for i in interfaces if i.name in wanted and not _is_usable(i)]
    if dead:
        return _only_dead(setting, dead, interfaces)
    return FAULT.ok(f"{setting.name}: this machine has {', '.join(wanted) or 'nothing to find'}")


def _only_dead(
    setting: Setting, dead: Iterable[Interface], interfaces: tuple[Interface, ...]
) -> Finding:
    return FAULT.warning(
        f"{setting.name}={setting.value} names {_names(dead)}, which cannot carry traffic now",
        reason="an interface without an address is as good as none; one that is not running is "
        "skipped by NCCL from 2.28 on, and taken in vain by older ones and by Gloo",
        evidence=_evidence(setting, interfaces),
        fix=_advice(setting, interfaces),
    )


def _is_usable(interface: Interface) -> bool:
    return interface.running and bool(interface.addresses)


def _names(interfaces: Iterable[Interface]) -> str:
    return ", ".join(i.name for i in interfaces)


def _evidence(setting: Setting, interfaces: Iterable[Interface]) -> list[Evidence]:
    def state(interface: Interface) -> str:
        addresses = " ".join(a.ip for a in interface.addresses) or "no address"
        return f"{interface.name} ({'running' if interface.running else 'down'}, {addresses})"

    return [
        Evidence(quote=f"{setting.name}={setting.value}", source=setting.origin),
        Evidence(quote=f"here: {'; '.join(map(state, interfaces))}", source="ip -br addr"),
    ]


def _advice(setting: Setting, interfaces: Iterable[Interface]) -> str:
    usable = [i.name for i in interfaces if _is_usable(i) and i.kind != "loopback"]
    unset = f"`unset {setting.name}`"
    if setting.origin != "environment":
        unset = f"remove the line at {setting.origin}"
    if not usable:
        return f"{unset}, or bring the interface up"
    exact = "=" if setting.name == nic_filter.NCCL else ""
    return (
        f"`export {setting.name}={exact}{usable[0]}` (choose from {', '.join(usable)}), or {unset}"
    )
