"""The terminal was closed.

What you see   `Received 1 death signal, shutting down workers` or `got signal: 1`, right after an
               ssh session ended, a laptop slept or a window was closed.
Why            When a terminal goes away, the kernel sends SIGHUP to the processes that belong to
               it. torchrun takes that as a request to end.
How to be sure The time of the end is the time the session ended (`last`, `journalctl -u ssh`).
Fix            Start the job where no terminal can take it along: tmux or screen, `nohup … &`,
               `systemd-run --user --scope`, or the scheduler.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://github.com/pytorch/pytorch/issues/76894
"""

from __future__ import annotations

import signal

from holdfast import endings, scene_words
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD703", slug="sighup-terminal")

FIX = "start it inside tmux or screen, or with `nohup holdfast run … &`"


@FAULT.notice
def the_terminal_went_away(scene: Scene) -> Verdict | None:
    if scene.told_to_stop == "SIGHUP":
        return FAULT.verdict(
            "the terminal was closed: holdfast itself got SIGHUP; no rank is to blame",
            ranks=(),
            victims=endings.fallen(scene, ()),
            certain=True,
            fatal=True,
            fix=FIX,
            evidence=[Evidence(quote="SIGHUP to the launcher")],
        )
    told = [e for e in endings.cause(scene) if e.signal == signal.SIGHUP]
    if not told:
        return None
    ranks = [e.rank for e in told]
    victims = endings.fallen(scene, ranks)
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} was ended by SIGHUP{scene_words.at_step(told[0].view)}: "
        f"its terminal went away, or somebody sent it{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[scene_words.how_it_ended(e) for e in told],
    )
