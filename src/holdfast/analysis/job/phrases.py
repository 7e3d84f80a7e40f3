"""How we speak of ranks and of what happened to them, the same in every verdict."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence

from holdfast import text
from holdfast.analysis.checkpoints import torch_advice
from holdfast.analysis.collectives import inner_exception
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import LastWords, RankView, Scene, SurvivingProcess
from holdfast.analysis.scene.surroundings import machines, node_of
from holdfast.findings import Evidence

LONGEST = 200
"""characters of an exception that fit into a sentence; the whole of it is in the run folder"""
MOST = 4
"""processes named one by one"""
NODES = 3
"""nodes named beside their ranks"""


def who(scene: Scene, ranks: Iterable[int]) -> str:
    """'rank 2 (pid 4711)', 'ranks 0-1,3'; with several nodes 'rank 5 (node b, pid 4711)',
    'ranks 4-7 on node b', 'ranks 1 (node a), 4-5 (node b)'."""
    listed = sorted(set(ranks))
    at = [one for one in machines(scene, listed) if one.node]
    if len(listed) == 1:
        node = f"node {at[0].node}, " if at else ""
        return f"rank {listed[0]} ({node}pid {scene.rank(listed[0]).pid})"
    if len(at) == 1:
        return f"ranks {text.some_numbers(listed)} on node {at[0].node}"
    if 1 < len(at) <= NODES:
        return "ranks " + ", ".join(f"{text.some_numbers(o.ranks)} (node {o.node})" for o in at)
    return f"ranks {text.some_numbers(listed)}"


def on_node(scene: Scene, rank: int) -> str:
    """' on node b', after what is to be done there; '' on one machine."""
    node = node_of(scene, rank)
    return f" on node {node.name}" if node else ""


def pid_command(scene: Scene, start: str, ranks: Iterable[int]) -> str:
    """'`kill -CONT 4711 4712`', with several nodes '`kill -CONT 4711` on node b'."""
    return ", ".join(
        f"`{start} {' '.join(str(scene.rank(rank).pid) for rank in one.ranks)}`"
        + (f" on node {one.node}" if one.node else "")
        for one in machines(scene, ranks)
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def stop_name(sign: str) -> str:
    """As people call it: 'SIGINT' is Ctrl-C."""
    return "Ctrl-C" if sign == "SIGINT" else sign


def quoted(words: LastWords) -> str:
    """'ValueError: bad batch at train.py:88 in forward', on one line; of an exception that came
    from a DataLoader worker that one."""
    if inner := inner_exception.find(words.text):
        return text.shorten(inner.words(), 2 * LONGEST)
    short = text.shorten(" ".join(torch_advice.without(words.text).split()), LONGEST)
    where = f" at {words.where}" if words.where else ""
    return (f"{words.kind}: {short}" if short else words.kind) + where


def at_step(view: RankView) -> str:
    steps = view.beat.steps if view.beat else 0
    return f" after step {steps}" if steps else ""


def how_it_ended(ending: Ending) -> Evidence:
    """The plain record of one ending."""
    view = ending.view
    if view.words:
        quote = quoted(view.words)
    elif ending.signal:
        quote = f"ended by {signal_name(ending.signal)}"
    else:
        quote = f"exit code {exit_code(view)}{called(view)}"
    return Evidence(quote=f"rank {view.rank} (pid {view.pid}): {quote}", rank=view.rank)


def exit_code(view: RankView) -> str:
    """Of a rank that exited or is on its way out."""
    call = exits.exit_call(view)
    return str(view.death.code if view.death else call.code if call else "?")


def called(view: RankView) -> str:
    """' (sys.exit at train.py:88 in main)', where it is known how a rank ended itself."""
    call = exits.exit_call(view)
    if call is None:
        return ""
    said = f": {text.shorten(' '.join(call.text.split()), LONGEST)}" if call.text else ""
    return f" ({call.by} at {call.where}{said})"


def log_of(view: RankView) -> str:
    """Its path, so that it can be opened."""
    return view.log or f"the log of rank {view.rank}"


def exited_as_a_result(ranks: Iterable[int]) -> str:
    listed = tuple(ranks)
    return f"; {text.ranks(listed)} exited as a result" if listed else ""


def kernel_lines(scene: Scene, ranks: Iterable[int], named: Callable[[str], str]) -> list[Evidence]:
    """What the kernel log of these ranks' machines says of them, as far as it was read. `named`
    makes the pattern from their pids there, '4711|4712'."""
    found = []
    for machine in machines(scene, ranks):
        lines = machine.seen.kernel_events
        pattern = re.compile(named("|".join(str(scene.rank(r).pid) for r in machine.ranks)))
        found += [
            Evidence(quote=line, source="kernel log", host=machine.node or None)
            for line in (() if isinstance(lines, Unread) else lines)
            if pattern.search(line)
        ]
    return found


def unread_kernel_log(scene: Scene, ranks: Iterable[int]) -> list[Evidence]:
    """A log that could not be read is not a clean one."""
    return [
        Evidence(quote=gap.why, host=machine.node or None)
        for machine in machines(scene, ranks)
        if isinstance(gap := machine.seen.kernel_events, Unread)
    ]


def children(processes: Sequence[SurvivingProcess]) -> str:
    """'rank 2's child python (pid 4711)'; many are counted."""
    told = [
        f"{'a rank' if p.rank is None else f'rank {p.rank}'}'s child {p.name} (pid {p.pid})"
        for p in processes[:MOST]
    ]
    more = len(processes) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")
