"""Tells the launcher when this rank captures a CUDA graph.

Asking a rank for its flight recorder makes torch query CUDA events in another thread, and CUDA
then fails a capture that is under way (seen on an H200: cudaErrorStreamCaptureInvalidated). So the
page says when not to ask. And collectives inside a graph are never recorded, which is worth
knowing when the recorders show nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from holdfast.rank import own_page


def follow(torch: Any) -> None:
    """`torch.cuda.graph`, make_graphed_callables and torch.compile all capture through these."""
    kind = torch.cuda.graphs.CUDAGraph
    begin: Callable[..., None] = kind.capture_begin
    end: Callable[..., None] = kind.capture_end

    @functools.wraps(begin)
    def capture_begin(graph: Any, *args: Any, **options: Any) -> None:
        _tell(capturing=True)
        try:
            begin(graph, *args, **options)
        except BaseException:
            _tell(capturing=False)
            raise

    @functools.wraps(end)
    def capture_end(graph: Any, *args: Any, **options: Any) -> None:
        try:
            end(graph, *args, **options)
        finally:
            _tell(capturing=False)

    kind.capture_begin, kind.capture_end = capture_begin, capture_end


def _tell(*, capturing: bool) -> None:
    if own_page.page is not None:
        own_page.page.cuda_graph(capturing=capturing)
