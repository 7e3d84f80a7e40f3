"""How we speak of ranks and of what happened to them, the same in every verdict."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

from holdfast import text
from holdfast.analysis.collectives import inner_exception
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import LastWords, RankView, Scene, SurvivingProcess
from holdfast.findings import Evidence

LONGEST = 200
"""characters of an exception that fit into a sentence; the whole of it is in the run folder"""
MOST = 4
"""processes named one by one"""


def who(scene: Scene, ranks: Iterable[int]) -> str:
    """'rank 2 (pid 4711)', 'ranks 0-1,3'."""
    listed = sorted(set(ranks))
    if len(listed) == 1:
        return f"rank {listed[0]} (pid {scene.rank(listed[0]).pid})"
    return f"ranks {text.numbers(listed)}"


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
    short = text.shorten(" ".join(words.text.split()), LONGEST)
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


def kernel_lines(scene: Scene, named: re.Pattern[str]) -> list[Evidence]:
    """What the kernel log says of it, as far as it was read."""
    lines = () if isinstance(scene.kernel_events, Unread) else scene.kernel_events
    return [Evidence(quote=line, source="kernel log") for line in lines if named.search(line)]


def unread_kernel_log(scene: Scene) -> list[Evidence]:
    """A log that could not be read is not a clean one."""
    gap = scene.kernel_events
    return [Evidence(quote=gap.why)] if isinstance(gap, Unread) else []


def children(processes: Sequence[SurvivingProcess]) -> str:
    """'rank 2's child python (pid 4711)'; many are counted."""
    told = [
        f"{'a rank' if p.rank is None else f'rank {p.rank}'}'s child {p.name} (pid {p.pid})"
        for p in processes[:MOST]
    ]
    more = len(processes) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")
