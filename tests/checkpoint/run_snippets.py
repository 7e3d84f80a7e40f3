"""Runs the Python blocks of a page: PAGE. In a process of its own, each block in an empty folder.

The names that a page takes for granted (`model`, `dataset`, `loader` …) are tiny here.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

_FENCE = re.compile(
    r"(?:^<!-- snippet: compiled only, (?P<why>[^\n]+) -->\n)?^```python\n(?P<text>.*?)^```$",
    re.M | re.S,
)


class Snippet(NamedTuple):
    page: str
    line: int
    text: str
    compiled_only: str
    """why it is not run; '' for one that is"""


def snippets(page: Path) -> list[Snippet]:
    content = page.read_text()
    return [
        Snippet(
            page.name,
            content.count("\n", 0, found.start("text")) + 1,
            found["text"],
            found["why"] or "",
        )
        for found in _FENCE.finditer(content)
    ]


def names() -> dict[str, Any]:
    import torch  # noqa: PLC0415 - this file is also imported to look at the pages
    from torch import nn  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    import holdfast  # noqa: PLC0415

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(512, 4)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler = holdfast.Sampler(dataset, global_batch_size=128, micro_batch_size=64)
    return {
        "holdfast": holdfast,
        "DataLoader": DataLoader,
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.LinearLR(optimizer),
        "dataset": dataset,
        "sampler": sampler,
        "loader": DataLoader(dataset, batch_sampler=sampler),
        "state": holdfast.State(model=model, optimizer=optimizer),
        "loss_function": nn.functional.mse_loss,
        "mean_loss": lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        "args": argparse.Namespace(lr=0.01),
        "STEPS": 6,
        "EPOCHS": 2,
    }


def run(snippet: Snippet) -> dict[str, Any]:
    """The names that it leaves behind."""
    given = names()
    padded = "\n" * (snippet.line - 1) + snippet.text  # so that a traceback shows the page's lines
    if snippet.text.startswith(">>>"):
        example = doctest.DocTestParser().get_doctest(
            snippet.text, given, snippet.page, snippet.page, snippet.line - 1
        )
        failed = doctest.DocTestRunner().run(example).failed
        assert not failed, f"{snippet.page}:{snippet.line}: {failed} examples differ"
    else:
        exec(compile(padded, snippet.page, "exec"), given)
    return given


def main() -> None:
    for snippet in snippets(Path(sys.argv[1])):
        if snippet.compiled_only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            left = run(snippet)
            if (ckpt := left.get("ckpt")) is not None:
                ckpt.close()
            os.chdir("/")
        step = getattr(left.get("state"), "step", 0)
        print(f"{snippet.page}:{snippet.line} done at step {step}", flush=True)


if __name__ == "__main__":
    main()
