"""What the links of a job's launchers cost its coordinator, beside decoding what they say.

64 launchers of 8 ranks each, in processes of their own, send five reports a second, pulses and
datagrams. Measured is the processor time of the coordinator's link thread, in turn with that of
decoding the same reports alone, because timings on a shared machine are noisy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from typing import Any

import msgspec

from holdfast.analysis.scene.clock_shift import ClockShift
from holdfast.nodes.token import Token, TokenSource
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.link.interface import NodeJoined
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.link.report_codec import ReportDecoder, ReportEncoder
from holdfast.run.nodes.link.wire_messages import FromLauncher, Said
from holdfast.run.nodes.messages import NodeCard, NodeReport
from tests.run.scenes import a_beat, a_rank, an_activity

TOKEN = Token(b"x" * 32, TokenSource.FRESH)  # the same in all of its processes
EVERY = 0.2


def a_report(ranks: int, number: int) -> NodeReport:
    now = time.monotonic()
    views = [
        a_rank(
            rank,
            beat=a_beat(steps=number, step_at=now, beat_at=now),
            activity=an_activity(cpu=now, io=10**11 + number, socket=10**11),
            alive_at=now,
            state_since=now,
        )
        for rank in range(ranks)
    ]
    return NodeReport(round=1, at=now, ranks=tuple(views))


def launchers(port: int, first: int, count: int, ranks: int, end: Any) -> None:
    links = [
        JoinedLink(
            "127.0.0.1",
            port,
            token=TOKEN,
            card=NodeCard(name=f"n{n}", identity=f"n{n}", nproc=ranks),
            seconds=120.0,
        )
        for n in range(first, first + count)
    ]
    number = 0
    while not end.wait(EVERY):
        number += 1
        report = a_report(ranks, number)
        for link in links:
            link.send(report)
    for link in links:
        link.close()


def decoding(ranks: int, count: int) -> tuple[float, int]:
    """Seconds of processor time for one report, and its bytes."""
    encoder, decoder = ReportEncoder(), ReportDecoder()
    shift = ClockShift(1.0, 1.0)
    updates = [encoder.update(a_report(ranks, n), shift, 0.01) for n in range(count)]
    raw = [msgspec.msgpack.encode(Said(n, update)) for n, update in enumerate(updates)]
    wire = msgspec.msgpack.Decoder(FromLauncher)
    began = time.process_time()
    for one in raw:
        decoder.report(wire.decode(one).message)
    return (time.process_time() - began) / count, len(raw[-1])


def thread_seconds() -> float:
    ident = next(t.ident for t in threading.enumerate() if t.name == "holdfast-link")
    assert ident
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--launchers", type=int, default=64)
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--processes", type=int, default=4)
    asked = options.parse_args()
    link = ListeningLink(["127.0.0.1"], 0, token=TOKEN, node="coordinator", run="bench")
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    share = asked.launchers // asked.processes
    started = [
        context.Process(target=launchers, args=(link.port, n * share, share, asked.ranks, end))
        for n in range(asked.processes)
    ]
    for process in started:
        process.start()
    joined = 0
    while joined < share * asked.processes:
        link.wait(1.0)
        joined += sum(isinstance(news, NodeJoined) for news in link.news())
    time.sleep(2.0)
    link.news()
    before, began = thread_seconds(), time.perf_counter()
    time.sleep(asked.seconds)
    used, passed = thread_seconds() - before, time.perf_counter() - began
    reports = len(link.news())
    hearing = sorted({heard.hearing for heard in link.heard().values()})
    end.set()
    for process in started:
        process.join()
    link.close()
    one, size = decoding(asked.ranks, 2000)
    print(f"{joined} launchers of {asked.ranks} ranks: {reports / passed:.0f} reports/s, {hearing}")
    print(f"a report has {size} bytes, {size / asked.ranks:.0f} a rank")
    print(f"the link's thread uses {used / passed:.1%} of a core")
    print(
        f"decoding the same reports alone: {reports * one / passed:.1%} ({one * 1e6:.0f} µs each)"
    )
    print(f"ratio {used / (reports * one):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
