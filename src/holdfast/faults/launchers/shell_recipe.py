"""A launch recipe leans on luck: kills, sleeps and port loops that do not do what they say.

What you see   The old job is still there after the recipe's own clean-up; another job on the
               machine dies; the port that was free a second ago is taken; a restart loop runs the
               same failure all night.
Why            pkill takes one pattern: with several it prints a usage error and ends nothing. A
               pattern like `python` ends everything that runs in Python. Sockets close when their
               process ends, not after a pause: what takes time is the process itself (CUDA
               teardown, a call that cannot be interrupted). A port that a loop saw unused can be
               taken before the job binds it, and where `ss` is missing every port looks unused.
               Firewalls let loopback through; switching them off repairs nothing there. Slurm
               ends a job when its batch script ends, with all it left in the background.
How to be sure Run the line by itself and look at its exit status: `pkill -f a b; echo $?` says 2.
Fix            End the processes you started, by id, and wait for them: `kill $PID; wait $PID`. Let
               the launcher choose the port: `torchrun --standalone`, or `--rdzv-endpoint
               localhost:0`. `holdfast run` does both, and stops when the same failure comes back.
Sources        procps-ng 4.0.2 src/pgrep.c: 'only one pattern can be provided'
               https://man7.org/linux/man-pages/man1/pgrep.1.html
               https://docs.pytorch.org/docs/stable/elastic/run.html (stacked single-node workers)
               torvalds/linux include/net/tcp.h: TCP_TIMEWAIT_LEN
               firewalld/firewalld src/firewall/core/nftables.py: loopback is accepted first
               https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.launch import kill_commands, port_loops, questions
from holdfast.analysis.source.source import Command, Launch, Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD911", slug="shell-recipe")

BY_ID = "end what you started, by id: `kill $PID; wait $PID`"
WAIT = "`while pgrep -f PATTERN >/dev/null; do sleep 1; done`, or `wait $PID` for a child"
LET_IT_CHOOSE = (
    "let the launcher choose: `torchrun --standalone …`, or `--rdzv-endpoint localhost:0`; "
    "`holdfast run` takes a free one by itself"
)

OVERLOOKED = (
    (
        ("ss", "netstat"),
        "a pattern also matches the peer's column; where the tool is missing every port looks free",
    ),
    (("lsof", "fuser"), "without root it sees only this user's processes"),
    (port_loops.LOOKERS | {"/dev/tcp"}, "it finds listeners only, not ports of connections"),
)
"""what each tool misses"""


@FAULT.lint
def pkill_takes_one_pattern(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        if command.name not in ("pkill", "pgrep"):
            continue
        given = [word for word in kill_commands.patterns(command) if word.known]
        if len(given) > 1:
            either = "|".join(word.text for word in given)
            yield FAULT.error(
                f"{command.name} takes one pattern, and got {len(given)}",
                reason="it says 'only one pattern can be provided', exit status 2, and "
                + ("ends nothing" if command.name == "pkill" else "finds nothing"),
                fix=f"one expression: `{command.name} -f '{either}'`; better, {BY_ID}",
                at=given[1].place,
            )


@FAULT.lint
def it_ends_more_than_its_own(source: Source) -> Iterator[Finding]:
    for command in kill_commands.kills(source):
        word = kill_commands.found_by_python(source, command)
        for target in kill_commands.targets(command):
            if kill_commands.EVERYONES.fullmatch(target.text):
                word = target
        if word is not None:
            speak = FAULT.note if kill_commands.narrowed(command) else FAULT.warning
            yield speak(
                f"this ends everything that runs in Python, not only this job (`{word.text}`)",
                reason="other jobs, notebooks and tools of the same user go with it; as root, "
                "everybody's",
                fix=BY_ID + "; or name the script: `pkill -f train.py`",
                at=word.place,
            )
        elif command.name == "fuser" or any("lsof" in word.text for word in command.words):
            yield FAULT.note(
                "this ends whoever holds it, whosever job that is",
                reason="on a shared machine the holder can be another job, or a monitoring tool",
                fix="look first: `fuser -v …`, `ss -ltnp`; then " + BY_ID,
                at=command.place,
            )


@FAULT.lint
def a_pause_waits_for_nothing(source: Source) -> Iterator[Finding]:
    starts = [
        launch.command.number
        for launch in source.launches
        if launch.command and _restarts(source, launch)
    ]
    kills = [c for c in kill_commands.kills(source) if not c.loops]
    for pause in source.commands:
        before = [c for c in kills if c.number < pause.number]
        if pause.name != "sleep" or pause.loops or not before:
            continue
        last = before[-1]
        first = min((n for n in starts if n > pause.number), default=None)
        waited = any(
            c.name in ("wait", "tail") and last.number < c.number < (first or 0)
            for c in source.commands
        )
        if first is None or waited or any(last.number < n < pause.number for n in starts):
            continue
        length = pause.words[1].text if len(pause.words) > 1 else "N"
        speak = FAULT.note if last.name == "kill" else FAULT.warning
        yield speak(
            f"`sleep {length}` after `{last.name}` waits for nothing in particular",
            reason="sockets close when their process ends, and TIME_WAIT (60 s) does not hinder "
            "the store; what must be gone is the process, and that takes as long as it takes",
            fix=f"wait for the processes: {WAIT}",
            at=pause.place,
        )


def _restarts(source: Source, launch: Launch) -> bool:
    """A launch of ranks; a plain Python script only where the kill was aimed at it."""
    script = launch.script.rpartition("/")[2]
    aimed = [
        word.text for kill in kill_commands.kills(source) for word in kill_commands.targets(kill)
    ]
    lone = launch.kind == "python" and script and any(script in text for text in aimed)
    return bool(lone) or launch.kind in questions.STARTERS


@FAULT.lint
def the_port_is_looked_for_by_hand(source: Source) -> Iterator[Finding]:
    for loop, looker in port_loops.searches(source):
        yield FAULT.warning(
            f"this loop looks for a free port with {looker}",
            reason="the port can be taken before the job binds it, and "
            + next(why for lookers, why in OVERLOOKED if looker in lookers),
            fix=LET_IT_CHOOSE,
            at=loop.place,
        )
    for loop in port_loops.tries(source):
        yield FAULT.warning(
            "this loop starts the job on the next port, whatever the last start failed of",
            reason="a job that dies of anything else, after hours perhaps, begins again on another "
            "port, and what it died of is lost among the tries",
            fix=LET_IT_CHOOSE,
            at=loop.place,
        )
    for command in source.commands:
        if word := port_loops.bind_to_zero(command):
            yield FAULT.note(
                "a port is chosen by binding to 0 and letting it go again",
                reason="the kernel gives one of the ephemeral range, and may give it to an "
                "outgoing connection before the job binds it",
                fix=LET_IT_CHOOSE,
                at=word.place,
            )


# --- restarting, and what is left in the background ----------------------------------------------

FOR_EVER = re.compile(r"\s*(?:while|until)?\s*(?:true|:|\[+ *(?:1|true) *\]+|\(\( *1 *\)\)|!.*)\s*")


@FAULT.lint
def it_restarts_for_ever(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.command is None or launch.kind not in questions.STARTERS or launch.around:
            continue
        for number in launch.command.loops[-1:]:
            loop = source.loops[number]
            retried = loop.kind == "until" and launch.place.line == loop.place.line
            if retried or (loop.kind == "while" and FOR_EVER.fullmatch(loop.condition)):
                yield FAULT.note(
                    f"this loop starts {launch.kind} again, however often it fails",
                    reason="a failure that comes back at once is repeated for ever, and the script "
                    "must resume from a checkpoint by itself each time",
                    fix=f"`{launch.kind} --max-restarts=3 …`"
                    if launch.kind in questions.TORCHRUN
                    else "`holdfast run …` restarts it, and stops when the same failure comes back",
                    at=loop.place,
                )


@FAULT.lint
def the_batch_script_ends_before_its_ranks(source: Source) -> Iterator[Finding]:
    batch = any(launch.kind == "sbatch" for launch in source.launches)
    left = [
        launch.command for launch in source.launches if launch.command and launch.command.background
    ]
    if not batch or not source.complete or not left:
        return
    last = max(left, key=lambda command: command.number)
    waits = ("wait", "tail", "sleep", "srun", "mpirun", "torchrun", "while", "python")
    if not any(after.name in waits or after.loops for after in questions.after(source, last)):
        yield FAULT.error(
            f"{last.name} is left in the background, and the batch script ends",
            reason="Slurm ends the job with its batch script, and with it all that still runs",
            fix="`wait` as the last line",
            at=last.place,
        )


# --- variables that nobody sees -------------------------------------------------------------------

FOR_PROGRAMS = re.compile(r"(?:TORCH_)?NCCL_\w+|GLOO_\w+|TORCH_DISTRIBUTED_DEBUG|OMP_NUM_THREADS")
"""names that only a program reads: a shell variable of that name is of no use"""
NO_PROGRAM = frozenset(
    {"echo", "printf", "exit", "wait", "date", "deactivate", "cd", "popd", "true"}
)


@FAULT.lint
def the_variable_is_not_exported(source: Source) -> Iterator[Finding]:
    reach = {setting.name for setting in source.settings if setting.exported}
    started = [launch.place for launch in source.launches if launch.kind in questions.STARTERS]
    last = max(started, default=None)
    for setting in source.settings:
        private = setting.by == "shell" and not setting.exported and setting.name not in reach
        if not private or setting.name in source.reads or last is None or last < setting.place:
            continue
        if FOR_PROGRAMS.fullmatch(setting.name):
            yield FAULT.warning(
                f"{setting.name} is set in this shell only: no program sees it",
                reason="without export a variable is not handed to what the shell starts, unless "
                "it came with the environment",
                fix=f"`export {setting.name}={setting.written or setting.value}`",
                at=setting.place,
            )


@FAULT.lint
def the_variable_comes_too_late(source: Source) -> Iterator[Finding]:
    started = [launch for launch in source.launches if launch.kind in questions.STARTERS]
    programs = [c.place for c in source.commands if c.name not in NO_PROGRAM]
    last = max(programs, default=None)
    if not source.complete or not started or last is None:
        return
    for setting in source.settings:
        late = setting.by == "export" and setting.place > last
        if late and FOR_PROGRAMS.fullmatch(setting.name):
            yield FAULT.warning(
                f"{setting.name} is exported after the last launch of this script",
                reason="a program gets the environment as it is when it starts",
                fix="move the export above the launch",
                at=setting.place,
            )


# --- doors left open -----------------------------------------------------------------------------


@FAULT.lint
def a_guard_is_switched_off(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        if what := _switched_off(command):
            selinux = what == "SELinux"
            yield FAULT.warning(
                f"this switches {what} off for the whole machine",
                reason="a denial by SELinux reads 'Permission denied' and leaves an AVC record; "
                "training jobs are seldom confined"
                if selinux
                else "a firewall lets loopback through anyway; between machines a job needs the "
                "master port and the ephemeral ports, from its own network only",
                fix="`ausearch -m AVC -ts recent` shows what was denied; allow that: `audit2allow`"
                if selinux
                else "open it to the nodes only: `ufw allow from 10.0.0.0/24`, or `firewall-cmd "
                "--zone=trusted --add-source=10.0.0.0/24`, with your own subnet",
                at=command.place,
            )


def _switched_off(command: Command) -> str:
    texts = [word.text for word in command.words[1:]]
    line = " ".join(texts)
    if command.name == "setenforce":
        return "SELinux" if texts and texts[0].lower() in ("0", "permissive") else ""
    if command.name == "sed" and re.search(r"SELINUX=(?:disabled|permissive)", line):
        return "SELinux"
    if command.name == "ufw":
        return "the firewall" if "disable" in texts else ""
    if command.name in ("systemctl", "service"):
        stops = {"stop", "disable", "mask"} & set(texts)
        guard = re.search(r"\b(?:firewalld|ufw|nftables|iptables|ip6tables)\b", line)
        return "the firewall" if stops and guard else ""
    if command.name in ("iptables", "ip6tables"):
        flushed = {"-F", "--flush"} & set(texts) and "-t" not in texts and len(texts) == 1
        return "the firewall" if flushed or line.startswith("-P INPUT ACCEPT") else ""
    return "the firewall" if command.name == "nft" and line == "flush ruleset" else ""
