"""A pytest plugin for tools/torchrun_tests.py: `holdfast run` where PyTorch's tests call torchrun.

`torch.distributed.run.main` and `torch.distributed.launch.main` become `holdfast run` in this
process, with its default options. What a test expects of them as Python functions is translated:
an exit code becomes torch's ChildFailedError, and output is captured by descriptor, as a shell
would, for tests that replace sys.stdout.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence

import pytest
from torch.distributed import launch, run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from holdfast.cli.run import launch as holdfast_run


def main(argv: Sequence[str]) -> None:
    before = dict(os.environ)
    try:
        with tempfile.TemporaryDirectory() as runs, _captured(1), _captured(2):
            code = holdfast_run(["--runs", runs, *argv])
    finally:
        os.environ.clear()
        os.environ.update(before)
    if code:
        failure = ProcessFailure(local_rank=0, pid=0, exitcode=code, error_file="")
        raise ChildFailedError("holdfast run", {0: failure})


def main_of_launch(argv: Sequence[str]) -> None:
    """`torch.distributed.launch`: torchrun, but the script gets its rank as an argument."""
    words = [word for word in argv if word != "--use-env"]
    if len(words) == len(argv):
        script = next(at for at, word in enumerate(words) if not word.startswith("-"))
        words.insert(script + 1, "--local-rank=${local_rank}")
    main(words)


@contextlib.contextmanager
def _captured(number: int) -> Iterator[None]:
    """Only where the test listens to Python's stream instead of the descriptor."""
    stream = (sys.stdout, sys.stderr)[number - 1]
    try:
        stream.fileno()
    except OSError:
        pass
    else:
        yield
        return
    real = os.dup(number)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), number)
            try:
                yield
            finally:
                os.dup2(real, number)
                file.seek(0)
                stream.write(file.read().decode(errors="replace"))
    finally:
        os.close(real)


@pytest.fixture(autouse=True)
def holdfast_in_torchruns_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "main", main)
    monkeypatch.setattr(launch, "main", main_of_launch)
