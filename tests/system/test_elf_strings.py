"""Names among a library's constants: whole words, tails the linker merged, hostile files."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.check.readers.software import find_torch
from holdfast.system.elf_strings import find_texts, find_words
from tests.system.elf_files import elf_bytes, write_elf

SOUND = elf_bytes(b"\0NCCL_DEBUG\0NCCL version 2.29.7+cuda13.2\0")


def test_a_whole_constant_is_found_and_a_part_of_a_word_is_not(tmp_path: Path) -> None:
    library = str(write_elf(tmp_path / "lib.so", "NCCL_DEBUG", "NCCL_IB_HCA_LIST is deprecated"))
    assert find_words(library, ["NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_DEB"]) == {"NCCL_DEBUG"}


def test_a_word_in_a_message_is_found(tmp_path: Path) -> None:
    library = str(write_elf(tmp_path / "lib.so", "set NCCL_DEBUG=INFO to see more"))
    assert find_words(library, ["NCCL_DEBUG"]) == {"NCCL_DEBUG"}


def test_the_tail_of_a_longer_constant_counts_because_linkers_merge_tails(tmp_path: Path) -> None:
    library = str(write_elf(tmp_path / "lib.so", "TORCH_NCCL_BLOCKING_WAIT"))
    assert find_words(library, ["NCCL_BLOCKING_WAIT", "NCCL_BLOCKING"]) == {"NCCL_BLOCKING_WAIT"}


@pytest.mark.parametrize(
    "constant", ["_DEFAULT_PG_NCCL_TIMEOUT", "kNCCL_TIMEOUT", "x.NCCL_TIMEOUTS"]
)
def test_the_tail_of_what_is_no_variable_proves_nothing(tmp_path: Path, constant: str) -> None:
    library = str(write_elf(tmp_path / "lib.so", constant))
    assert find_words(library, ["NCCL_TIMEOUT"]) == frozenset()


def test_a_name_with_a_trailing_space_is_not_found_in_prose(tmp_path: Path) -> None:
    library = str(write_elf(tmp_path / "lib.so", "NCCL_DEBUG is set", "NCCL_ALGO "))
    assert find_words(library, ["NCCL_DEBUG ", "NCCL_ALGO ", ""]) == {"NCCL_ALGO "}


def test_code_is_not_searched(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(elf_bytes(b"\0other\0", code=b"\0NCCL_DEBUG\0"))
    assert find_words(str(library), ["NCCL_DEBUG", "other"]) == {"other"}


def test_texts_are_given_up_to_their_end(tmp_path: Path) -> None:
    library = str(write_elf(tmp_path / "lib.so", "NCCL version mismatch", "NCCL version 2.21.5"))
    assert find_texts(library, "NCCL version ") == ["NCCL version mismatch", "NCCL version 2.21.5"]
    assert find_texts(library, "RCCL") == []


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF" + b"\0" * 100])
def test_what_is_no_elf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lib.so").write_bytes(content)
    with pytest.raises(ValueError, match=r"ELF|empty"):
        find_words(str(tmp_path / "lib.so"), ["NCCL_DEBUG"])


@given(
    cut=st.integers(0, len(SOUND)),
    changes=st.dictionaries(st.integers(0, len(SOUND) - 1), st.integers(0, 255), max_size=12),
)
def test_a_hostile_file_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, cut: int, changes: dict[int, int]
) -> None:
    content = bytearray(SOUND)
    for at, value in changes.items():
        content[at] = value
    library = tmp_path_factory.getbasetemp() / "hostile.so"
    library.write_bytes(content[:cut])
    with contextlib.suppress(ValueError):  # refused, which is an answer
        assert find_words(str(library), ["NCCL_DEBUG"]) <= {"NCCL_DEBUG"}
        assert all(t.startswith("NCCL version") for t in find_texts(str(library), "NCCL version"))


def test_torchs_own_library_of_400_mb_is_searched_in_a_moment() -> None:
    torch = find_torch()
    if torch is None:
        pytest.skip("needs torch")
    library = f"{torch.folder}/lib/libtorch_cpu.so"
    names = ["TORCH_DISTRIBUTED_DEBUG", "GLOO_SOCKET_IFNAME", "NCCL_REUSE_SOCKET_ADDR"]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        found = find_words(library, names)
        times.append(time.perf_counter() - start)
    assert found == {"TORCH_DISTRIBUTED_DEBUG", "GLOO_SOCKET_IFNAME"}
    assert min(times) < 0.3
