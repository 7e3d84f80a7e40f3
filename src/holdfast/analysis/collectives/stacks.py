"""What a Python stack says: where in the user's code a rank is, and what it is busy with.

Calls into C leave no frame: time.sleep, file.read and Work.wait show as the line that called
them.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from holdfast.analysis.scene.scene import Frame, Stack

_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3(?:\.\d+)?t?/|/pytorch/torch/")
_TORCH = re.compile(r"/(?:(?:site|dist)-packages|pytorch)/torch/")
_STANDARD = re.compile(r"/lib(?:64)?/python3(?:\.\d+)?t?/(?!(?:site|dist)-packages/)")
_NATIVE = re.compile(r"\.so(?:\.\d+)*$|\.(?:c|cc|cpp|cu|cxx|h|hpp|pyx|S)$|^\?\?$")

_WRAPPER = re.compile(
    r"wrapper|wrapped|inner|_fn|_wrapped_call_impl|_call_impl|decorate_(?:context|autocast)|_?decorator"
)
"""functions that only call the one the user named"""

COLLECTIVES = re.compile(
    r"(?:all_(?:gather|reduce)(?:_coalesced)?|all_gather_(?:into_tensor|single|tensor)"
    r"|all_to_all(?:_single)?"
    r"|(?:monitored_)?barrier|batch_isend_irecv|i?(?:send|recv)|reduce(?:_scatter(?:_(?:tensor|single))?)?"
    r"|broadcast|gather|scatter|(?:all_gather|gather|scatter|broadcast|send|recv)_object(?:_list)?"
    r"|wait_tensor|foreach_(?:all_gather|reduce)(?:_copy_out)?|wait_for_unshard)"
)
"""functions of torch.distributed that wait for other ranks, sends and receives among them; the
last ones are FSDP2's, whose Work.wait() leaves no frame of its own"""

MESSAGES = re.compile(r"send|recv|p2p|_communicate")

_GPU_WAITS = re.compile(r"/torch/(?:cuda|xpu|mtia|accelerator)/\w+\.py$")
"""files of torch whose synchronize() returns when the GPU has done the work it was given"""

_PIPELINES = re.compile(
    r"(?:/torch/distributed/pipelining/schedules|/megatron/(?:core/)?(?:\w+/)*p2p_communication"
    r"|/deepspeed/runtime/pipe/(?:p2p|engine))\.py$"
)
_MESSAGE_WAITS = re.compile(
    r"_wait_batch_p2p|_communicate(?:_shapes)?|_?p2p_ops|_batched_p2p_ops|(?:send|recv)(?:_\w+)?"
    r"|_exec_(?:send|recv)_\w+"
)
"""functions of pipelines that wait for a message of another stage: Work.wait() leaves no frame"""

_WRAPPING = "DistributedDataParallel"
_IN_DDP = re.compile(r"/torch/nn/parallel/distributed\.py$|/torch/distributed/utils\.py$")
_DDP_MEETS = re.compile(
    r"_verify_param_shape_across_processes|_sync_(?:module_states|params_and_buffers)"
    r"|_sync_(?:module_)?buffers|_distributed_broadcast_coalesced|_default_broadcast_coalesced"
)
"""functions in which DDP's constructor and forward() compare or send parameters, in C++"""

_SLEEPING = ("nanosleep",)
"""in the kernel's name of what a thread waits for: hrtimer_nanosleep, do_nanosleep…"""


def _is_user(frame: Frame) -> bool:
    return not _is_no_script(frame) and not _LIBRARY.search(frame.file)


def _is_no_script(frame: Frame) -> bool:
    """Made at run time, or C: only kept stacks show those."""
    return frame.file.startswith("<") or not frame.file or bool(_NATIVE.search(frame.file))


def _name(frame: Frame) -> str:
    """Without the classes and functions around it, which only newer Pythons report."""
    return frame.function.rpartition(".")[2]


# --- where -------------------------------------------------------------------------------------


def where(stack: Stack) -> str:
    """'in read() at data.py:88': the call, and the innermost line of the user's own code.

    A trainer that is itself an installed package counts as user code when there is no other.
    '' for an empty stack.
    """
    return _located(stack)


def call_site(stack: Stack) -> str:
    """'in evaluate() at train.py:26', for a sentence that names the collective itself: the call
    that led to it (backward), or else the function of the user's line."""
    return _located(stack, but=COLLECTIVES)


def _located(stack: Stack, but: re.Pattern[str] | None = None) -> str:
    """With the user's own function where the one it calls is named in the sentence already."""
    if not stack.frames:
        return ""
    index = _user_index(stack.frames)
    frame = stack.frames[index]
    # From the user's line inwards: the first call that is not a decorator's wrapper.
    calls = [_name(call) for call in reversed(stack.frames[:index])]
    named = [name for name in calls if not _WRAPPER.fullmatch(name)]
    name = next(iter(named), _name(frame))
    if but is not None and but.fullmatch(name):
        name = _name(frame)
    place = f"at {_short(frame.file)}" + (f":{frame.line}" if frame.line else "")
    return place if name.startswith("<") else f"in {name}() {place}"


def raised_at(frames: tuple[Frame, ...]) -> str:
    """'in train() at train.py:88': of a traceback, whose exception itself says what was called."""
    return _located(Stack(frames=frames, active=False, holds_gil=False), but=re.compile(r"\w+"))


def user_frame(stack: Stack) -> Frame | None:
    """The innermost of the user's own code, or of a package when there is none."""
    return stack.frames[_user_index(stack.frames)] if stack.frames else None


def _user_index(frames: tuple[Frame, ...]) -> int:
    for is_theirs in (_is_user, _is_package):
        for index, frame in enumerate(frames):
            if is_theirs(frame):
                return index
    return 0


