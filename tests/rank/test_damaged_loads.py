"""What torch raises for a checkpoint with a flipped bit, as a rank writes it down: real files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.analysis.job import phrases
from holdfast.analysis.logs import damaged_files
from holdfast.analysis.scene.scene import LastWords
from holdfast.rank import last_words
from holdfast.run.watch.rank_state import read_words

torch = pytest.importorskip("torch")
dcp: Any = pytest.importorskip("torch.distributed.checkpoint")

pytestmark = pytest.mark.filterwarnings("ignore")


class Custom:
    """A class that torch does not load by itself."""


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 40}


def raised_by(load: Callable[[], object]) -> LastWords | None:
    try:
        load()
    except BaseException as problem:  # noqa: BLE001 - a CheckpointException is no Exception
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/last_words.json"
            last_words.write(
                path, last_words.describe(type(problem), problem, problem.__traceback__)
            )
            return read_words(path)
    return None


def flipped(file: Path, load: Callable[[], object], every: int) -> Iterator[LastWords]:
    """What was raised, bit for bit; a flip among the numbers themselves is loaded."""
    whole = file.read_bytes()
    for at in range(0, len(whole), every):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 7]) + whole[at + 1 :])
        if told := raised_by(load):
            yield told
    file.write_bytes(whole)


@pytest.mark.parametrize("name", ["last.pt", "sharded/.metadata", "sharded/__0_0.distcp"])
def test_a_flipped_bit_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(state(), "last.pt")
    dcp.save({"model": state()["model"]}, checkpoint_id="sharded")
    path = Path(name).parts[0]
    file = Path(name)

    def load() -> object:
        if name == path:
            return torch.load(path)
        return dcp.load({"model": state()["model"]}, checkpoint_id=path)

    found = list(flipped(file, load, every=max(1, file.stat().st_size // 200)))
    named = [one for one in found if damaged_files.in_words(one)]
    assert len(found) > 20
    # Of some keys one cannot tell whether they were changed, or never there.
    assert len(named) > 0.8 * len(found), [one.text[-300:] for one in found if one not in named]
    assert {one.loading for one in found} == {path}
    for one in found:
        assert "likely succeed" not in phrases.quoted(one)
        assert "`weights_only`" not in phrases.quoted(one)


def test_what_is_no_fault_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    torch.save({"config": Custom()}, file)
    refused = raised_by(lambda: torch.load(file))
    missing = raised_by(lambda: torch.load(tmp_path / "none.pt"))
    not_there = raised_by(lambda: dcp.load(state(), checkpoint_id=str(tmp_path / "none")))
    for one in (refused, missing, not_there):
        assert one is not None
        assert not damaged_files.in_words(one), one
    assert refused is not None
    assert "Unsupported global" in phrases.quoted(refused)
    assert "likely succeed" not in phrases.quoted(refused)
    dcp.save({"model": state()["model"]}, checkpoint_id=str(tmp_path / "cut"))
    (tmp_path / "cut/.metadata").unlink()
    unfinished = raised_by(lambda: dcp.load(state(), checkpoint_id=str(tmp_path / "cut")))
    assert unfinished is not None
    assert not damaged_files.in_words(unfinished)
    assert unfinished.metadata == "missing"
    outside = raised_by(lambda: json.loads("{"))
    assert outside is not None
    assert outside.loading is None


def test_a_file_that_ends_too_early(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    torch.save(state(), file)
    whole = file.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        told = raised_by(lambda: torch.load(file))
        assert told is not None
        assert damaged_files.in_words(told), (size, told)
