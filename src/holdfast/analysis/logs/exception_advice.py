"""What to do about an exception for which no line of the script is to blame. Pure.

A module that is not installed, a torch without CUDA, data that cannot be fetched: 'fix that line'
would send the reader to the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.analysis.scene.scene import Frame

_MISSING = re.compile(r"No module named '(?P<name>[\w.]+)'")
_CPU_BUILD = re.compile(
    r"module 'torch\._C' has no attribute '_?cuda_\w+'|Torch not compiled with CUDA enabled"
)
_FETCHING = re.compile(
    r"/(?:urllib3|requests|httpx|httpcore|aiohttp|huggingface_hub|fsspec|botocore)/"
    r"|/urllib/request\.py$|/http/client\.py$"
)
_UNREACHED = re.compile(
    r"(?:\w+\.)*(?:LocalEntryNotFoundError|OfflineModeIsEnabled|MaxRetryError|URLError"
    r"|NameResolutionError|NewConnectionError|ConnectTimeout|ConnectError|ClientConnectorError)"
)
"""raised only where a server on the network was asked for"""
_SAID = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|couldn't connect to 'https?://|Couldn't reach |Max retries exceeded with url"
)


def of(kind: str, text: str, frames: Iterable[Frame] = ()) -> str:
    """'' where the line itself is the place to look."""
    if missing := _MISSING.match(text):
        name = missing["name"]
        return (
            f"install the package that has `{name}` into the Python that runs the ranks, on every "
            "machine of the job; or correct the import, if it is a file of yours"
        )
    if _CPU_BUILD.search(text):
        return (
            "this torch is a CPU build: install one with CUDA (see `python -m torch.utils."
            "collect_env`), or let the script run without a GPU (no `.cuda()`, backend gloo)"
        )
    if _cannot_fetch(kind, text, frames):
        return (
            "this machine cannot reach what the script downloads: fetch it beforehand on one that "
            "can (`hf download …`, or run the script there once), copy that cache, and set "
            "HF_HUB_OFFLINE=1 here"
        )
    return ""


def _cannot_fetch(kind: str, text: str, frames: Iterable[Frame]) -> bool:
    asked = any(_FETCHING.search(frame.file) for frame in frames)
    refused = kind.rpartition(".")[2] in ("ConnectionError", "ConnectionRefusedError", "OSError")
    said = bool(_SAID.search(text))
    return (
        bool(_UNREACHED.fullmatch(kind))
        or (said and (asked or refused))
        or (asked and kind.rpartition(".")[2].startswith("Connection"))
    )
