"""Versions without importing torch, and every libnccl in the loader's order."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import NcclLibrary
from holdfast.check.readers.nccl_libraries import (
    cached_paths,
    nccl_libraries,
    net_plugins,
    version_inside,
)
from holdfast.check.readers.software import assigned, find_torch, read_software
from tests.faults.machines import a_plan
from tests.system.elf_files import write_elf
from tests.system.sockets import run_python

LOOK = """
import sys
from holdfast.check.readers.software import read_software
from tests.faults.machines import a_plan
found = read_software(a_plan())
print(found.python, found.torch or "-", "torch" in sys.modules, found.gloo, sep="|")
"""
VERSION = "NCCL version 2.21.5+cuda12.4"


def test_versions_are_right_and_torch_is_not_imported() -> None:
    python, torch, imported, gloo = run_python(LOOK).strip().split("|")
    assert python == platform.python_version()
    assert imported == "False"
    try:
        assert torch == importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        assert torch == "-"
    else:
        assert gloo == f"built into torch {torch}"


def test_gloo_and_cuda_are_what_torch_itself_says() -> None:
    if find_torch() is None:
        pytest.skip("needs torch")
    ask = "import torch; print(torch.distributed.is_gloo_available(), torch.version.cuda or '')"
    gloo, cuda = run_python(ask).rstrip("\n").split(" ")
    found = read_software(a_plan())
    assert bool(found.gloo) == (gloo == "True")
    assert found.torch_cuda == cuda


def test_where_torch_is_missing_the_rest_is_still_reported() -> None:
    code = "import importlib.util; importlib.util.find_spec = lambda name: None\n" + LOOK
    assert run_python(code).split("|")[1] == "-"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ('cuda = "12.6"\n', "12.6"),
        ("cuda: Optional[str] = None\nhip = '7.0'\n", ""),
        ("", ""),
    ],
)
def test_an_assignment_is_read_from_source(source: str, value: str) -> None:
    assert assigned("cuda", source) == value


@given(st.text())
def test_any_source_gets_an_answer(source: str) -> None:
    assert isinstance(assigned("__version__", source), str)


def own(libraries: tuple[NcclLibrary, ...], root: Path) -> list[tuple[str, str, str]]:
    """Those below the test's folder: this machine may have others."""
    return [
        (Path(lib.path).relative_to(root).parts[0], lib.version, lib.origin)
        for lib in libraries
        if lib.path.startswith(str(root))
    ]


def test_libraries_come_in_the_loaders_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded = write_elf(tmp_path / "mine" / "libnccl.so.2", "NCCL version mismatch", VERSION)
    write_elf(tmp_path / "site" / "nvidia/nccl/lib/libnccl.so.2")
    (tmp_path / "site" / "nvidia_nccl_cu13-2.29.7.dist-info").mkdir()
    write_elf(tmp_path / "opt" / "libnccl.so.2.18.3")
    (tmp_path / "opt" / "libnccl.so.2").symlink_to("libnccl.so.2.18.3")
    (tmp_path / "again").symlink_to(tmp_path / "opt")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    environment = {
        "LD_PRELOAD": f"/lib/libother.so {preloaded}",
        "LD_LIBRARY_PATH": f"/none:{tmp_path}/opt:{tmp_path}/again",
    }
    libraries = nccl_libraries(a_plan(environment=environment), "")
    assert own(libraries, tmp_path) == [
        ("mine", "2.21.5", "LD_PRELOAD"),
        ("site", "2.29.7", "python package"),
        ("opt", "2.18.3", "LD_LIBRARY_PATH"),
    ]


def test_nccl_inside_torch_is_seen(tmp_path: Path) -> None:
    write_elf(tmp_path / "torch" / "lib" / "libtorch_cuda.so", "NCCL_BUFFSIZE", VERSION)
    libraries = nccl_libraries(a_plan(), str(tmp_path / "torch"))
    assert own(libraries, tmp_path) == [("torch", "2.21.5", "static in torch")]
    write_elf(tmp_path / "torch" / "lib" / "libtorch_cuda.so", "TORCH_NCCL_BLOCKING_WAIT")
    assert own(nccl_libraries(a_plan(), str(tmp_path / "torch")), tmp_path) == []


def test_a_broken_library_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"\x7fELF")
    libraries = nccl_libraries(a_plan(environment={"LD_LIBRARY_PATH": str(tmp_path)}), "")
    assert own(libraries, tmp_path) == [("libnccl.so.2", "", "LD_LIBRARY_PATH")]
    assert version_inside(str(tmp_path / "none")) == ""


def test_network_plugins_are_where_the_loader_looks(tmp_path: Path) -> None:
    first, second = tmp_path / "ofi", tmp_path / "more"
    for folder, name in ((first, "libnccl-net.so"), (second, "libnccl-net-aws-ofi.so")):
        folder.mkdir()
        (folder / name).touch()
    (second / "libnccl-net.so").symlink_to(first / "libnccl-net.so")
    (second / "libnccl-tuner.so").touch()
    environment = {"LD_LIBRARY_PATH": f"{first}:{second}:{tmp_path}/none"}
    found = net_plugins(a_plan(environment=environment))
    assert [path for path in found if path.startswith(str(tmp_path))] == [
        f"{first}/libnccl-net.so",
        f"{second}/libnccl-net-aws-ofi.so",
    ]


def test_the_loaders_cache_is_read_as_ldconfig_prints_it() -> None:
    shown = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2\n"
        "\tlibnccl.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so\n"
    )
    assert cached_paths(shown, "libnccl.so.2") == ["/usr/lib/x86_64-linux-gnu/libnccl.so.2"]
    real = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    assert cached_paths(real.stdout, "libc.so.6")


@given(st.text())
def test_any_cache_listing_gets_an_answer(shown: str) -> None:
    assert all(cached_paths(shown, "libnccl.so.2"))


def test_this_interpreter_is_named() -> None:
    assert read_software(a_plan()).executable == sys.executable
