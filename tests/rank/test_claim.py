"""What a rank says it is: as torch will find it, from inside a real rank, without side effects."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.rank import claim
from holdfast.rank.claim import LONGEST, claimed, device, found_on
from tests.rank.ranks import free_port, place, ran

ENVIRONMENT = place(1, 4, 29400)
TCP = SimpleNamespace(host="10.0.0.5", port=7000)
FILE = SimpleNamespace(path="/tmp/one/store")
PREFIXED = SimpleNamespace(underlying_store=SimpleNamespace(underlying_store=TCP))


@pytest.mark.parametrize(
    ("arguments", "rank", "world", "store", "own"),
    [
        ({}, 1, 4, "127.0.0.1:29400", False),
        ({"init_method": "env://"}, 1, 4, "127.0.0.1:29400", False),
        ({"rank": 0, "world_size": 2}, 0, 2, "127.0.0.1:29400", False),
        ({"init_method": "env://?rank=3&world_size=5"}, 3, 5, "127.0.0.1:29400", False),
        ({"init_method": "tcp://a:1", "rank": 2, "world_size": 3}, 2, 3, "a:1", False),
        ({"init_method": "tcp://[fe80::1]:1?rank=2"}, 2, -1, "fe80::1:1", False),
        ({"init_method": "file:///tmp/x", "rank": 0, "world_size": 1}, 0, 1, "/tmp/x", False),
        ({"init_method": "etcd://me:secret@a:1"}, -1, -1, "a:1", False),
        ({"store": TCP, "rank": 2, "world_size": 3}, 2, 3, "10.0.0.5:7000", True),
        ({"store": PREFIXED, "rank": 2, "world_size": 3}, 2, 3, "10.0.0.5:7000", True),
        ({"store": FILE, "rank": 0, "world_size": 1}, 0, 1, "/tmp/one/store", True),
        ({"store": object(), "rank": 2, "world_size": 3}, 2, 3, "", True),
        ({"init_method": f"file:///{'x' * 999}"}, -1, -1, "/" + "x" * (LONGEST - 1), False),
    ],
)
def test_it_is_read_as_torch_reads_it(
    arguments: dict[str, Any], rank: int, world: int, store: str, own: bool
) -> None:
    asked = {"rank": -1, "world_size": -1, "init_method": None, "store": None, **arguments}
    wanted = {"rank": rank, "world_size": world, "store": store, "own_store": own}
    assert claimed(asked, ENVIRONMENT) == wanted


def test_what_is_no_number_is_left_to_torch_to_refuse() -> None:
    asked = {"rank": -1, "world_size": -1}
    assert claimed(asked, {"RANK": "two"})["rank"] == -1
    assert claimed(asked, {"RANK": "9" * 99})["rank"] == -1
    assert claimed(asked, {})["store"] == ""


class Cuda:
    """As much of torch.cuda as is asked; the machine of the tests has no GPU."""

    def __init__(self, *, initialized: bool, names: tuple[str, ...] = ("GPU-a", "GPU-b")) -> None:
        self.initialized, self.names = initialized, names

    def is_initialized(self) -> bool:
        return self.initialized

    def current_device(self) -> int:
        assert self.initialized, "would have been the first to touch CUDA"
        return 0

    def get_device_properties(self, index: int) -> SimpleNamespace:
        assert self.initialized, "would have been the first to touch CUDA"
        return SimpleNamespace(uuid=self.names[index])


@pytest.mark.parametrize(
    ("before", "on_gpu", "after"),
    [("", True, "GPU-b"), ("", False, ""), ("GPU-a", True, "GPU-a")],
)
def test_the_first_step_tells_the_gpu_where_init_process_group_could_not(
    monkeypatch: pytest.MonkeyPatch, before: str, on_gpu: bool, after: str
) -> None:
    monkeypatch.setattr(claim, "_said", {"device": before})
    parameter = SimpleNamespace(is_cuda=on_gpu, device=SimpleNamespace(index=1))
    found_on(
        SimpleNamespace(cuda=Cuda(initialized=True)), [{"params": []}, {"params": [parameter]}]
    )
    assert claim._said["device"] == after


@pytest.mark.parametrize(
    ("cuda", "asked", "expected"),
    [
        (Cuda(initialized=False), None, ""),
        (Cuda(initialized=False), SimpleNamespace(index=1), ""),
        (Cuda(initialized=True), None, "GPU-a"),
        (Cuda(initialized=True), SimpleNamespace(index=1), "GPU-b"),
        (Cuda(initialized=True, names=()), None, ""),  # the driver refuses
    ],
)
def test_the_gpu_is_reported_and_cuda_never_started_for_it(
    cuda: Cuda, asked: object, expected: str
) -> None:
    assert device(SimpleNamespace(cuda=cuda), asked) == expected


SCRIPT = """
import os
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo")
dist.new_group()
print(dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
if "STRAY" in os.environ:
    os.environ.update(RANK="7", WORLD_SIZE="9", MASTER_PORT=os.environ["STRAY"])
    dist.init_process_group("gloo", rank=1, timeout=timedelta(seconds=1))
"""


def test_a_claim_is_reported_before_the_wait_and_leaves_no_frame(tmp_path: Path) -> None:
    port, stray = free_port(), free_port()
    before = time.monotonic()
    rank = ran(tmp_path, SCRIPT, place(0, 1, port, STRAY=str(stray)))
    assert rank.process.returncode == 1
    assert rank.last is not None
    claim = rank.last.claim
    assert claim is not None
    assert (claim.rank, claim.world_size, claim.store) == (1, 9, f"127.0.0.1:{stray}")
    given = (claim.given_rank, claim.given_world_size, claim.given_store)
    assert given == (0, 1, f"127.0.0.1:{port}")
    assert (claim.timeout, claim.own_store, claim.agent_store) == (1.0, False, False)
    assert before < claim.at < time.monotonic()
    assert (claim.first, claim.remade) == (False, 0)  # the one destroyed was of another store
    assert abs(claim.wall - time.time() + time.monotonic() - claim.at) < 1.0
    assert "DistNetworkError" in rank.err.read_text()
    assert "holdfast" not in rank.err.read_text()


AGAIN = """
import sys
import torch.distributed as dist
for _ in range(2):
    store = dist.FileStore(sys.argv[0] + ".store", 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    dist.destroy_process_group()
"""


def test_a_group_that_was_destroyed_leaves_a_former_claim_that_counts_how_often(
    tmp_path: Path,
) -> None:
    rank = ran(tmp_path, AGAIN, place(0, 1, free_port()))
    assert rank.process.returncode == 0, rank.err.read_text()
    assert rank.last is not None
    assert rank.last.torch_imported
    assert rank.last.claim is None
    former = rank.last.former_claim
    assert former is not None
    assert (former.rank, former.world_size, former.own_store) == (0, 1, True)
    assert former.store.endswith(".store")
    assert (former.first, former.remade) == (False, 1)
