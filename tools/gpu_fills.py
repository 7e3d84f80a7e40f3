"""What comes onto GPUs through pinned memory is what was in memory: every GPU that is here.

    python -m tools.gpu_fills

With two or more GPUs also: copies out of both of them in one save, each after its own stream.
"""

from __future__ import annotations

import sys

import torch

from holdfast.checkpoint import copying
from holdfast.checkpoint.gpu_fills import ENOUGH, copy_to_gpus
from holdfast.checkpoint.tensors import NamedTensor

KINDS = (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64)


def main() -> int:
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if not gpus:
        print("no GPU")
        return 1
    for kind in KINDS:
        sizes = (1, 7, 3 << 20, ENOUGH // kind.itemsize + 13)
        sources = [(torch.rand(size) * 9 - 4).to(kind) for size in sizes]
        pairs = [(torch.zeros_like(one, device=gpu), one) for gpu in gpus for one in sources]
        copy_to_gpus(pairs, 8)
        assert all(torch.equal(target.cpu(), source) for target, source in pairs), kind
    tensors = []
    for gpu in gpus:
        slow = torch.ones(4096, 4096, device=gpu)
        for _ in range(50):  # still being computed when the copy is asked for
            slow = slow @ slow / 4096
        tensors.append(slow)
    views: list[torch.Tensor | None] = [torch.zeros(4096, 4096) for _ in gpus]
    copying.copy(views, [NamedTensor(str(n), each) for n, each in enumerate(tensors)], threads=4)
    found = zip(views, tensors, strict=True)
    assert all(view is not None and torch.equal(view, each.cpu()) for view, each in found)
    print(f"equal, on {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
