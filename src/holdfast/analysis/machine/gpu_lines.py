"""What several GPUs have in common, said once."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text


def gpu_numbers(indices: Iterable[int]) -> str:
    """'GPU 3', 'GPUs 0-7'."""
    listed = set(indices)
    return f"GPU{'' if len(listed) == 1 else 's'} {text.numbers(listed)}"


def together(lines: Iterable[tuple[int, str]]) -> list[str]:
    """(index, what is said of that GPU) -> 'GPUs 0-2,4: no answer', each saying once."""
    alike: dict[str, list[int]] = {}
    for index, said in lines:
        alike.setdefault(said, []).append(index)
    return [f"{gpu_numbers(indices)}: {said}" for said, indices in alike.items()]
