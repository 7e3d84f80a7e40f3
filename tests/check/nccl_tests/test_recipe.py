from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.check.nccl_tests.recipe import NcclTestsJob, architectures, recipe
from holdfast.check.nccl_tests.toolchain import Toolchain
from tests.faults.made_gpus import a_gpu, an_sxm_gpu

GIB = 1 << 30
PACKAGE = "/venv/lib/python3.12/site-packages/nvidia/nccl"
ALL = Toolchain(
    source="",
    cuda_home="/usr/local/cuda",
    nccl_home="",
    nccl_package=PACKAGE,
    mpi_home="/usr/lib/x86_64-linux-gnu/openmpi",
    mpirun="/usr/bin/mpirun",
)
NOTHING = Toolchain("", "", "", "", "", "")
EIGHT = NcclTestsJob(gpus=8, nodes=1, memory=80 * GIB, architectures=("90",))


def test_with_everything_each_gpu_has_a_process_of_its_own() -> None:
    made = recipe(ALL, EIGHT)
    assert made.build[0] == "git clone --depth 1 https://github.com/NVIDIA/nccl-tests"
    assert f"ln -sf {PACKAGE}/lib/libnccl.so.2 nccl-home/lib/libnccl.so" in made.build[1]
    assert made.build[2] == (
        'make -C nccl-tests -j CUDA_HOME=/usr/local/cuda NCCL_HOME="$PWD/nccl-home" MPI=1 '
        "MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi "
        "NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90"
    )
    assert made.run[0] == (
        f"/usr/bin/mpirun -np 8 -N 8 --bind-to none -x LD_LIBRARY_PATH={PACKAGE}/lib:"
        "$LD_LIBRARY_PATH ./nccl-tests/build/all_reduce_perf -b 8 -e 8G -f 2 -g 1 -T 120 -J "
        "nccl-tests.json"
    )
    assert made.run[1] == "holdfast explain nccl-tests.json"


def test_several_nodes_need_mpi_and_hosts() -> None:
    two = EIGHT._replace(nodes=2)
    assert "-np 16 -N 8 --hostfile HOSTS" in recipe(ALL, two).run[0]
    alone = recipe(ALL._replace(mpirun=""), two)
    assert any("needs it for several nodes" in remark for remark in alone.remarks)
    assert "-g 8" in alone.run[0]
    assert "MPI" not in alone.build[-1]


def test_without_mpi_one_process_drives_all_gpus() -> None:
    made = recipe(ALL._replace(mpi_home=""), EIGHT)
    assert made.run[0].startswith(f"LD_LIBRARY_PATH={PACKAGE}/lib:$LD_LIBRARY_PATH ./nccl-tests/")
    assert "-g 8" in made.run[0]
    assert any("not how torchrun starts ranks" in remark for remark in made.remarks)


def test_what_is_missing_is_said() -> None:
    said = " ".join(recipe(NOTHING, NcclTestsJob(0, 1, None, ())).remarks)
    assert "no GPU is visible" in said
    assert "nvcc was not found" in said
    assert "nccl.h was not found" in said


def test_the_systems_nccl_is_named_as_perhaps_another_than_torchs() -> None:
    made = recipe(ALL._replace(nccl_package="", nccl_home="/usr"), EIGHT)
    assert "NCCL_HOME" not in made.build[-1]
    assert any("torch may load another one" in remark for remark in made.remarks)
    other = recipe(ALL._replace(nccl_package="", nccl_home="/opt/nccl"), EIGHT)
    assert "NCCL_HOME=/opt/nccl" in other.build[-1]


@pytest.mark.parametrize(("memory", "largest"), [(24, "4G"), (80, "8G"), (2, "1G"), (None, "8G")])
def test_sizes_fit_the_smallest_gpu(memory: int | None, largest: str) -> None:
    job = EIGHT._replace(memory=memory * GIB if memory else None)
    assert f"-e {largest} " in recipe(ALL, job).run[0]


def test_architectures_by_name_and_by_card() -> None:
    assert architectures((an_sxm_gpu(0), an_sxm_gpu(1))) == ("90",)
    a100 = a_gpu(0, name="NVIDIA A100-SXM4-80GB", architecture="ampere")
    a6000 = a_gpu(1, name="NVIDIA RTX A6000", architecture="ampere")
    assert architectures((a100,)) == ("80",)
    assert architectures((a100, a6000)) == ("80", "86")
    assert architectures((a_gpu(0, architecture="rubin"),)) == ()


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_strange_path_stays_one_word_of_the_command(path: str) -> None:
    made = recipe(ALL._replace(cuda_home=path), EIGHT)
    assert f"CUDA_HOME={path}" in shlex.split(made.build[-1].replace('"$PWD/nccl-home"', "x"))
