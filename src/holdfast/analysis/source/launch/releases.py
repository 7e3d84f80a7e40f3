"""Versions that exist, and version specifiers that pip can read.

NCCL: tags of NVIDIA/nccl and files of nvidia-nccl-cu11 and -cu12 on PyPI, up to 2.30.7; a minor
version that has a successor gets no more releases. torch: its releases on PyPI, with 1.8.2
(long-term support, on PyTorch's own index). Read in 2026.
"""

from __future__ import annotations

import re

NCCL = {
    (2, 8): (3, 4),
    (2, 9): (6, 8, 9),
    (2, 10): (3,),
    (2, 11): (4,),
    (2, 12): (6, 7, 10, 12),
    (2, 13): (4,),
    (2, 14): (3,),
    (2, 15): (1, 5),
    (2, 16): (2, 5),
    (2, 17): (1,),
    (2, 18): (1, 3, 5, 6),
    (2, 19): (1, 3, 4),
    (2, 20): (3, 5),
    (2, 21): (5,),
    (2, 22): (3,),
    (2, 23): (4,),
    (2, 24): (3,),
    (2, 25): (1,),
    (2, 26): (2, 3, 5, 6),
    (2, 27): (3, 5, 6, 7),
}
TORCH = {
    (1, 4): (0,),
    (1, 5): (0, 1),
    (1, 6): (0,),
    (1, 7): (0, 1),
    (1, 8): (0, 1, 2),
    (1, 9): (0, 1),
    (1, 10): (0, 1, 2),
    (1, 11): (0,),
    (1, 12): (0, 1),
    (1, 13): (0, 1),
    (2, 0): (0, 1),
    (2, 1): (0, 1, 2),
    (2, 2): (0, 1, 2),
    (2, 3): (0, 1),
    (2, 4): (0, 1),
    (2, 5): (0, 1),
    (2, 6): (0,),
    (2, 7): (0, 1),
    (2, 8): (0,),
    (2, 9): (0, 1),
    (2, 10): (0,),
    (2, 11): (0,),
    (2, 12): (0, 1),
}
RELEASES = {
    "torch": TORCH,
    "nvidia-nccl-cu11": NCCL,
    "nvidia-nccl-cu12": NCCL,
    "nvidia-nccl-cu13": NCCL,
}

_VERSION = re.compile(
    r"v?(?:\d+!)?\d+(?:\.\d+)*"
    r"(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?"
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?"
    r"(?P<local>\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)
"""PEP 440, appendix B"""
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?P<specifiers>(?:===|==|~=|!=|<=|>=|<|>).*)"
)
_CLAUSE = re.compile(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*(\S+)\s*")


def requirement(text: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """'torch[opt]>=2.1,<3' as its name and its clauses; None when it is no such thing."""
    match = _REQUIREMENT.fullmatch(text.partition(";")[0].strip())
    if match is None:
        return None
    clauses = [_CLAUSE.fullmatch(part) for part in match["specifiers"].split(",") if part.strip()]
    if not clauses or any(clause is None for clause in clauses):
        return None
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return name, tuple((c[1], c[2]) for c in clauses if c)


def refused(operator: str, version: str) -> str:
    """Why PEP 440 does not allow this clause; '' when it does."""
    if operator == "===":
        return ""
    if "*" in version and operator not in ("==", "!="):
        return f"`{operator}` takes no wildcard"
    plain = version.removesuffix(".*")
    if "*" in plain:
        return "a wildcard may only be the last part, as in `==2.4.*`"
    match = _VERSION.fullmatch(plain)
    if match is None:
        return "that is no version" + _with_plus(plain)
    return _misplaced(operator, match, wildcard=plain != version)


def _misplaced(operator: str, version: re.Match[str], *, wildcard: bool) -> str:
    if wildcard and (version["dev"] or version["local"]):
        return "a wildcard may not follow `.dev…` or `+…`"
    if version["local"] and operator not in ("==", "!="):
        return f"`{operator}` takes no local version (`{version['local']}`)"
    if operator == "~=" and "." not in version[0]:
        return "`~=` needs at least two numbers, as in `~=2.4`"
    return ""


def _with_plus(version: str) -> str:
    match = re.fullmatch(r"(\d+(?:\.\d+)+)[._-]?((?:cu|rocm|cpu|xpu)[\w.]*)", version)
    return f": a build is named with a plus, `{match[1]}+{match[2]}`" if match else ""


def never_released(table: dict[tuple[int, int], tuple[int, ...]], version: str) -> str:
    """The releases there are of that minor version, in words; '' where the version may exist."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)(?:\+\w+|-\d+)?", version)
    if match is None:
        return ""
    minor = int(match[1]), int(match[2])
    patches = table.get(minor)
    if patches is None or int(match[3]) in patches:
        return ""
    return ", ".join(f"{minor[0]}.{minor[1]}.{patch}" for patch in patches)
