"""`python -m bench.plan_shards`: how long 1,024 ranks with 45,000 tensors take to plan a save.

By simulation on one core: rank 0's work with the messages of all ranks, and one rank's own, which
all ranks do at the same time. Seconds of processor time; time on the
network is not in it, the bytes are shown.
"""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from holdfast.checkpoint.sharded_agreement import HeldDigest
from holdfast.checkpoint.sharded_index import ShardIndex
from holdfast.checkpoint.sharded_layout import LayoutGrid, ShardLayout, whole
from holdfast.checkpoint.sharded_plan import (
    WHOLE,
    Grids,
    HeldState,
    HeldTensor,
    RankGroup,
    merge,
    pieces_to_write,
)


def held(ranks: int, tensors: int) -> HeldState:
    """FSDP2 over all ranks with AdamW: of each parameter three sharded tensors and a step."""
    layout = ShardLayout((ranks,), tuple(range(ranks)), ((0, 1),))
    found = []
    for number in range(tensors // 4):
        name, size = f"layers.{number}.weight", (4096 + 128 * (number % 8), 1024)
        found.append(HeldTensor(f"model.{name}", "bfloat16", size, 0))
        found += [
            HeldTensor(f"optimizer.{name}.{key}", "float32", size, 0)
            for key in ("exp_avg", "exp_avg_sq")
        ]
        found.append(HeldTensor(f"optimizer.{name}.step", "float32", (), WHOLE))
    return HeldState((layout,), tuple(found))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=45_000)
    asked = parser.parse_args(arguments)
    mine = held(asked.ranks, asked.tensors)
    times = [time.process_time()]
    text = msgspec.json.encode(HeldDigest(mine).held)
    times.append(time.process_time())
    plan = merge([RankGroup(tuple(range(asked.ranks)), msgspec.json.decode(text, type=HeldState))])
    index = plan.index.to_json()
    times.append(time.process_time())
    pieces_to_write(asked.ranks - 1, mine, plan.holders[0], Grids())
    times.append(time.process_time())
    read = ShardIndex.from_node(msgspec.json.decode(index))
    other = LayoutGrid(ShardLayout((asked.ranks // 2,), tuple(range(asked.ranks // 2)), ((0, 1),)))
    for name, saved in read.items():
        list(read.overlaps(name, other.piece(saved.size, 5) if saved.size else whole(())))
    times.append(time.process_time())
    steps = ("describe", "merge and index (rank 0)", "what to write", "a load by half the ranks")
    for what, start, end in zip(steps, times, times[1:], strict=False):
        print(f"| {what} | {end - start:.2f} s |")
    print(f"| a save in all | {times[3] - times[0]:.2f} s |")
    print(f"| description, sent once | {len(text) / 1e6:.1f} MB |")
    print(f"| index | {len(index) / 1e6:.1f} MB |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
