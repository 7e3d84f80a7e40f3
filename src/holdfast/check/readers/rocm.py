"""AMD GPUs, by what the kernel shows of them; ROCm's own library is not asked."""

from __future__ import annotations

import os
import re

from holdfast.analysis.machine import Plan, RocmFacts
from holdfast.system import sysfs
from holdfast.text import natural_order

NODES = "sys/class/kfd/kfd/topology/nodes"


def read_rocm(_plan: Plan, root: str = "/") -> RocmFacts:
    nodes = os.path.join(root, NODES)
    names, used, errors = [], [], []
    for node in sorted(sysfs.listed(nodes), key=natural_order):
        if sysfs.text(nodes, node, "gpu_id") in ("", "0"):
            continue  # a processor, or a GPU that this container may not use
        properties = dict(re.findall(r"^(\w+) (\d+)$", sysfs.text(nodes, node, "properties"), re.M))
        card = os.path.join(
            root, "sys/class/drm", f"renderD{properties.get('drm_render_minor', '')}", "device"
        )
        names.append(sysfs.text(card, "product_name") or _family(properties))
        used.append(int(sysfs.text(card, "mem_info_vram_used") or 0))
        errors.append(_uncorrectable(sysfs.text(card, "ras/umc_err_count")))
    return RocmFacts(
        gpus=tuple(names),
        driver=sysfs.text(root, "sys/module/amdgpu/version"),
        memory_used=tuple(used),
        uncorrectable_errors=tuple(errors),
    )


def _family(properties: dict[str, str]) -> str:
    """90402 -> 'gfx942', 90010 -> 'gfx90a'."""
    version = int(properties.get("gfx_target_version", "0"))
    if not version:
        return "AMD GPU"
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _uncorrectable(counts: str) -> int | None:
    found = re.search(r"^ue: (\d+)$", counts, re.M)
    return int(found[1]) if found else None
