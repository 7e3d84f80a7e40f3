"""Where the ranks of a job meet: its master, its endpoint and its port, as pure questions."""

from __future__ import annotations

from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    Plan,
    PortRanges,
    Unread,
    addresses,
    known,
)

C10D_PORT = 29400
"""torchrun's c10d backend takes this port when the endpoint names none"""
FREE_PORT_SINCE = (2, 12)
"""torch whose torchrun, on one machine and told no port, takes c10d and a free one:
https://github.com/pytorch/pytorch/pull/175699"""


def split_endpoint(endpoint: str) -> tuple[str, int | None]:
    """Host and port of 'host', 'host:29400' or '[fe80::1]:29400'; None where no port is named."""
    text = endpoint.strip()
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1], None
    host, colon, port = text.rpartition(":")
    # torch cuts at the last colon too, so a bare '::1' is not an address for it either
    if colon and port.isascii() and port.isdigit() and int(port) < 65536:
        return host.removeprefix("[").removesuffix("]"), int(port)
    return text, None


def master_host(plan: Plan) -> tuple[str, str]:
    """The host every rank will call, and what named it; ('', '') when nothing did."""
    if plan.rdzv_endpoint:  # torchrun ignores the master address beside an endpoint
        return split_endpoint(plan.rdzv_endpoint)[0], "rendezvous endpoint"
    return plan.master_addr, plan.master_origin


def addresses_of(facts: MachineFacts, host: str) -> tuple[str, ...]:
    """What this host name means here; stops the check when we never resolved it."""
    if addresses.parse(host):
        return (host,)
    if host == "localhost":
        return ("127.0.0.1",)
    if host == facts.plan.master_addr and facts.master_name is not None:
        resolution = known(facts.master_name)
    elif host == facts.host:
        resolution = known(facts.own_name)
    else:
        raise CouldNotLook(f"{host} was not resolved")
    if not resolution.addresses:
        raise CouldNotLook(f"{host} does not resolve: {resolution.error}")
    return resolution.addresses


def is_ephemeral(ranges: PortRanges, port: int) -> bool:
    """May the kernel hand this port to an outgoing connection?"""
    reserved = any(low <= port <= high for low, high in ranges.reserved)
    return ranges.ephemeral_low <= port <= ranges.ephemeral_high and not reserved


def other_port(plan: Plan, ranges: PortRanges | Unread) -> int | None:
    """A port to propose instead: allowed to this user and never handed to outgoing connections.

    None when the ephemeral range leaves no room. Whether it is free was not tried.
    """
    if isinstance(ranges, Unread):
        return 29600 if plan.port != 29600 else 29700
    # near the usual ports, yet neither 29500 nor 29400, which other jobs take by default
    candidates: tuple[int, ...] = (
        *range(29600, 32768, 100),
        *range(29300, 1024, -100),
        *range(61100, 65500, 100),
    )
    for port in candidates:
        allowed = port >= ranges.first_unprivileged and port != plan.port
        if allowed and not is_ephemeral(ranges, port):
            return port
    return None


def choose_another_port(plan: Plan, ranges: PortRanges | Unread) -> str:
    """The advice to take another port, in the words of what named the present one."""
    port = other_port(plan, ranges)
    if port is None:
        return f"keep the kernel from handing it out: {reserve(plan, ranges)}"
    everywhere = " on every node" if plan.multi_node else ""
    if plan.port_origin in ("MASTER_PORT", "PET_MASTER_PORT"):
        return f"choose another port: `export {plan.port_origin}={port}`{everywhere}"
    if plan.port_origin == "--master-port":
        return (
            f"leave `--master-port` out: `holdfast run` finds a free one; or `--master-port {port}`"
        )
    return f"choose another port: `torchrun --master-port {port} …`{everywhere}"


def reserve(plan: Plan, ranges: PortRanges | Unread) -> str:
    """The command that reserves the port; the sysctl is replaced whole, so it repeats the rest."""
    present = () if isinstance(ranges, Unread) else ranges.reserved
    ports = [str(low) if low == high else f"{low}-{high}" for low, high in present]
    value = ",".join([*ports, str(plan.port)])
    return f"`sudo sysctl -w net.ipv4.ip_local_reserved_ports={value}`"
