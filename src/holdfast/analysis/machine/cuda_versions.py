"""Can a driver run programs that were built with another version of CUDA?"""

from __future__ import annotations

from holdfast.analysis.versions import release

MINOR_COMPATIBLE_FROM = 11
"""from CUDA 11 on a driver also runs later minor versions of its own major version"""


def why_it_runs(driver: str, program: str) -> str | None:
    """By which rule of NVIDIA a driver of this CUDA version runs a program built with that one; ''
    when it does not, None when a version is not known."""
    can, wants = release(driver)[:2], release(program)[:2]
    if not can or not wants:
        return None
    if can >= wants:
        return "the driver is as new"
    if can[0] == wants[0] >= MINOR_COMPATIBLE_FROM:
        return "minor-version compatibility"
    return ""


def oldest_driver(program: str) -> str:
    """The first driver branch that runs a program of this CUDA version; '' where not known."""
    major = next(iter(release(program)), 0)
    return {11: "450", 12: "525", 13: "580"}.get(major, "")


DROPPED = {"maxwell": (13, 0), "pascal": (13, 0), "volta": (13, 0)}
"""architecture -> the first CUDA that can no longer make code for it"""
ADDED = {"blackwell": (12, 8)}
"""architecture -> the first CUDA that can"""


def code_for(architecture: str, program: str) -> str:
    """The best code for this architecture that a program built with this CUDA can hold:
    'compiled', 'intermediate' (PTX, which the driver compiles), 'none'; '' where not known."""
    built = release(program)[:2]
    if not built or not architecture:
        return ""
    if built >= DROPPED.get(architecture, (99, 0)):
        return "none"
    return "compiled" if built >= ADDED.get(architecture, (0, 0)) else "intermediate"
