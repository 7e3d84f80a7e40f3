"""Ranks on two machines, for wreckage whose lines carry no host."""

from __future__ import annotations

from holdfast.analysis.logs.wreckage import RankRemains

TWO_HOSTS = (RankRemains(rank=0, host="node-a"), RankRemains(rank=1, host="node-b"))
