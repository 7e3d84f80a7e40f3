"""The machine at which all others meet may be taken away.

What you see   One spot or preemptible machine goes, and although the job is elastic all others
               end within seconds: `RendezvousConnectionError`, `Broken pipe`, `Connection reset by
               peer` from the store.
Why            torchrun's c10d rendezvous keeps its state in a store inside the agent on the
               endpoint's machine; nothing else holds a copy. When that machine goes, the others
               can neither go on nor elect another.
How to be sure Look which machine --rdzv-endpoint names, and whether it is one of those that can
               be taken.
Fix            Put the endpoint on a machine that stays (a small on-demand machine is enough: a
               store needs no GPU), or use etcd-v2 as backend; or let the scheduler requeue the
               whole job and resume from the last checkpoint.
Sources        https://github.com/pytorch/pytorch/issues/67742
               https://github.com/intelligent-machine-learning/dlrover/issues/450
               torch 2.13.0: torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.launch import preemptible, questions
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD904", slug="endpoint-single-point")


@FAULT.lint
def all_meet_where_it_may_end(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        endpoint = launch.flag("rdzv-endpoint")
        if launch.kind not in questions.TORCHRUN or endpoint is None or not _elastic(launch):
            continue
        if sign := preemptible.sign(source, launch):
            yield FAULT.note(
                f"the endpoint {endpoint.value} is one machine of a job whose machines may be "
                f"taken away ({sign})",
                reason="c10d keeps its store in the agent there, and nowhere else: when that "
                "machine goes, all agents end, however elastic the job",
                fix="name a machine that stays as --rdzv-endpoint (it needs no GPU), or have the "
                "job requeued and resume from the last checkpoint",
                at=endpoint.place,
            )


def _elastic(launch: Launch) -> bool:
    """Only there would anybody expect the others to go on."""
    count = questions.nodes(launch)
    backend = launch.flag("rdzv-backend")
    c10d = backend is not None and backend.value == "c10d"
    return c10d and count is not None and count[0] < count[1]
