"""What the kernel shows of RDMA cards in sysfs; no card is opened.

Layout: Linux Documentation/ABI/stable/sysfs-class-infiniband. Some files are answered by the
card's firmware, and a card that hangs may never answer: read them in a child with a deadline.
"""

from __future__ import annotations

import os
import re

import msgspec

from holdfast.analysis.machine import Gid, RdmaCard, RdmaPort, Unread
from holdfast.system import deadline

CLASS = "sys/class/infiniband"
LOOK_SECONDS = 1.0
GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
EMPTY_GID = re.compile(r"(?:fe80|0000)(?::0000){7}")
"""no address, or only the prefix of one (NCCL's configuredGid)"""
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
GIDS_READ = 64
"""of tables with hundreds of entries, of which the first few are in use"""
FROM_PORT = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("port_rcv_remote_physical_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "port_xmit_discards"),
)
"""counters/: of the link, by the InfiniBand specification. Left out: what counts on healthy links
(port_xmit_wait: congestion; port_rcv_switch_relay_errors: multicast; VL15_dropped: management)"""
FROM_DRIVER = (
    # mlx5
    *("local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err"),
    *("rx_icrc_encapsulated", "req_cqe_error", "resp_cqe_error"),
    # efa
    *("rx_drops", "retrans_timeout_events", "unresponsive_remote_events"),
    "impaired_remote_conn_events",
    # bnxt_re
    *("to_retransmits", "seq_err_naks_rcvd", "max_retry_exceeded"),
)
"""hw_counters/: of the transport, by the driver. out_of_sequence is left out: adaptive routing
makes it count on healthy networks"""


def names(root: str = "/") -> tuple[str, ...]:
    return numbered(os.path.join(root, CLASS), r".+")


def numbered(folder: str, pattern: str) -> tuple[str, ...]:
    """In the order people count: nvidia2 before nvidia10. No folder means no such device."""
    try:
        found = [name for name in os.listdir(folder) if re.fullmatch(pattern, name)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(found, key=lambda name: (len(name), name)))


# --- ports ---------------------------------------------------------------------------------------


def ports(root: str = "/") -> tuple[RdmaPort, ...]:
    return tuple(
        _port(folder, device, number)
        for device in names(root)
        for folder in (os.path.join(root, CLASS, device),)
        for number in numbered(os.path.join(folder, "ports"), r"\d+")
    )


def _port(card: str, device: str, number: str) -> RdmaPort:
    folder = os.path.join(card, "ports", number)
    rate = _text(folder, "rate")
    speed = re.match(r"\d+(?:\.\d+)?", rate)
    gids = _gids(folder)
    return RdmaPort(
        device=device,
        number=int(number),
        state=_named(_text(folder, "state")),
        link_layer=_text(folder, "link_layer"),
        physical_state=_named(_text(folder, "phys_state")),
        rate=float(speed[0]) if speed else None,
        rate_text=rate,
        lid=_hexadecimal(_text(folder, "lid")),
        subnet_manager_lid=_hexadecimal(_text(folder, "sm_lid")),
        interfaces=_interfaces(card, int(number), gids),
        gids=gids,
        counters=_counters(folder),
    )


def _named(value: str) -> str:
    """The file holds a number and its name: '4: ACTIVE', '5: LinkUp'."""
    return value.partition(":")[2].strip() or value


def _hexadecimal(value: str) -> int | None:
    try:
        return int(value, 16)
    except ValueError:
        return None


def _gids(port: str) -> tuple[Gid, ...]:
    found = []
    for index in numbered(os.path.join(port, "gids"), r"\d+")[:GIDS_READ]:
        gid = _text(port, "gids", index)
        if GID.fullmatch(gid) and not EMPTY_GID.fullmatch(gid):
            kind = _text(port, "gid_attrs", "types", index)
            interface = _text(port, "gid_attrs", "ndevs", index)
            found.append(Gid(index=int(index), gid=gid, kind=kind, interface=interface))
    return tuple(found)


def _interfaces(card: str, number: int, gids: tuple[Gid, ...]) -> tuple[str, ...]:
    """By its addresses, and by the PCI function, whose interfaces say of which port they are."""
    beside = os.path.join(card, "device", "net")
    several = len(numbered(os.path.join(card, "ports"), r"\d+")) > 1
    of_function = [
        name
        for name in numbered(beside, r".+")
        if not several or _text(beside, name, "dev_port") == str(number - 1)
    ]
    return tuple(dict.fromkeys([*of_function, *(gid.interface for gid in gids if gid.interface)]))


def _counters(port: str) -> dict[str, int]:
    found = {}
    for folder, wanted in (("counters", FROM_PORT), ("hw_counters", FROM_DRIVER)):
        for name in wanted:
            value = _text(port, folder, name)
            if value.isdigit() and int(value):
                found[name] = int(value)
    return found


# --- what a run looks at -------------------------------------------------------------------------


def look(root: str = "/") -> tuple[RdmaPort, ...] | Unread:
    """The ports, by a child with a deadline; () at once where there is no RDMA card."""
    if not names(root):
        return ()
    ask = {"ports": lambda: msgspec.msgpack.encode(ports(root))}
    answer = deadline.ask(ask, seconds=LOOK_SECONDS)["ports"]
    if isinstance(answer, Unread):
        return answer
    return msgspec.msgpack.decode(answer, type=tuple[RdmaPort, ...])


# --- cards ---------------------------------------------------------------------------------------


def cards(root: str = "/") -> tuple[RdmaCard, ...]:
    """Every card; whether it can be opened is not tried."""
    verbs = _uverbs(root)
    return tuple(_card(root, name, verbs.get(name, "")) for name in names(root))


def _card(root: str, name: str, uverbs: str) -> RdmaCard:
    folder = os.path.join(root, CLASS, name)
    device = os.path.join(folder, "device")
    address = os.path.basename(os.path.realpath(device))
    numa = _text(device, "numa_node")
    return RdmaCard(
        name=name,
        driver=_target(device, "driver"),
        bus_id=address if PCI_ADDRESS.fullmatch(address) else "",
        numa=int(numa) if numa.isdigit() else None,  # -1 where the firmware does not say
        firmware=_text(folder, "fw_ver"),
        uverbs=uverbs,
        open_error="",
        board=_text(folder, "board_id"),
        virtual_function=os.path.lexists(os.path.join(device, "physfn")),
    )


def _uverbs(root: str) -> dict[str, str]:
    """Card -> its device node."""
    folder = os.path.join(root, "sys/class/infiniband_verbs")
    nodes = numbered(folder, r"uverbs\d+")
    return {_text(folder, node, "ibdev"): f"/dev/infiniband/{node}" for node in nodes}


def _target(*link: str) -> str:
    try:
        return os.path.basename(os.readlink(os.path.join(*link)))
    except OSError:
        return ""


def _text(*path: str) -> str:
    """'' where there is no such file, or the kernel refuses it: EINVAL for an address that is not
    of this network namespace."""
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
