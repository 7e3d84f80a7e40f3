"""Which installed program holds a variable's name, and when absence proves something."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import VariableSearch
from holdfast.check.readers.software import find_torch
from holdfast.check.readers.variable_search import read_variable_search, words_in_source
from tests.faults.machines import a_plan
from tests.system.elf_files import write_elf

pytestmark = pytest.mark.usefixtures("torch_not_imported")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that comes before all others."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return folder


def search(root: Path, **environment: str) -> VariableSearch:
    return read_variable_search(a_plan(environment=environment), root=str(root))


def plant_torch(site: Path, *, gpu: bool) -> None:
    torch = site / "torch"
    write_elf(torch / "lib" / "libtorch_cpu.so", "GLOO_SOCKET_IFNAME", "TORCH_FR_BUFFER_SIZE")
    write_elf(torch / "lib" / "libtorch_python.so", "ProcessGroupGloo")
    if gpu:
        write_elf(torch / "lib" / "libtorch_cuda.so", "TORCH_NCCL_BLOCKING_WAIT")
    (torch / "distributed").mkdir()
    (torch / "distributed" / "api.py").write_text("os.environ['TORCHELASTIC_ERROR_FILE']\n")
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '9.9.9'\n")


def plant_nccl(site: Path) -> None:
    write_elf(site / "nvidia/nccl/lib/libnccl.so.2", "NCCL_DEBUG", "NCCL version 9.8.7")


def test_nothing_set_is_answered_at_once(tmp_path: Path) -> None:
    empty = VariableSearch(searched=(), prefixes=(), found={})
    assert search(tmp_path, RANK="0", OMP_NUM_THREADS="4") == empty


def test_a_variable_that_no_program_reads_is_found_nowhere(site: Path) -> None:
    plant_torch(site, gpu=True)
    plant_nccl(site)
    found = search(site, NCCL_DEBUG="INFO", NCCL_REUSE_SOCKET_ADDR="0", TORCHELASTIC_ERROR_FILE="x")
    assert found.found == {
        "NCCL_DEBUG": ("libnccl.so.2 (NCCL 9.8.7)",),
        "NCCL_REUSE_SOCKET_ADDR": (),
        "TORCHELASTIC_ERROR_FILE": ("torch.distributed (torch 9.9.9)",),
    }
    assert {"NCCL_", "TORCH_NCCL_", "TORCHELASTIC_", "GLOO_"} <= set(found.prefixes)
    assert "libtorch_cuda.so (torch 9.9.9)" in found.searched


def test_a_variable_that_is_not_set_can_be_asked_for(site: Path) -> None:
    plan = a_plan(environment={})
    found = read_variable_search(plan, root=str(site), also=["NCCL_TIMEOUT", "EDITOR"])
    assert found.found == {"NCCL_TIMEOUT": ()}


def test_a_cpu_build_proves_nothing_about_nccl(site: Path) -> None:
    plant_torch(site, gpu=False)
    plant_nccl(site)
    found = search(site, NCCL_X="1", TORCH_NCCL_X="1", GLOO_X="1")
    assert "GLOO_" in found.prefixes
    assert not {"NCCL_", "TORCH_NCCL_"} & set(found.prefixes)


def test_a_library_that_cannot_be_read_proves_nothing(site: Path) -> None:
    plant_torch(site, gpu=True)
    (site / "torch" / "lib" / "libtorch_cpu.so").write_bytes(b"\x7fELF, cut short")
    found = search(site, GLOO_X="1", TORCH_NCCL_X="1")
    assert not {"GLOO_", "TORCH_NCCL_"} & set(found.prefixes)
    assert not any(label.startswith("libtorch_cpu") for label in found.searched)


def test_a_plugin_of_nccl_may_read_more(site: Path, tmp_path: Path) -> None:
    plant_torch(site, gpu=True)
    plant_nccl(site)
    named = {"NCCL_NET_PLUGIN": "fast", "NCCL_FAST_X": "1", "LD_LIBRARY_PATH": str(tmp_path / "p")}
    assert "NCCL_" not in search(site, **named).prefixes, "the plugin was not there to search"
    write_elf(tmp_path / "p" / "libnccl-net-fast.so", "NCCL_FAST_X")
    found = search(site, **named)
    assert found.found["NCCL_FAST_X"] == ("libnccl-net-fast.so",)
    assert "NCCL_" in found.prefixes


def test_accelerate_is_searched_where_it_is_installed(site: Path, tmp_path: Path) -> None:
    package = site / "accelerate" / "utils"
    package.mkdir(parents=True)
    (site / "accelerate" / "__init__.py").touch()
    (package / "launch.py").write_text("os.environ['ACCELERATE_USE_CPU']\n")
    importlib.invalidate_caches()
    found = search(tmp_path, ACCELERATE_USE_CPU="1", ACCELERATE_DISABLE_NCCL="1")
    # a real one may be installed behind it, and lend its version
    (reader,) = found.found.pop("ACCELERATE_USE_CPU")
    assert reader.split()[0] == "accelerate"
    assert found.found == {"ACCELERATE_DISABLE_NCCL": ()}
    assert "ACCELERATE_" in found.prefixes


def test_the_installed_torch_is_searched_without_being_imported(tmp_path: Path) -> None:
    if find_torch() is None:
        pytest.skip("needs torch")
    found = search(tmp_path, TORCH_DISTRIBUTED_DEBUG="INFO", TORCH_DISTRIBUTED_NONSENSE="1")
    assert found.found["TORCH_DISTRIBUTED_DEBUG"]
    assert found.found["TORCH_DISTRIBUTED_NONSENSE"] == ()
    assert "TORCH_DISTRIBUTED_" in found.prefixes
    assert "torch" not in sys.modules


def test_names_in_source_may_be_put_together() -> None:
    source = b'prefix = "ACCELERATE_DYNAMO_"\nos.environ.get("ACCELERATE_USE_CPU_ONLY")\n'
    asked = ["ACCELERATE_DYNAMO_BACKEND", "ACCELERATE_USE_CPU", "ACCELERATE_USE_CPU_ONLY"]
    assert words_in_source(source, asked) == {
        "ACCELERATE_DYNAMO_BACKEND",
        "ACCELERATE_USE_CPU_ONLY",
    }


@given(source=st.binary(), name=st.text(max_size=20).map("NCCL_".__add__))
def test_any_source_and_name_get_an_answer(source: bytes, name: str) -> None:
    assert words_in_source(source, [name]) <= {name}
    if name.isascii() and name.isidentifier():
        assert words_in_source(source + b"\n" + name.encode() + b"\n", [name]) == {name}
