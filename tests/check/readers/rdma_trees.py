"""/sys/class/infiniband as other machines have it, and a libibverbs whose cards are files.

a_card(root, "mlx5_0")                                  # InfiniBand NDR, ACTIVE
a_card(root, "mlx5_0", roce("10.1.0.5"), bus="0000:9a:00.0")
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.check.readers.trees import plant

NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:a288:c2ff:fe00:0001"


def infiniband(
    *,
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    rate: str = "400 Gb/sec (4X NDR)",
    lid: int = 0x12,
    prefix: str = "fe80:0000:0000:0000",
    counters: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """A port of a ConnectX-7 in an InfiniBand fabric; paths below its folder."""
    return {
        "state": state,
        "phys_state": physical,
        "rate": rate,
        "lid": hex(lid),
        "sm_lid": "0x1",
        "link_layer": "InfiniBand",
        "gids/0": f"{prefix}:a088:c203:0055:48ae",
        "gids/1": NO_GID,
        "gid_attrs/types/0": "IB/RoCE v1",
        **{f"counters/{name}": "0" for name in ("symbol_error", "link_downed", "port_rcv_data")},
        **{f"hw_counters/{name}": "0" for name in ("local_ack_timeout_err", "out_of_sequence")},
        **_errors(counters),
    }


def down(physical: str = "2: Polling") -> dict[str, str]:
    """Without a cable, or with nothing at its other end."""
    return infiniband(state="1: DOWN", physical=physical, rate="10 Gb/sec (4X SDR)", lid=0xFFFF)


def initialising() -> dict[str, str]:
    """The link is up, but no subnet manager has configured the port."""
    return {**infiniband(state="2: INIT", lid=0xFFFF), "sm_lid": "0x0"}


def roce(
    ip: str = "10.1.0.5",
    *,
    interface: str = "ens1f0np0",
    rate: str = "400 Gb/sec (4X NDR)",
    up: bool = True,
    foreign: bool = False,
    counters: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """A port with RoCE; each address of its interface is there twice, for v1 and for v2. `foreign`:
    its addresses are those of another network namespace, whose types the kernel does not tell."""
    gids = [LINK_LOCAL, LINK_LOCAL]
    if ip:
        mapped = ipaddress.IPv6Address(f"::ffff:{ip}" if "." in ip else ip).exploded
        gids += [mapped, mapped]
    kinds = ["IB/RoCE v1", "RoCE v2"] * 2
    port = {
        "state": "4: ACTIVE" if up else "1: DOWN",
        "phys_state": "5: LinkUp" if up else "3: Disabled",
        "rate": rate,
        "lid": "0x0",
        "sm_lid": "0x0",
        "link_layer": "Ethernet",
        **{f"gids/{n}": gid for n, gid in enumerate(gids)},
        f"gids/{len(gids)}": NO_GID,
        **_errors(counters),
    }
    if not foreign:
        port |= {f"gid_attrs/types/{n}": kinds[n] for n in range(len(gids))}
        port |= {f"gid_attrs/ndevs/{n}": interface for n in range(len(gids))}
    return port


def efa() -> dict[str, str]:
    """Its driver says ACTIVE whatever the network does."""
    return {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "100 Gb/sec (4X EDR)",
        "lid": "0x0",
        "sm_lid": "0x0",
        "link_layer": "Unknown",
        "gids/0": LINK_LOCAL,
        "hw_counters/rx_drops": "0",
        "hw_counters/retrans_timeout_events": "0",
    }


def _errors(counters: Mapping[str, int] | None) -> dict[str, str]:
    of_port = ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors")
    return {
        f"{'counters' if name in of_port else 'hw_counters'}/{name}": str(value)
        for name, value in (counters or {}).items()
    }


def a_card(
    root: Path,
    name: str,
    *ports: Mapping[str, str],
    driver: str = "mlx5_core",
    bus: str = "0000:1a:00.0",
    board: str = "MT_0000000838",
    interfaces: Sequence[str] = (),
    uverbs: int | None = 0,
    node: bool = True,
    virtual_function: bool = False,
) -> None:
    """Links are as the kernel makes them: the class points to the PCI device, which has a driver.
    `uverbs`: the number of its device node, `node`: whether that is visible here."""
    device = f"sys/devices/pci0000:15/0000:15:01.0/{bus}"
    card = f"{device}/infiniband/{name}"
    files = {f"{card}/fw_ver": "28.41.1000\n", f"{card}/board_id": f"{board}\n",
             f"{device}/numa_node": "0\n"}  # fmt: skip
    for number, port in enumerate(ports or (infiniband(),), start=1):
        files |= {f"{card}/ports/{number}/{path}": f"{text}\n" for path, text in port.items()}
    for number, interface in enumerate(interfaces):
        files[f"{device}/net/{interface}/dev_port"] = f"{number}\n"
    if uverbs is not None:
        files[f"sys/class/infiniband_verbs/uverbs{uverbs}/ibdev"] = f"{name}\n"
        if node:
            files[f"dev/infiniband/uverbs{uverbs}"] = ""
    plant(root, files)
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband" / name).symlink_to(root / card)
    (root / card / "device").symlink_to("../..")
    (root / device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    if virtual_function:
        (root / device / "physfn").symlink_to("../0000:15:01.0")


# --- a libibverbs --------------------------------------------------------------------------------

FAKE = """
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Cards are lines of the file FAKE_VERBS: name, what opening does (0, an errno, -1 for ever), then
   the active MTU of each port (enum ibv_mtu). */
struct device { char name[64]; int error; int mtu[8]; int ports; };
struct attributes { int state, max_mtu, active_mtu; };
void **ibv_get_device_list(int *count) {
  static struct device *list[64];
  FILE *file = fopen(getenv("FAKE_VERBS"), "r");
  char line[256];
  *count = 0;
  if (!file) { errno = ENOSYS; return NULL; }
  fprintf(stderr, "libibverbs: Warning: couldn't load driver 'libhns-rdmav34.so'\\n");
  while (fgets(line, sizeof line, file)) {
    struct device *one = calloc(1, sizeof *one);
    int used = 0, more = 0;
    if (sscanf(line, "%63s %d%n", one->name, &one->error, &used) < 2) continue;
    while (sscanf(line + used, "%d%n", &one->mtu[one->ports], &more) == 1) {
      used += more;
      one->ports++;
    }
    list[(*count)++] = one;
  }
  return (void **)list;
}
const char *ibv_get_device_name(struct device *one) { return one->name; }
void *ibv_open_device(struct device *one) {
  while (one->error < 0) pause();
  errno = one->error;
  return one->error ? NULL : one;
}
int ibv_close_device(void *context) { return 0; }
int ibv_query_port(struct device *one, uint8_t port, struct attributes *found) {
  if (port < 1 || port > one->ports) return EINVAL;
  found->state = 4;
  found->max_mtu = 5;
  found->active_mtu = one->mtu[port - 1];
  return 0;
}
"""


def a_libibverbs(folder: Path) -> str:
    """A library with the functions that NCCL and holdfast call; FAKE_VERBS names its cards."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("needs a C compiler")
    source, library = folder / "verbs.c", folder / "libibverbs.so.1"
    source.write_text(textwrap.dedent(FAKE))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)
