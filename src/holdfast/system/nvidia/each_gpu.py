"""Ask for every GPU in a process of its own: one that hangs does not keep the others from
answering."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.analysis.machine import Unread
from holdfast.system import deadline
from holdfast.system.nvidia.library import Library

GpuQuestion = Callable[[Library, int], bytes]
"""answers for the GPU of this index; the library is initialised"""


def ask_each(
    nvml: Library, indexes: Iterable[int], question: GpuQuestion, *, seconds: float
) -> dict[int, bytes | Unread]:

    def about(index: int) -> deadline.Question:
        def ask() -> bytes:
            code, error = nvml.initialise()
            if code:
                raise OSError(error)
            return question(nvml, index)

        return ask

    questions = {index: about(index) for index in indexes}
    answers = deadline.ask({str(i): ask for i, ask in questions.items()}, seconds=seconds)
    return {index: answers[str(index)] for index in questions}
