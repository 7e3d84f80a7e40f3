"""Stacks as py-spy 0.4.3 gave them for torch 2.13 on Python 3.11, and a few made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import stacks
from holdfast.analysis.collectives.stacks import activity_of, collective_of, in_collective, where
from holdfast.analysis.scene.scene import Frame, Stack
from tests.run.scenes import a_stack

SITE = "/home/me/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
TORCH = f"{SITE}/torch"


def stack(*frames: str) -> Stack:
    """'function file:line', innermost first."""
    made = []
    for text in frames:
        function, _, place = text.partition(" ")
        file, _, line = place.rpartition(":")
        made.append(Frame(function=function, file=file, line=int(line)))
    return Stack(frames=tuple(made), active=False, holds_gil=False)


ALL_REDUCE = stack(
    f"all_reduce {TORCH}/distributed/distributed_c10d.py:3252",
    f"_exception_logger.<locals>.wrapper {TORCH}/distributed/c10d_logger.py:83",
    "average /home/me/train.py:40",
    "<module> /home/me/train.py:80",
)
OBJECTS = stack(
    f"all_gather {TORCH}/distributed/distributed_c10d.py:4100",
    f"_exception_logger.<locals>.wrapper {TORCH}/distributed/c10d_logger.py:83",
    f"all_gather_object {TORCH}/distributed/distributed_c10d.py:3400",
    f"_exception_logger.<locals>.wrapper {TORCH}/distributed/c10d_logger.py:83",
    "agree /home/me/train.py:51",
)
BACKWARD = stack(
    f"_engine_run_backward {TORCH}/autograd/graph.py:865",
    f"backward {TORCH}/autograd/__init__.py:359",
    f"Tensor.backward {TORCH}/_tensor.py:630",
    "main /home/me/train.py:33",
    "<module> /home/me/train.py:44",
)
SAVE = stack(
    f"_save {TORCH}/serialization.py:1230",
    f"save {TORCH}/serialization.py:965",
    "write /home/me/ckpt.py:40",
    "main /home/me/train.py:60",
)
SHARDED_SAVE = stack(
    f"FileSystemWriter.write_data {TORCH}/distributed/checkpoint/filesystem.py:700",
    f"save {TORCH}/distributed/checkpoint/state_dict_saver.py:190",
    f"_dcp_logger.<locals>.decorator.<locals>.wrapper {TORCH}/distributed/checkpoint/logger.py:87",
    "keep /home/me/train.py:60",
)
LOAD = stack(
    f"_load.<locals>.load_tensor {TORCH}/serialization.py:2000",
    f"_load {TORCH}/serialization.py:2100",
    f"load {TORCH}/serialization.py:1500",
    "main /home/me/train.py:12",
)
LOADER = stack(
    f"Connection._poll {LIB}/multiprocessing/connection.py:440",
    f"Queue.get {LIB}/multiprocessing/queues.py:113",
    f"_MultiProcessingDataLoaderIter._try_get_data {TORCH}/utils/data/dataloader.py:1275",
    f"_BaseDataLoaderIter.__next__ {TORCH}/utils/data/dataloader.py:733",
    "<module> /home/me/train.py:20",
)
DOWNLOAD_IN_LOADER = stack(
    f"SocketIO.readinto {LIB}/socket.py:718",
    f"HTTPResponse.read {LIB}/http/client.py:466",
    "Shards.__getitem__ /home/me/data.py:88",
    f"_MapDatasetFetcher.fetch {TORCH}/utils/data/_utils/fetch.py:54",
    f"_BaseDataLoaderIter.__next__ {TORCH}/utils/data/dataloader.py:733",
    "evaluate /home/me/train.py:20",
)
COMPILE = stack(
    f"CodeCache.compile {TORCH}/_inductor/codecache.py:3000",
    f"compile_fx_inner {TORCH}/_inductor/compile_fx.py:800",
    f"ConvertFrame.__call__ {TORCH}/_dynamo/convert_frame.py:1500",
    f"compile_wrapper {TORCH}/_dynamo/eval_frame.py:736",
    "main /home/me/train.py:30",
)
BACKWARD_COMPILE = stack(
    f"compile_fx.<locals>.bw_compiler {TORCH}/_inductor/compile_fx.py:2100",
    f"AOTDispatchAutograd {TORCH}/_functorch/_aot_autograd/runtime_wrappers.py:2200",
    f"_engine_run_backward {TORCH}/autograd/graph.py:865",
    "main /home/me/train.py:33",
)
COMPILED_STEP = stack(
    f"call {TORCH}/_inductor/output_code.py:600",
    f"runtime_wrapper {TORCH}/_functorch/_aot_autograd/runtime_wrappers.py:330",
    f"compile_wrapper {TORCH}/_dynamo/eval_frame.py:736",
    f"Module._call_impl {TORCH}/nn/modules/module.py:1790",
    "main /home/me/train.py:30",
)
EVALUATION = stack(
    f"linear {TORCH}/nn/functional.py:10",
    "Net.forward /home/me/model.py:7",
    f"Module._call_impl {TORCH}/nn/modules/module.py:1790",
    "run_validation /home/me/train.py:55",
)
CHECKPOINTED_FORWARD = stack(
    "Block.forward /home/me/model.py:9",
    f"checkpoint {TORCH}/utils/checkpoint.py:500",
    "Net.forward /home/me/model.py:20",
    "main /home/me/train.py:3",
)
TRAINER = stack(
    f"create_connection {LIB}/socket.py:850",
    f"snapshot_download {SITE}/huggingface_hub/_snapshot_download.py:100",
    f"main {SITE}/axolotl/cli/train.py:70",
    "<module> <frozen runpy>:88",
)
WAITS_IN_USER_CODE = stack("load /home/me/data.py:88", "<module> /home/me/train.py:5")
AT_TOP_LEVEL = stack("<module> /home/me/train.py:5")


@pytest.mark.parametrize(
    ("seen", "sentence", "activity"),
    [
        (ALL_REDUCE, "in all_reduce() at train.py:40", "collective"),
        (OBJECTS, "in all_gather_object() at train.py:51", "collective"),
        (BACKWARD, "in backward() at train.py:33", ""),
        (SAVE, "in save() at ckpt.py:40", "save"),
        (SHARDED_SAVE, "in save() at train.py:60", "save"),
        (LOAD, "in load() at train.py:12", "load"),
        (LOADER, "in __next__() at train.py:20", "data loading"),
        (DOWNLOAD_IN_LOADER, "in read() at data.py:88", "download"),
        (COMPILE, "in compile_wrapper() at train.py:30", "compile"),
        (BACKWARD_COMPILE, "in _engine_run_backward() at train.py:33", "compile"),
        (COMPILED_STEP, "in compile_wrapper() at train.py:30", ""),
        (EVALUATION, "in linear() at model.py:7", "evaluation"),
        (CHECKPOINTED_FORWARD, "in forward() at model.py:9", ""),
        (TRAINER, "in create_connection() at _snapshot_download.py:100", "download"),
        (WAITS_IN_USER_CODE, "in load() at data.py:88", ""),
        (AT_TOP_LEVEL, "at train.py:5", ""),
        (stack(), "", ""),
    ],
)
def test_what_a_stack_says(seen: Stack, sentence: str, activity: str) -> None:
    assert where(seen) == sentence
    assert activity_of(seen) == activity
    assert in_collective(seen) == (activity == "collective")


def test_the_innermost_collective_is_named() -> None:
    assert collective_of(ALL_REDUCE) == "all_reduce"
    assert collective_of(OBJECTS) == "all_gather"
    assert collective_of(SAVE) == ""


@pytest.mark.parametrize(
    "function", ["recv", "send", "barrier", "monitored_barrier", "all_gather_into_tensor", "reduce"]
)
def test_whatever_waits_for_other_ranks_is_a_collective(function: str) -> None:
    assert in_collective(stack(f"{function} {TORCH}/distributed/distributed_c10d.py:9"))


@pytest.mark.parametrize(
    "frame",
    [
        f"init_process_group {TORCH}/distributed/distributed_c10d.py:9",
        f"reduce {LIB}/functools.py:9",
        "all_reduce /home/me/mine.py:9",
    ],
)
def test_what_is_not_a_collective(frame: str) -> None:
    assert not in_collective(stack(frame))


def test_sleep_is_known_from_the_kernel_or_by_name() -> None:
    assert activity_of(WAITS_IN_USER_CODE, wait_channel="hrtimer_nanosleep") == "sleep"
    assert activity_of(WAITS_IN_USER_CODE, wait_channel="futex_do_wait") == ""
    assert activity_of(stack(f"sleep {SITE}/tenacity/nap.py:31", "main /home/me/a.py:1")) == "sleep"
    assert activity_of(SAVE, wait_channel="hrtimer_nanosleep") == "save"


@pytest.mark.parametrize(
    "function", ["save_checkpoint", "Trainer._save", "save", "write_ckpt_async"]
)
def test_a_save_by_the_users_own_name(function: str) -> None:
    assert activity_of(stack(f"{function} /home/me/train.py:5")) == "save"


@pytest.mark.parametrize("function", ["saved", "validate_arguments", "load", "tested", "retrieval"])
def test_names_that_tell_nothing(function: str) -> None:
    assert activity_of(stack(f"{function} /home/me/train.py:5")) == ""


def test_a_package_is_named_by_more_than_dunder_init() -> None:
    assert (
        where(stack("run /home/me/pipeline/__init__.py:5")) == "in run() at pipeline/__init__.py:5"
    )


frames = st.builds(
    Frame,
    function=st.text(max_size=20) | st.sampled_from(["all_reduce", "<lambda>", "a.<locals>.b"]),
    file=st.text(max_size=20) | st.just(f"{TORCH}/distributed/x.py"),
    line=st.integers(),
)


@given(st.lists(frames, max_size=6))
def test_any_stack_has_an_answer(made: list[Frame]) -> None:
    any_stack = Stack(frames=tuple(made), active=False, holds_gil=False)
    assert bool(where(any_stack)) == bool(made)
    assert (activity_of(any_stack) == "collective") <= in_collective(any_stack)


@pytest.mark.parametrize(
    ("file", "function"),
    [
        (f"{TORCH}/distributed/pipelining/schedules.py", "_wait_batch_p2p"),
        (f"{TORCH}/distributed/distributed_c10d.py", "recv"),
        ("/x/site-packages/megatron/core/pipeline_parallel/p2p_communication.py", "_communicate"),
        ("/x/Megatron-LM/megatron/core/pipeline_parallel/p2p_communication.py", "recv_forward"),
        ("/x/site-packages/deepspeed/runtime/pipe/p2p.py", "recv"),
        ("/x/site-packages/deepspeed/runtime/pipe/engine.py", "_exec_recv_activations"),
    ],
)
def test_a_stage_that_waits_for_another_is_in_a_message(file: str, function: str) -> None:
    stack = a_stack((function, file, 1), ("train", "/home/me/train.py", 30))
    assert stacks.collective_of(stack) == function
    assert stacks.in_message(stack)


@pytest.mark.parametrize(
    ("file", "function"),
    [
        (f"{TORCH}/distributed/pipelining/schedules.py", "step"),
        (f"{TORCH}/distributed/distributed_c10d.py", "all_reduce"),
        ("/home/me/p2p.py", "recv"),
    ],
)
def test_what_is_no_message(file: str, function: str) -> None:
    assert not stacks.in_message(a_stack((function, file, 1)))
