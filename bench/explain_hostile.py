"""What hostile and very large logs cost `explain`, as ratios: `python -m bench.explain_hostile`.

Each case is made at a size and at twice that size. A reader that is linear takes twice as long for
twice as much; one that compares every line or rank with every other takes four times. The last
column is the cost of a megabyte beside that of an ordinary training log.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes

Log = bytes
Make = Callable[[int], Log]
FAULTS = [entry.fault for entry in catalogue.entries()]


def ordinary(size: int) -> Log:
    return b"".join(b"[rank%d]: step %d loss 0.1 lr 1e-4\n" % (n % 8, n) for n in range(size))


def errors_of_ranks(ranks: int, each: int) -> Log:
    """Every rank raises, in turns, as a job of that size leaves it."""
    lines = (
        b'[rank%d]: Traceback (most recent call last):\n[rank%d]:   File "/t.py", line %d, in f\n'
        b"[rank%d]: ValueError: bad batch %d\n" % (rank, rank, turn + 1, rank, turn)
        for turn in range(each)
        for rank in range(ranks)
    )
    return b"".join(lines)


def lost_peers(ranks: int) -> Log:
    line = (
        b"[rank%d]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read "
        b"error [192.0.2.7]:23621: Connection reset by peer\n"
    )
    timeout = (
        b"[rank%d]:[E1115 01:03:15.1 ProcessGroupNCCL.cpp:688] [Rank %d] Watchdog caught collective"
        b" operation timeout: WorkNCCL(SeqNum=%d, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        b"Timeout(ms)=600000) ran for 600015 milliseconds before timing out.\n"
    )
    return b"".join((line % rank) + (timeout % (rank, rank, rank % 3)) for rank in range(ranks))


def pumped(lead: bytes, pump: bytes, end: bytes, lines: int) -> Log:
    return (lead + pump * (3500 // len(pump)) + end + b"\n") * lines


CASES: dict[str, Make] = {
    "ranks that all raise (2,500 and 5,000)": lambda n: errors_of_ranks(2500 * n, 5),
    "error lines of 8 ranks (200,000 and 400,000)": lambda n: errors_of_ranks(8, 8_334 * n),
    "ranks that lost a peer (2,500 and 5,000)": lambda n: lost_peers(2500 * n),
    "ping with very long numbers": lambda n: pumped(
        b"1 packets transmitted, 1 received,", b"1", b" % packet loss", 150 * n
    ),
    "undefined symbols": lambda n: pumped(b"", b"a.so.", b": undefined symbol: ", 150 * n),
    "allocator with very long numbers": lambda n: pumped(
        b"torch.OutOfMemoryError: CUDA out of memory. ", b"1", b" MiB", 150 * n
    ),
    "nothing but carriage returns": lambda n: b"\r" * (1_000_000 * n),
    "one line without an end": lambda n: b"Traceback " + b"x" * (4_000_000 * n),
    "unfinished tracebacks": lambda n: b"Traceback (most recent call last):\n" * (8_000 * n),
    "open brackets of JSON": lambda n: b'{"log":"' * (60_000 * n),
    "escapes of a terminal": lambda n: b"\x1b]0;\x1b[" * (200_000 * n),
}


def seconds(log: Log) -> float:
    began = time.process_time()
    diagnose(gather_bytes({"job.log": log}), FAULTS)
    return time.process_time() - began


def rows(chosen: str = "") -> Iterator[tuple[str, float, float, float]]:
    """(case, megabytes, time of twice the size, cost beside an ordinary log's)"""
    plain = ordinary(400_000)
    usual = min(seconds(plain) for _ in range(2)) / len(plain)
    for name, make in CASES.items():
        if chosen in name:
            small, large = make(1), make(2)
            once, twice = seconds(small), seconds(large)
            yield name, len(large) / 1e6, twice / max(once, 1e-3), twice / len(large) / usual


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", nargs="?", default="", help="part of a case's name")
    print("| case | MB | twice the size takes | a MB beside an ordinary log's |")
    print("|---|---|---|---|")
    for name, size, growth, cost in rows(parser.parse_args().case):
        print(f"| {name} | {size:.1f} | {growth:.1f} x | {cost:.0f} x |", flush=True)


if __name__ == "__main__":
    main()
