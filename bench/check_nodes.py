"""How long a check of 64 nodes keeps its coordinator busy: real coordinator, simulated nodes.

Gathering, handshakes, stages, judging and drawing are the code that `holdfast check` runs. The
nodes are tasks of one other process that join over loopback and answer at once with the facts of a
healthy machine, so that all that is measured is the coordinator. `--dying N` of them hang up when
they are asked for their paths.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator

from holdfast import catalogue
from holdfast.analysis.machine import Plan
from holdfast.analysis.nodes import (
    Listening,
    Node,
    NodesFacts,
    Outcome,
    PathLoss,
    PathSizes,
    PortKind,
    Reached,
    RouteTo,
    SizeProbe,
    Target,
)
from holdfast.check.nodes import messages
from holdfast.check.nodes.gather import COORDINATOR, Arrivals
from holdfast.check.nodes.survey import Survey, SurveyQuestion
from holdfast.check.plan import Flags
from holdfast.findings import Finding
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.clock_exchange import ClockPing, answer_ping
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.join import join
from holdfast.nodes.listener import listening
from holdfast.nodes.probing import messages as probing
from holdfast.nodes.token import fresh_token
from holdfast.view import nodes_text, text
from tests.faults.machines import a_plan
from tests.faults.made_nodes import a_node, a_target

TOKEN = fresh_token()
SIZES = (576, 1280, 1500, 4000, 9000)


class SimulatedNode:
    """Answers what the coordinator asks with what a healthy node would say."""

    def __init__(self, number: int, count: int, plan: Plan, findings: tuple[Finding, ...]) -> None:
        self.node: Node = a_node(number, count, plan)
        self._number = number
        self._findings = findings

    def answer(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.LookAtYourself():
                return messages.SelfReport(
                    facts=self.node.facts, findings=self._findings, boot_id=f"boot-{self._number}"
                )
            case messages.ResolveNames():
                names = self.node.names
                assert isinstance(names, tuple)
                return messages.ResolvedNames(names=names, store=None)
            case probing.OpenListeners():
                targets = tuple(a_target(self._number, kind) for kind in PortKind)
                return probing.OpenedListeners(listening=Listening(targets=targets, left_out=()))
            case probing.TryPaths():
                return self._paths(request)
            case ClockPing():
                return answer_ping(request)
        return messages.Sorry(why=f"{type(request).__name__} is not simulated")

    def _paths(self, request: probing.TryPaths) -> probing.TriedPaths:
        deep = [
            target
            for target in request.targets
            if target.node in request.in_depth and target.kind is PortKind.EPHEMERAL
        ]
        return probing.TriedPaths(
            routes=tuple(self._route(target) for target in request.targets),
            reach=tuple(self._reached(target) for target in request.targets),
            sizes=tuple(self._sizes(target) for target in deep),
            losses=tuple(self._loss(target) for target in deep),
        )

    def _route(self, target: Target) -> RouteTo:
        return RouteTo(
            source=self.node.name,
            target=target,
            interface="eth0",
            local_address=a_target(self._number).address,
            gateway="",
            mtu=1500,
            error="",
        )

    def _reached(self, target: Target) -> Reached:
        return Reached(
            source=self.node.name,
            target=target,
            outcome=Outcome.OK,
            error="",
            seconds=0.0004,
            local_address=a_target(self._number).address,
        )

    def _sizes(self, target: Target) -> PathSizes:
        return PathSizes(
            source=self.node.name,
            target=target,
            interface="eth0",
            mtu=1500,
            datagrams=tuple(SizeProbe(bytes=size, arrived=size <= 1500) for size in SIZES),
            messages=tuple(SizeProbe(bytes=1 << n, arrived=True) for n in (10, 16, 20)),
        )

    def _loss(self, target: Target) -> PathLoss:
        return PathLoss(
            source=self.node.name,
            target=target,
            sent=40,
            arrived=40,
            answered=40,
            median_seconds=0.0003,
        )


async def take_part(one: SimulatedNode, port: int, *, dies: bool) -> None:
    channel = await join(
        "127.0.0.1",
        port,
        token=TOKEN,
        understands=messages.Request,
        me=Introduction(node=one.node.name),
        seconds=60,
    )
    with contextlib.suppress(ChannelError):
        await channel.send(messages.Arrival(host=one.node.name))
        while True:
            request = await channel.receive(seconds=120)
            if isinstance(request, messages.Finish) or (
                dies and isinstance(request, probing.TryPaths)
            ):
                break
            await channel.send(one.answer(request))
    await channel.close()


def all_nodes(port: int, count: int, dying: int, plan: Plan) -> None:
    findings = tuple(catalogue.check(a_node(0, count, plan).facts, catalogue.choose((), ())))
    nodes = [SimulatedNode(number, count, plan, findings) for number in range(count)]

    async def talk() -> None:
        await asyncio.gather(
            *(take_part(one, port, dies=at >= count - dying) for at, one in enumerate(nodes))
        )

    asyncio.run(talk())


class Stopwatch:
    """Wall time and this process's CPU, by what was said when it began."""

    def __init__(self) -> None:
        self._laps: list[tuple[str, float, float]] = []
        self.lap("gathering")

    def lap(self, what: str) -> None:
        self._laps.append((what, time.perf_counter(), time.process_time()))

    def laps(self) -> Iterator[tuple[str, float, float]]:
        for (what, wall, cpu), (_, wall_end, cpu_end) in zip(
            self._laps, self._laps[1:], strict=False
        ):
            yield what, wall_end - wall, cpu_end - cpu


async def coordinate(count: int, dying: int, watch: Stopwatch) -> NodesFacts:
    plan = a_plan(min_nodes=count, max_nodes=count)
    arrivals = Arrivals(count, lambda _: None)
    async with listening(
        ["127.0.0.1"],
        0,
        token=TOKEN,
        understands=messages.Reply,
        serve=arrivals.serve,
        admit=arrivals.admit,
        me=COORDINATOR,
    ) as listener:
        nodes = multiprocessing.get_context("fork").Process(
            target=all_nodes, args=(listener.port, count, dying, plan)
        )
        nodes.start()
        await arrivals.settle(60)
        survey = Survey(arrivals.gathered((), ()), coordinator="node-a", say=watch.lap)
        question = SurveyQuestion(
            flags=Flags(nnodes=str(count)), plan=plan, only=(), skip=(), deadline=10, store_host=""
        )
        facts = await survey.conduct(question)
        await survey.finish(0, "done")
        arrivals.over()
        await asyncio.get_running_loop().run_in_executor(None, nodes.join)
    return facts


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=64)
    options.add_argument("--dying", type=int, default=0)
    options.add_argument("--show", action="store_true", help="the screen as well")
    asked = options.parse_args()
    began, cpu = time.perf_counter(), time.process_time()
    watch = Stopwatch()
    facts = asyncio.run(coordinate(asked.nodes, asked.dying, watch))
    watch.lap("judging")
    findings = catalogue.check_nodes(facts, catalogue.choose((), ()))
    watch.lap("drawing")
    screen = [
        nodes_text.matrix(facts),
        nodes_text.report(findings, facts, verbose=False, colour=False, width=100),
    ]
    watch.lap("end")
    if asked.show:
        print("\n\n".join(screen))
    for what, wall, used in watch.laps():
        print(f"{wall:7.2f} s  {used:7.2f} s CPU  {what}")
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    worst = text.count(findings)
    print(f"\n{len(facts.nodes)} nodes, {len(facts.absent)} lost, findings: {worst}")
    print(f"{wall:.2f} s in all; the coordinator used {used:.2f} s of CPU and {memory:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
