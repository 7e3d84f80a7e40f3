"""How long the verdict over a job takes, by the number of its ranks.

The scene is what a coordinator of many nodes judges: eight ranks a node, one world group, groups
of data and tensor parallel ranks, 64 recorded collectives a rank. Shown are the processor time of
one verdict, the same per rank, and beside how long msgspec takes to decode such a scene, as a
measure of this machine.

    python -m bench.judge [--ranks 64 256 1024] [--laps N] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time

import msgspec

from holdfast import text
from holdfast.analysis.scene.scene import Scene
from holdfast.run.watch import verdict
from tests.run.big_scenes import BIG, big_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--laps", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="of the largest, by scene")
    arguments = parser.parse_args()
    print(f"{'scene':24}{'ranks':>7}{'verdict':>12}{'per rank':>12}{'x decode':>10}  named")
    for name in BIG:
        for ranks in arguments.ranks:
            print(_line(name, ranks, arguments.laps))
        if arguments.profile:
            _profile(big_scene(name, max(arguments.ranks)))


def _line(name: str, ranks: int, laps: int) -> str:
    taken = statistics.median(judging_time(big_scene(name, ranks)) for _ in range(laps))
    decoded = statistics.median(decoding_time(big_scene(name, ranks)) for _ in range(laps))
    found = verdict.judge(big_scene(name, ranks))
    said = f"{found.slug} {text.some_numbers(found.ranks)}" if found else "-"
    each = f"{taken / ranks * 1e6:.0f} us"
    return f"{name:24}{ranks:7}{taken * 1e3:9.1f} ms{each:>12}{taken / decoded:10.2f}  {said}"


def judging_time(scene: Scene) -> float:
    """Of a scene that was never asked anything: it remembers answers."""
    began = time.process_time()
    verdict.consider(scene)
    return time.process_time() - began


def decoding_time(scene: Scene) -> float:
    packed = msgspec.msgpack.encode(scene)
    began = time.process_time()
    msgspec.msgpack.decode(packed, type=Scene)
    return time.process_time() - began


def _profile(scene: Scene) -> None:
    profile = cProfile.Profile()
    profile.runcall(verdict.consider, scene)
    pstats.Stats(profile).sort_stats("cumulative").print_stats(35)


if __name__ == "__main__":
    main()
