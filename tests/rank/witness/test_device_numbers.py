"""Numbers of any kind come back as they were, and those that take their time keep their order."""

from __future__ import annotations

import math
import threading
import time

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness.device_numbers import DeviceNumbers, WaitingRecords, as_float
from tests.rank.ranks import wait_for


@given(
    whole=st.lists(st.integers(-(2**63), 2**63 - 1)), broken=st.lists(st.floats(allow_nan=False))
)
def test_every_bit_comes_back(whole: list[int], broken: list[float]) -> None:
    tensors = [torch.tensor(one, dtype=torch.int64) for one in whole]
    tensors += [torch.tensor(one, dtype=torch.float64) for one in broken]
    read = DeviceNumbers(torch, tensors).read()
    assert read[: len(whole)] == whole
    assert [as_float(one) for one in read[len(whole) :]] == broken


def test_narrow_floats_keep_their_value() -> None:
    tensors = [torch.tensor(1.5).to(kind) for kind in (torch.bfloat16, torch.float16)]
    assert [as_float(one) for one in DeviceNumbers(torch, tensors).read()] == [1.5, 1.5]
    (nan,) = DeviceNumbers(torch, [torch.tensor(float("nan"))]).read()
    assert math.isnan(as_float(nan))


class SlowNumbers(DeviceNumbers):
    """As those of a GPU that is still at work."""

    def __init__(self, number: int) -> None:
        super().__init__(torch, [torch.tensor(number)])
        self.done = threading.Event()

    @property
    def here(self) -> bool:
        return self.done.is_set()


class FailedNumbers(SlowNumbers):
    def read(self) -> list[int]:
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_the_script_does_not_wait_and_the_order_is_kept() -> None:
    problems: list[BaseException] = []
    read: list[list[int]] = []
    waiting = WaitingRecords(problems.append)
    waiting.add(DeviceNumbers(torch, [torch.tensor(1)]), read.append)
    assert read == [[1]], "no thread where no GPU is used"
    slow, failed = SlowNumbers(2), FailedNumbers(3)
    waiting.add(slow, read.append)
    waiting.add(failed, read.append)
    waiting.add(DeviceNumbers(torch, [torch.tensor(4)]), read.append)
    began = time.monotonic()
    waiting.finish(0.05)
    assert time.monotonic() - began >= 0.05
    assert read == [[1]]
    slow.done.set()
    wait_for(lambda: len(read) == 2, "the second is read")
    failed.done.set()
    waiting.finish(60)
    assert read == [[1], [2], [4]]
    assert len(problems) == 1
