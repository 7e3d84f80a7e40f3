"""The rendezvous endpoint is on a machine that may be taken away.

What you see   One spot or preemptible machine is reclaimed, and although the job is elastic all
               others exit within seconds: `RendezvousConnectionError`, `Broken pipe`, `Connection
               reset by peer` from the store.
Why            torchrun's c10d rendezvous keeps its state in a store inside the agent on the
               endpoint's machine; no copy exists elsewhere. When that machine is gone, the others
               can neither continue nor elect another.
How to be sure See which machine --rdzv-endpoint names, and whether it can be reclaimed.
Fix            Put the endpoint on a machine that stays (a small on-demand machine is enough: a
               store needs no GPU); or let the nodes elect another coordinator through an etcd:
               `holdfast run --rdzv-backend etcd --rdzv-endpoint ETCD:2379 --rdzv-id NAME …`, where
               the loss of any machine costs one restart; or let the scheduler requeue the whole
               job and resume from the last checkpoint. torchrun's own etcd backends need the
               package python-etcd and an etcd before 3.6, started with `--enable-v2`.
Known limits   Preemptible machines are recognized by words in the launch script only (spot,
               preemptible, a requeue option); a plain host name is not judged.
Sources        https://github.com/pytorch/pytorch/issues/67742
               https://github.com/intelligent-machine-learning/dlrover/issues/450
               torch 2.13.0: torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.source.launch import command_line, preemptible
from holdfast.analysis.source.source import Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD904",
    slug="endpoint-single-point",
    related=("store-host-lost", "preempted", "max-restarts-zero"),
)


@FAULT.lint
def endpoint_on_preemptible_machine(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        endpoint = launch.flag("rdzv-endpoint")
        if (
            launch.kind not in command_line.TORCHRUN
            or endpoint is None
            or not _is_elastic_c10d(launch)
        ):
            continue
        if sign := preemptible.sign(source, launch):
            yield FAULT.note(
                f"the endpoint {endpoint.value} is one machine of a job whose machines may be "
                f"taken away ({sign})",
                reason="c10d keeps its store only in the agent there: when that machine is gone, "
                "all agents exit, even in an elastic job",
                fix="use a machine that stays as --rdzv-endpoint (it needs no GPU), or an etcd: "
                "`holdfast run --rdzv-backend etcd --rdzv-endpoint ETCD:2379 --rdzv-id NAME …`; or "
                "have the job requeued and resume from the last checkpoint",
                at=endpoint.place,
            )


def _is_elastic_c10d(launch: Launch) -> bool:
    """Only there are the others expected to continue."""
    count = command_line.nodes(launch)
    backend = launch.flag("rdzv-backend")
    c10d = backend is not None and backend.value == "c10d"
    return c10d and count is not None and count[0] < count[1]
