"""What Python, signal handlers, glibc and gdb print when native code crashes."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_pattern = functools.partial(LogPattern, slug="native-crash")

FATAL = _pattern(
    name="native-crash: fatal-python-error",
    pattern=r"Fatal Python error: (?P<what>Segmentation fault|Bus error|Aborted|Illegal instruction"
    r"|Floating[ -]point exception)",
    anchors=("Fatal Python error: ",),
    example="Fatal Python error: Segmentation fault",
)
HANDLER = _pattern(
    name="native-crash: signal-handler",
    pattern=r"\*{3} (?P<name>SIG(?:SEGV|BUS|ILL|FPE))\b.* received"
    r"|Caught signal (?P<number>11|7|4|8) "
    r"\((?P<what>[^:)]*)|Signal: (?P<told>Segmentation fault|Bus error|Illegal instruction) \(\d+\)"
    # gdb before 7.5 prints the number
    r"|(?:terminated with|received) signal (?:SIG(?:SEGV|BUS|ILL|FPE)|4|7|8|11), "
    r"(?P<gdb>[A-Z][\w ]+)"
    r"|(?P<dumped>Segmentation fault|Illegal instruction|Floating point exception) \(core dumped\)",
    anchors=(
        "*** SIG",
        "Caught signal ",
        "Signal: ",
        " (core dumped)",
        " with signal SIG",
        "received signal SIG",
        "terminated with signal ",
    ),
    example="[node-a:1011 :0:1011] Caught signal 11 (Segmentation fault: address not mapped to "
    "object at address 0x28)",
)
GAVE_UP = _pattern(
    name="native-crash: gave-up",
    # How C++ ends a program that leaves a thread running or calls a destroyed object.
    pattern=r"terminate called without an active exception|pure virtual method called"
    r"|terminate called recursively",
    anchors=("terminate called without", "pure virtual method called", "terminate called recurs"),
    example="terminate called without an active exception",
    role=Role.TEARDOWN,
)
INSIDE = _pattern(
    name="native-crash: inside-a-framework",
    pattern=r"#\d+\s+(?:0x[0-9a-f]+ in )?"
    r"(?P<function>(?:at|c10|c10d|torch|nccl)(?:::|[A-Z])[\w:~<>]+)",
    anchors=(" in at::", " in c10::", " in c10d::", " in torch::", " in nccl"),
    example="#0  0x00007f92fef2548f in at::cuda::getCurrentDeviceProperties() ()",
    role=Role.CONFIRMATION,
)
HEAP = _pattern(
    name="native-crash: heap",
    pattern=r"(?P<what>double free or corruption|free\(\): invalid (?:pointer|size|next size)"
    r"|malloc\(\): [a-z][\w ]+|munmap_chunk\(\): invalid pointer|corrupted size vs\. prev_size"
    r"|corrupted double-linked list|\*\*\* stack smashing detected)",
    anchors=(
        "double free or corruption",
        "free(): invalid",
        "malloc(): ",
        "munmap_chunk(): ",
        "corrupted size vs.",
        "corrupted double-linked list",
        "*** stack smashing detected",
    ),
    example="double free or corruption (!prev)",
)
ALL = (FATAL, HANDLER, GAVE_UP, INSIDE, HEAP)
