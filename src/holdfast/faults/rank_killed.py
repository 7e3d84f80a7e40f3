"""A rank was killed from outside.

What you see   Exit code -9 (137 in a shell), `Signal 9 (SIGKILL) received by PID …`, and no
               traceback: the process had no chance to say anything. The others then report
               `Connection reset by peer` or time out, and it is their messages that fill the log.
Why            SIGKILL cannot be caught. Somebody sent it: a person, a scheduler that ran out of
               patience after its SIGTERM, a memory watchdog such as earlyoom or systemd-oomd, a
               clean-up script with a broad pattern. The kernel's own out-of-memory kill looks the
               same and is told apart by its records: see host-oom.
How to be sure `sudo ausearch -sc kill -i` where auditing is on; `journalctl -u systemd-oomd`; the
               scheduler's record of the job. holdfast reads the order of deaths from the kernel,
               so the rank it names went first, and asks the cgroup and the kernel log whether
               memory was the reason. What it could not read, it says.
Fix            Find the sender. A scheduler: ask for more time or memory. A person: nothing is
               wrong with the job. holdfast starts the group again.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://man7.org/linux/man-pages/man2/pidfd_open.2.html
               https://www.freedesktop.org/software/systemd/man/latest/systemd-oomd.service.html
               https://github.com/deepspeedai/DeepSpeed/issues/4239
"""

from __future__ import annotations

import signal

from holdfast import endings, scene_words
from holdfast.endings import Ending
from holdfast.facts import Unread
from holdfast.faults import host_oom
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD701", slug="rank-killed")


@FAULT.notice
def a_signal_ended_it_first(scene: Scene) -> Verdict | None:
    killed = [e for e in endings.cause(scene) if _from_outside(e)]
    if not killed or any(host_oom.memory_evidence(scene, e) for e in killed):
        return None
    ranks = [e.rank for e in killed]
    victims = endings.fallen(scene, ranks)
    name = scene_words.signal_name(killed[0].signal)
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} was killed by {name} from outside"
        f"{scene_words.at_step(killed[0].view)}{_memory(scene, killed[0])}"
        f"{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it: the scheduler's record, `journalctl -u systemd-oomd`, "
        "`sudo ausearch -sc kill -i`",
        evidence=[scene_words.how_it_ended(e) for e in killed],
    )


def _from_outside(ending: Ending) -> bool:
    return bool(ending.signal) and ending.signal not in endings.CRASHES | endings.STOP_SIGNALS


def _memory(scene: Scene, ending: Ending) -> str:
    if ending.signal != signal.SIGKILL:
        return ""
    if scene.oom_kills >= 0:
        return "; the cgroup counts no kill for lack of memory"
    if isinstance(scene.kernel_events, Unread):
        return "; whether memory ran out could not be read"
    return "; the kernel log tells of no kill for lack of memory"
