"""Tracebacks of torchrun and its like, as Python prints them: their files tell whose they are."""

from __future__ import annotations

from tests.analysis.logs.patterns.made import traceback

SITE = "/opt/venv/lib/python3.11/site-packages"
MAIN = ("/opt/venv/bin/torchrun:8 <module>", f"{SITE}/torch/distributed/run.py:918 main")
AGENT = f"{SITE}/torch/distributed/elastic/agent/server/api.py:849 _invoke_run"
RENDEZVOUS = f"{SITE}/torch/distributed/elastic/rendezvous"


def by_torchrun(error: str, *frames: str) -> tuple[str, ...]:
    """From torchrun's main to its rendezvous."""
    deepest = frames or (f"{RENDEZVOUS}/static_tcp_rendezvous.py:67 next_rendezvous",)
    return traceback(error, *MAIN, AGENT, *deepest)


def store_lost_by_agent(*inner: str) -> tuple[str, ...]:
    """The store of a c10d rendezvous is gone while the ranks train."""
    chained = ("", "The above exception was the direct cause of the following exception:", "")
    outer = by_torchrun(
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
        "the C10d store has failed. See inner exception for details.",
        f"{RENDEZVOUS}/c10d_rendezvous_backend.py:116 _call_store",
    )
    return (*inner, *chained, *outer) if inner else outer


def store_call(error: str) -> tuple[str, ...]:
    return traceback(error, f"{RENDEZVOUS}/c10d_rendezvous_backend.py:114 _call_store")
