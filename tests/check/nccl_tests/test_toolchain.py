from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.check.nccl_tests.toolchain import find_toolchain


def laid(root: Path, *files: str) -> str:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    return str(root)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_the_environment_names_is_found(tmp_path: Path) -> None:
    cuda = laid(tmp_path / "cuda", "bin/nvcc", "include/cuda_runtime.h")
    mpi = laid(tmp_path / "mpi", "bin/mpicc", "bin/mpirun", "include/mpi.h")
    nccl = laid(tmp_path / "nccl", "include/nccl.h", "lib/libnccl.so")
    found = find_toolchain({"CUDA_HOME": cuda, "PATH": f"{mpi}/bin", "NCCL_HOME": nccl}, [])
    assert (found.cuda_home, found.mpi_home, found.nccl_home) == (cuda, mpi, nccl)
    assert found.mpirun == f"{mpi}/bin/mpirun"
    assert found.nccl_package == found.source == ""


def test_the_python_packages_nccl_counts_where_it_has_its_header(tmp_path: Path) -> None:
    package = laid(tmp_path / "site/nvidia/nccl", "include/nccl.h", "lib/libnccl.so.2")
    libraries = ["/usr/lib/libnccl.so.2", f"{package}/lib/libnccl.so.2"]
    assert find_toolchain({"PATH": ""}, libraries).nccl_package == package
    (tmp_path / "site/nvidia/nccl/include/nccl.h").unlink()
    assert find_toolchain({"PATH": ""}, libraries).nccl_package == ""


def test_a_wrapper_on_the_path_is_no_toolkit(tmp_path: Path) -> None:
    wrapper = laid(tmp_path / "local", "bin/nvcc")
    assert find_toolchain({"PATH": f"{wrapper}/bin"}, []).cuda_home != wrapper


def test_a_checkout_is_not_cloned_again(tmp_path: Path) -> None:
    laid(tmp_path / "nccl-tests", "src/common.cu")
    assert find_toolchain({"PATH": ""}, []).source == "nccl-tests"
