"""What a DataLoader worker or DCP raised, out of what torch raises instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import inner_exception

TORCH = "/venv/lib/python3.11/site-packages/torch"
WORKER = f"""Caught IndexError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "{TORCH}/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
           ^^^^^^^^^^^^^^^^^^^^
  File "{TORCH}/utils/data/_utils/fetch.py", line 54, in <listcomp>
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "/home/me/data.py", line 31, in __getitem__
    return self.rows[i]
IndexError: index 50257 is out of range
"""
TWO_LINES = WORKER.replace("out of range\n", "out of range\nsee: the manual\nor ask\n")
CHAINED = WORKER.replace(
    "IndexError: index 50257 is out of range\n",
    "KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "/home/me/data.py", line 35, in __getitem__\n'
    "    raise ValueError(i)\nmypackage.BadRow: 7\n",
)
DCP = f"""CheckpointException ranks:dict_keys([3, 4])
Traceback (most recent call last): (RANK 3)
  File "{TORCH}/distributed/checkpoint/utils.py", line 164, in reduce_scatter
    local_data = map_fun()
  File "/home/me/writer.py", line 9, in write
    raise OSError
RuntimeError: [enforce fail at inline_container.cc:659] . unexpected pos 303936 vs 303888
Traceback (most recent call last): (RANK 4)
  File "/home/me/writer.py", line 10, in write
OSError: another
"""
SPAWNED = f"""

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "{TORCH}/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/home/me/train.py", line 14, in run
    raise ValueError("the batch is empty")
ValueError: the batch is empty
"""
EMPTY = "ValueError: the batch is empty in run() at train.py:14, in spawned process 1"
OUT_OF_RANGE = (
    "IndexError: index 50257 is out of range in __getitem__() at data.py:31, in DataLoader worker "
    "process 1"
)
UNEXPECTED = (
    "RuntimeError: [enforce fail at inline_container.cc:659] . unexpected pos 303936 vs 303888 in "
    "write() at writer.py:9, as rank 3 saved or loaded a checkpoint"
)
CUT = f"{WORKER[:150]}\n…\n{WORKER[-150:]}"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            WORKER,
            OUT_OF_RANGE,
        ),
        (
            TWO_LINES,
            OUT_OF_RANGE,
        ),
        (
            CHAINED,
            "mypackage.BadRow: 7 in __getitem__() at data.py:35, in DataLoader worker process 1",
        ),
        (
            DCP,
            UNEXPECTED,
        ),
        (
            CUT,
            OUT_OF_RANGE,
        ),
        (SPAWNED, EMPTY),
    ],
    ids=["worker", "two-lines", "chained", "dcp", "cut", "spawned"],
)
def test_the_inner_exception_is_told(message: str, words: str) -> None:
    found = inner_exception.find(message)
    assert found is not None
    assert found.words() == words


@pytest.mark.parametrize(
    "message",
    ["", "index 5 is out of range", "Caught a fish in it.", WORKER[:200], DCP[:60]],
)
def test_other_messages_hold_none(message: str) -> None:
    assert inner_exception.find(message) is None


@given(st.text(alphabet='CaughtIndexErrorinDataLoaderworkerprocess1.\nOriginalTraceback ()":,'))
def test_any_message_is_read(message: str) -> None:
    found = inner_exception.find(
        f"Caught E in x.\nOriginal Traceback (most recent call last):\n{message}"
    )
    assert found is None or (found.inside == "in x" and found.kind in message)
