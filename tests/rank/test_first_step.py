"""What is seen just before the first step: with real torch, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.check.readers.software import find_torch
from holdfast.rank import delivery, first_step

SCRIPT = """
import json, sys
import torch
from holdfast.rank import own_page
from holdfast.rank.first_step import FirstStepHook, digest, steps_counted

own_page.page = object()

def model(seed, wide=4):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(wide, 8), torch.nn.LayerNorm(8))

def stepped(make, seed=0, steps=3):
    net = model(seed)
    optimizer = make(net.parameters())
    for _ in range(steps):
        net(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    return net, optimizer

seen = {}
adam = lambda p: torch.optim.AdamW(p, lr=0.1)
momentum = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)
fresh, again, other = (adam(model(seed).parameters()) for seed in (0, 0, 1))
seen["same"] = digest(torch, fresh) == digest(torch, again) != digest(torch, other)
net, worn = stepped(adam)
seen["moved"] = digest(torch, fresh) != digest(torch, worn)
seen["counted"] = [steps_counted(torch, o) for o in (fresh, worn, stepped(momentum)[1])]
turned = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
empty = torch.nn.Parameter(torch.empty(0, 3))
scalar = torch.nn.Parameter(torch.tensor(1.5))
odd = [digest(torch, torch.optim.SGD([p], lr=1)) for p in (turned, empty, scalar)]
seen["odd"] = [bool(odd[0]), odd[1], bool(odd[2])]

placed = FirstStepHook(torch)  # as accelerate places an optimizer on its device
placed.expect()
fresh.load_state_dict(fresh.state_dict())
again.load_state_dict(again.state_dict())
seen["placed"] = [placed.loaded, placed.optimizer_loaded]
fresh.load_state_dict(worn.state_dict())
seen["loaded"] = [placed.loaded, placed.optimizer_loaded]
placed._done = True  # only the next hook is to report
for unwrap in placed._unwrap:
    unwrap()

before = torch.load, torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict
FirstStepHook(torch).expect()
target = model(1)
target.load_state_dict(net.state_dict())
optimizer = adam(target.parameters())
optimizer.load_state_dict(worn.state_dict())
for lr in (0.0, 0.0, 0.1, 0.1, 0.1, 0.1):
    optimizer.param_groups[0]["lr"] = lr
    target(torch.ones(2, 4)).sum().backward()
    optimizer.step()
after = torch.load, torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict
seen["unwrapped"] = before == after
print(json.dumps(seen))
"""


@pytest.mark.skipif(find_torch() is None, reason="needs torch")
def test_what_a_first_step_shows(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "RANK": "0", delivery.EVENTS: str(file)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "same": True,
        "moved": True,
        # no state yet, Adam's own count, and a momentum that counts nothing
        "counted": [0, 3, None],
        "odd": [True, "", True],
        "placed": [False, False],
        "loaded": [True, True],
        "unwrapped": True,
    }
    assert "holdfast:" not in done.stderr
    told, moved = [json.loads(line) for line in file.read_text().splitlines()]
    assert (told["kind"], told["optimizer_step"], told["loaded"]) == ("first-step", 3, True)
    assert told["digest"]
    assert told["other_ways"] is False
    # The learning rate was 0 for the first two steps; after 1, 2, 4 … steps they are compared.
    assert (moved["kind"], moved["step"]) == ("parameters-moved", 4)


def test_a_gpu_in_use_is_asked_whether_it_makes_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    assert not first_step.is_capturing(torch)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    # fails where torch has no such name
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert first_step.is_capturing(torch)