def _is_package(frame: Frame) -> bool:
    """Installed, but neither torch nor Python itself."""
    return not (_is_no_script(frame) or _TORCH.search(frame.file) or _STANDARD.search(frame.file))


def _short(file: str) -> str:
    name = os.path.basename(file)
    return os.path.join(os.path.basename(os.path.dirname(file)), name) if "__" in name else name


# --- what --------------------------------------------------------------------------------------


def collective_of(stack: Stack) -> str:
    """'all_reduce' when the stack is inside such a call of torch.distributed, else ''.

    DDP's own collectives run in C++ under backward() and do not show: the recorder has them.
    """
    for frame in stack.frames:
        if "/torch/distributed/" in frame.file and COLLECTIVES.fullmatch(_name(frame)):
            return _name(frame)
        if _PIPELINES.search(frame.file) and _MESSAGE_WAITS.fullmatch(_name(frame)):
            return _name(frame)
        if _IN_DDP.search(frame.file) and _DDP_MEETS.fullmatch(_name(frame)):
            return _WRAPPING
    return ""


def in_message(stack: Stack) -> bool:
    """Whether it waits for a message of one other rank, not for all of a group."""
    return bool(MESSAGES.search(collective_of(stack)))


def in_collective(stack: Stack) -> bool:
    """Whether it waits for other ranks, as far as the stack shows."""
    return bool(collective_of(stack))


def in_gpu_wait(stack: Stack) -> bool:
    """Whether it waits for its own GPU, and so for whatever that waits for. `.item()` and `.cpu()`
    wait as well, and leave no frame."""
    return any(f.function.endswith("synchronize") and _GPU_WAITS.search(f.file)
               for f in stack.frames)  # fmt: skip


class _Rule(NamedTuple):
    phase: str
    file: str
    """a frame of such a file…"""
    function: str = ".*"
    """…and such a function"""
    user: str = ""
    """or a function with such a name in code that is neither torch's nor Python's"""


def activity_of(stack: Stack, *, wait_channel: str = "") -> str:
    """What it is busy with: 'compile', 'collective', 'save', 'load', 'download',
    'data loading', 'evaluation', 'sleep', or '' when the frames do not show it.

    The most telling comes first: a download inside data loading inside an evaluation is a
    download. Sleep is seen by the kernel's wait channel, or by the innermost function's name.
    """
    for rule in _RULES:
        if rule.phase == "collective":
            matches = in_collective(stack)
        else:
            matches = any(_matches(rule, frame) for frame in stack.frames)
        if matches:
            return rule.phase
    asleep = any(sign in wait_channel for sign in _SLEEPING)
    if asleep or (stack.frames and _name(stack.frames[0]) == "sleep"):
        return "sleep"
    return ""


def _matches(rule: _Rule, frame: Frame) -> bool:
    name = _name(frame)
    if re.search(rule.file, frame.file) and re.fullmatch(rule.function, name):
        return True
    return bool(rule.user) and _is_package(frame) and bool(re.fullmatch(rule.user, name))


_RULES = (
    # A compiled model runs through _dynamo/eval_frame.py and _inductor at every step: only
    # files and functions that translate count.
    _Rule(
        "compile",
        r"/torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph)\.py$"
        r"|/torch/_inductor/(?:scheduler|graph|lowering|codecache|cpp_builder)\.py$"
        r"|/torch/_inductor/codegen/|/triton/(?:compiler|backends)/"
        r"|/torch/utils/cpp_extension\.py$",
    ),
    _Rule(
        "compile",
        r"/torch/_inductor/|/torch/_functorch/|/triton/",
        r".*(?:compile_fx|codegen|autotune|benchmark|_compile|compile_to).*",
    ),
    _Rule("collective", r"/torch/distributed/"),
    _Rule(
        "save",
        r"/torch/serialization\.py$|/torch/distributed/checkpoint/|/safetensors/|/numpy/lib/",
        r".*(?:save|write|fsync).*",
        user=r"_*(?:[a-z]\w*_)?(?:save|dump)(?:_(?:checkpoint|ckpt|model|state|weights|pretrained|"
        r"snapshot|to|file|all|latest|last|best)\w*)?|_*(?:write|make|store)_(?:checkpoint|ckpt)\w*",
    ),
    _Rule(
        "load",
        r"/torch/serialization\.py$|/torch/distributed/checkpoint/|/safetensors/",
        r".*(?:load|read).*",
        user=r"_*(?:load|restore|read)_(?:checkpoint|ckpt|model|state|weights|snapshot)\w*"
        r"|from_pretrained|load_state_dict",
    ),
    _Rule(
        "download",
        r"/urllib/request\.py$|/http/client\.py$|/ssl\.py$|/ftplib\.py$|/(?:urllib3|requests|httpx|"
        r"httpcore|aiohttp|huggingface_hub|boto3|botocore|s3fs|gcsfs|google/cloud/storage)/",
        user=r"_*(?:download|fetch)(?:_\w*)?|\w*_download|snapshot_download",
    ),
    _Rule("download", r"/socket\.py$", r"readinto|create_connection"),
    _Rule(
        "data loading", r"/torch/utils/data/", r"__next__|_next_data|_get_data|fetch|_try_get_data"
    ),
    _Rule(
        "evaluation",
        r"/(?:lightning|pytorch_lightning)/.*evaluation_loop\.py$",
        user=r"_*(?:\w+_)?(?:eval|evaluate|evaluation|validation)(?:_\w*)?"
        r"|(?:val|validate|test)(?:_(?:one_)?(?:epoch|step|loop|model))?",
    ),
)
