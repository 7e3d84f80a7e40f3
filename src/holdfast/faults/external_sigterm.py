"""The job, or one of its ranks, was told to stop.

What you see   `Received 15 death signal, shutting down workers`, exit code -15 (143 in a shell), or
               `KeyboardInterrupt`; the job ends although nothing in it failed.
Why            SIGTERM is how schedulers, containers and people ask a process to end: a time limit,
               a preemption, `docker stop`, `kill`. SIGINT is Ctrl-C. It is no fault of the job,
               and starting again would defy the one who asked.
How to be sure When the launcher itself was told, holdfast says so. When one rank alone got the
               signal, somebody picked that process; the scheduler's record or the audit log
               (`sudo ausearch -sc kill -i`) names the sender.
Fix            A scheduler: ask for more time, save on SIGTERM, or let it requeue the job. One rank
               alone: find who sent it.
Sources        https://slurm.schedmd.com/scancel.html
               https://docs.docker.com/reference/cli/docker/container/stop/
               torch/distributed/elastic/multiprocessing/api.py: SignalException
"""

from __future__ import annotations

import signal

from holdfast import endings, scene_words
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD704", slug="external-sigterm")


@FAULT.notice
def somebody_asked_it_to_end(scene: Scene) -> Verdict | None:
    if scene.told_to_stop in ("SIGTERM", "SIGINT"):
        asked = "interrupted (Ctrl-C)" if scene.told_to_stop == "SIGINT" else "told to stop"
        return FAULT.verdict(
            f"the job was {asked}: holdfast itself got {scene.told_to_stop}; no rank is to blame",
            ranks=(),
            victims=endings.fallen(scene, ()),
            certain=True,
            fatal=True,
            evidence=[Evidence(quote=f"{scene.told_to_stop} to the launcher")],
        )
    told = [e for e in endings.cause(scene) if e.signal in (signal.SIGTERM, signal.SIGINT)]
    if not told:
        return None
    ranks = [e.rank for e in told]
    victims = endings.fallen(scene, ranks)
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} was ended by {scene_words.signal_name(told[0].signal)} "
        f"from outside{scene_words.at_step(told[0].view)}; holdfast did not send it"
        f"{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it: the scheduler's record, or `sudo ausearch -sc kill -i`",
        evidence=[scene_words.how_it_ended(e) for e in told],
    )
