from __future__ import annotations

from pathlib import Path

from holdfast.analysis.machine import RocmFacts
from holdfast.check.readers.rocm import read_rocm
from tests.check.readers.trees import plant
from tests.faults.machines import a_plan

NODES = "/sys/class/kfd/kfd/topology/nodes"
CARD = "/sys/class/drm/renderD128/device"


def test_gpus_in_the_order_of_the_kernel(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            f"{NODES}/0/gpu_id": "0\n",  # a processor
            f"{NODES}/2/gpu_id": "51140\n",
            f"{NODES}/2/properties": "simd_count 1216\ngfx_target_version 90402\n"
            "drm_render_minor 128\n",
            f"{NODES}/10/gpu_id": "28851\n",
            f"{NODES}/10/properties": "gfx_target_version 90010\ndrm_render_minor 136\n",
            f"{CARD}/product_name": "AMD Instinct MI300X\n",
            f"{CARD}/mem_info_vram_used": "296747008\n",
            f"{CARD}/ras/umc_err_count": "ue: 3\nce: 1\nde: 0\n",
            "/sys/module/amdgpu/version": "6.10.5\n",
        },
    )
    assert read_rocm(a_plan(), root) == RocmFacts(
        gpus=("AMD Instinct MI300X", "gfx90a"),
        driver="6.10.5",
        memory_used=(296747008, 0),
        uncorrectable_errors=(3, None),
    )


def test_a_machine_without(tmp_path: Path) -> None:
    assert read_rocm(a_plan(), str(tmp_path)) == RocmFacts(gpus=(), driver="")
