"""The states of an NCCL communicator by name (ncclResult_t in nccl.h)."""

from __future__ import annotations

NO_ERROR, IN_PROGRESS = 0, 7
_NAMES = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
    8: "ncclTimeout",
}
_WORDS = {
    "Unhandled CUDA error": 1,
    "System error": 2,
    "Internal error": 3,
    "Invalid argument": 4,
    "Invalid usage": 5,
    "Remote process error": 6,
}
"""as RAS prints them in its text (ncclErrorToString in client_support.cc)"""


def error_name(code: int) -> str:
    """'' where it is no error."""
    if code in (NO_ERROR, IN_PROGRESS):
        return ""
    return _NAMES.get(code, f"ncclResult {code}")


def error_of_words(words: str) -> str:
    return _NAMES.get(_WORDS.get(words, 0), "an NCCL error")
