"""The page says when a CUDA graph is captured. There is no GPU here: the class that torch captures
with is a stand-in; tools/gpu_table.py and tests/targets/gpu_graphs.py are for the real one."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.rank import cuda_graphs, heartbeat_page, own_page
from holdfast.rank.heartbeat_page import HeartbeatPage


class Graph:
    fails = ""
    seen: tuple[bool, ...] = ()

    def capture_begin(self, pool: Any = None, *, capture_error_mode: str = "global") -> None:
        assert (pool, capture_error_mode) == ("p", "relaxed")
        self._look("begin")

    def capture_end(self) -> None:
        self._look("end")

    def _look(self, moment: str) -> None:
        self.seen += (said().capturing,)
        if self.fails == moment:
            raise RuntimeError(moment)


def said() -> Any:
    assert own_page.page is not None
    return heartbeat_page.read(own_page.page._buffer)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    page = HeartbeatPage(mmap.mmap(-1, heartbeat_page.SIZE))
    page.announce(1)
    monkeypatch.setattr(own_page, "page", page)
    kind = type("Graph", (Graph,), {})
    cuda_graphs.follow(
        SimpleNamespace(cuda=SimpleNamespace(graphs=SimpleNamespace(CUDAGraph=kind)))
    )
    made = kind()
    assert isinstance(made, Graph)
    return made


def test_the_page_says_so_while_it_lasts_and_that_there_was_one(graph: Graph) -> None:
    assert (said().capturing, said().cuda_graphs) == (False, False)
    graph.capture_begin("p", capture_error_mode="relaxed")
    assert (said().capturing, said().cuda_graphs) == (True, True)
    graph.capture_end()
    assert (said().capturing, said().cuda_graphs) == (False, True)
    assert graph.seen == (True, True), "before it begins, until it is over"


@pytest.mark.parametrize("moment", ["begin", "end"])
def test_a_capture_that_fails_is_over_and_fails_as_before(graph: Graph, moment: str) -> None:
    graph.fails = moment
    steps = [lambda: graph.capture_begin("p", capture_error_mode="relaxed"), graph.capture_end]
    if moment == "end":
        steps.pop(0)()
    with pytest.raises(RuntimeError, match=moment):
        steps[0]()
    assert not said().capturing


def test_without_a_page_nothing_happens(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_page, "page", None)
    moments: list[str] = []
    monkeypatch.setattr(graph, "_look", moments.append)
    graph.capture_begin("p", capture_error_mode="relaxed")
    graph.capture_end()
    assert moments == ["begin", "end"], "torch captures all the same"
