"""What a script saves, where to, and whether it loads it."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.checkpoints import saving
from holdfast.analysis.source.program import Program
from tests.analysis.source.made_sources import python


def program(text: str) -> Program:
    found = python(f"import torch\n{text}\n").program
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "fixed", "repeated"),
    [
        ("torch.save(state, 'model.pt')", True, False),
        ("for epoch in range(9):\n    torch.save(state, 'model.pt')", True, True),
        ("for epoch in range(9):\n    torch.save(state, f'{epoch}.pt')", False, True),
    ],
)
def test_the_path_and_how_often(text: str, *, fixed: bool, repeated: bool) -> None:
    (save,) = saving.save_calls(program(text))
    assert (bool(save.fixed), save.repeated) == (fixed, repeated)


def test_buffers_and_temporary_files_are_no_checkpoints() -> None:
    text = "import io\nb = io.BytesIO()\ntorch.save(s, b)\ntorch.save(s, path + '.tmp')"
    assert saving.save_calls(program(text)) == ()


def test_the_content_of_a_dict() -> None:
    script = program(
        "state = {'model': m.state_dict()}\nstate['epoch'] = 1\ntorch.save(state, 'a')"
    )
    (save,) = saving.save_calls(script)
    held = saving.saved_content(script, save)
    assert held is not None
    assert held.keys == {"model", "epoch"}


def test_a_path_that_is_loaded_too() -> None:
    script = program("torch.save(s, 'a.pt')\ntorch.load('a.pt')\ntorch.save(s, 'b.pt')")
    assert [save.loaded for save in saving.save_calls(script)] == [True, False]
