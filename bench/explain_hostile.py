"""What hostile and very large logs cost `explain`, as ratios: `python -m bench.explain_hostile`.

Each case is made at a size and at twice that size. A reader that is linear takes twice as long for
twice as much; one that compares every line or rank with every other takes four times. The last
column is the cost of a megabyte beside that of an ordinary training log. `--out FILE` writes the
table as a page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
    timeouts = timed_out(ranks, positions=3).splitlines(keepends=True)
    return b"".join((line % rank) + timeouts[rank] for rank in range(ranks))


def timed_out(ranks: int, positions: int) -> Log:
    """Every rank waits for those that wait at an earlier position."""
    timeout = (
        b"[rank%d]:[E1115 01:03:15.1 ProcessGroupNCCL.cpp:688] [Rank %d] Watchdog caught collective"
        b" operation timeout: WorkNCCL(SeqNum=%d, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        b"Timeout(ms)=600000) ran for 600015 milliseconds before timing out.\n"
    )
    return b"".join(timeout % (rank, rank, rank % positions) for rank in range(ranks))


def interleaved(lines: int, kind: bytes) -> Log:
    """64 ranks write in turns, line by line, so that none of their exceptions is in one piece."""
    written = (
        b"[rank%d]: Traceback (most recent call last):\n",
        b'[rank%d]:   File "/t.py", line 3, in f\n',
        b"[rank%d]: " + kind + b": bad batch\n",
    )
    return b"".join(written[n // 64 % 3] % (n % 64) for n in range(lines))


def pumped(lead: bytes, pump: bytes, end: bytes, lines: int) -> Log:
    return (lead + pump * (3500 // len(pump)) + end + b"\n") * lines


CASES: dict[str, Make] = {
    "ranks that all raise (2,500 and 5,000)": lambda n: errors_of_ranks(2500 * n, 5),
    "error lines of 8 ranks (200,000 and 400,000)": lambda n: errors_of_ranks(8, 8_334 * n),
    "error lines of 64 ranks, interleaved (100,000 and 200,000)": lambda n: interleaved(
        100_000 * n, b"ValueError"
    ),
    "a launcher's errors, interleaved (25,000 and 50,000)": lambda n: interleaved(
        25_000 * n, b"ChildFailedError"
    ),
    "ranks that lost a peer (2,500 and 5,000)": lambda n: lost_peers(2500 * n),
    "ranks that lost a peer (10,000 and 20,000)": lambda n: lost_peers(10_000 * n),
    "ranks at 8 positions (5,000 and 10,000)": lambda n: timed_out(5000 * n, 8),
    "ranks each at another position (500 and 1,000)": lambda n: timed_out(500 * n, 500 * n),
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


def rows(chosen: str = "") -> Iterator[tuple[str, float, float, float, float]]:
    """(case, megabytes, seconds, those beside half the size's, cost beside an ordinary log's)"""
    plain = ordinary(400_000)
    usual = min(seconds(plain) for _ in range(2)) / len(plain)
    for name, make in CASES.items():
        if chosen in name:
            small, large = make(1), make(2)
            once, twice = (min(seconds(log) for _ in range(2)) for log in (small, large))
            size = len(large)
            yield name, size / 1e6, twice, twice / max(once, 1e-3), twice / size / usual


def page(table: str) -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return f"""# Hostile and very large logs, {time.strftime("%Y-%m-%d", time.gmtime())}

`python -m bench.explain_hostile`, Python {python}: `explain` on each log at a size and at twice \
that size, the faster of two runs each. Seconds of processor for the larger one, how many times \
the smaller one's that is (2 is linear, 4 is its square), and what a megabyte costs beside a \
megabyte of an ordinary training log.

{table}
Thousands of ranks of which each waits at a position of its own, as no real job leaves them, are \
the one case that grows with the square: each position has other ranks missing from it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", nargs="?", default="", help="part of a case's name")
    parser.add_argument("--out", type=Path, help="a Markdown file to write")
    asked = parser.parse_args()
    table = [
        "| case | MB | seconds | twice the size takes | a MB beside an ordinary log's |",
        "|---|--:|--:|--:|--:|",
    ]
    print(*table, sep="\n", flush=True)
    for name, size, spent, growth, cost in rows(asked.case):
        table.append(f"| {name} | {size:.1f} | {spent:.1f} | {growth:.1f} x | {cost:.0f} x |")
        print(table[-1], flush=True)
    if asked.out:
        asked.out.write_text(page("\n".join(table) + "\n"))


if __name__ == "__main__":
    main()
