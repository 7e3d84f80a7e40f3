"""The numbers in torch's sentence about a full GPU, in every version of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs import gpu_memory

GIB = 1 << 30

OLDEST = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 11.00 GiB total capacity; 6.00 GiB "
    "already allocated; 1.00 GiB free; 0.50 GiB cached)"
)
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; 100.00 MiB "
    "already allocated; 12.00 MiB free; 128.00 MiB reserved in total by PyTorch) If reserved "
    "memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
)
TYPO = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacty of 80.00 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 17179869183.99 GiB "
    "memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 6.00 GiB is "
    "reserved by PyTorch but unallocated."
)
NEW = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 80.00 GiB of "
    "which 0.50 GiB is free. Process 4711 has 60.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 19.50 GiB memory in use. Of the allocated memory 18.00 GiB is "
    "allocated by PyTorch, and 0.75 GiB is reserved by PyTorch but unallocated."
)
CONTAINED = (
    "Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 4.00 GiB is "
    "free. Process 1175851 has 19.80 GiB memory in use. Of the allocated memory 14.00 GiB is "
    "allocated by PyTorch, and 5.50 GiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("text", "gpu", "total", "own", "foreign"),
    [
        (OLDEST, 1, 11, 6.5, 3.5),
        (OLD, 0, 24, 0.125, 23.86),
        (TYPO, 3, 80, 76, 3),
        (NEW, 0, 80, 19.5, 60),
        (CONTAINED, 0, 24, 19.5, 0.5),
    ],
)
def test_every_version_of_the_sentence(
    text: str, gpu: int, total: float, own: float, foreign: float
) -> None:
    short = gpu_memory.read([text])
    assert short.gpu == gpu
    assert short.total == total * GIB
    assert short.own == pytest.approx(own * GIB)
    assert short.foreign == pytest.approx(foreign * GIB, rel=0.01)


def test_others_are_named_but_not_the_speaker_itself() -> None:
    assert gpu_memory.read([NEW]).others == ((4711, 60 * GIB),)
    assert gpu_memory.read([CONTAINED]).others == ()


def test_a_context_alone_is_no_foreign_share() -> None:
    assert gpu_memory.read([CONTAINED]).foreign_share == 0
    assert gpu_memory.read([NEW]).foreign_share == pytest.approx(0.75)


def test_a_cut_line_gives_what_it_has() -> None:
    short = gpu_memory.read(["Tried to allocate 2.50 GiB. GPU 0 has a tot"])
    assert (short.tried, short.total, short.foreign, short.foreign_share) == (
        2.5 * GIB,
        None,
        None,
        0,
    )


@given(st.lists(st.sampled_from([OLD, NEW, TYPO, "GPU 9; ", " 1 GiB"]) | st.text(), max_size=4))
def test_any_text_is_read(texts: list[str]) -> None:
    assert 0 <= gpu_memory.read(texts).foreign_share <= 1
