"""A launch script relies on luck: kills, sleeps and port loops that do not do what they say.

What you see   The old job is still running after the script's own clean-up; another job on the
               machine dies; the port that was free a second ago is taken; a restart loop repeats
               the same failure all night.
Why            pkill takes one pattern: with several it prints a usage error and ends nothing. A
               pattern like `python` ends everything that runs in Python. Sockets close when their
               process exits, not after a pause: what takes time is the process itself (CUDA
               teardown, an uninterruptible call). A port that a loop saw unused can be taken before
               the job binds it, and where `ss` is missing every port looks unused. Firewalls accept
               loopback; disabling them fixes nothing there. Slurm ends a job when its batch script
               ends, with everything left in the background.
How to be sure Run the line by itself and check its exit status: `pkill -f a b; echo $?` prints 2.
Fix            End the processes you started, by pid, and wait for them: `kill $PID; wait $PID`. Let
               the launcher choose the port: `torchrun --standalone`, or `--rdzv-endpoint
               localhost:0`. `holdfast run` does both, and stops when the same failure recurs.
Known limits   Only patterns that are known to be wrong or risky are reported; what a command does
               at run time, behind variables or functions of other files, is not known.
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

from holdfast import shell_words
from holdfast.analysis.source.launch import command_line, disabled_guards, kill_commands, port_loops
from holdfast.analysis.source.source import Launch, Source, SourceSetting
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD911",
    slug="shell-recipe",
    related=("port-in-use", "orphaned-workers", "restart-loop", "stale-process"),
)

END_BY_PID = "end the processes you started, by pid: `kill $PID; wait $PID`"
WAIT_FOR_EXIT = "`while pgrep -f PATTERN >/dev/null; do sleep 1; done`, or `wait $PID` for a child"
LET_LAUNCHER_CHOOSE = (
    "let the launcher choose: `torchrun --standalone …`, or `--rdzv-endpoint localhost:0`; "
    "`holdfast run` finds a free one itself"
)

TOOL_LIMITS = (
    (
        ("ss", "netstat"),
        "a pattern also matches the peer's column; without the tool every port looks free",
    ),
    (("lsof", "fuser"), "without root it sees only this user's processes"),
    (port_loops.LOOKERS | {"/dev/tcp"}, "it finds listeners only, not ports of connections"),
)
"""what each tool does not see"""


@FAULT.lint
def pkill_takes_one_pattern(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        if command.name not in ("pkill", "pgrep"):
            continue
        given = [word for word in kill_commands.patterns(command) if word.known]
        if len(given) > 1:
            either = "|".join(word.text for word in given)
            yield FAULT.error(
                f"{command.name} takes one pattern, but got {len(given)}",
                reason="it prints 'only one pattern can be provided', exits with status 2, and "
                + ("ends nothing" if command.name == "pkill" else "finds nothing"),
                fix=f"use one expression: `{command.name} -f "
                f"{shell_words.word(either, 'PATTERN')}`; better, {END_BY_PID}",
                at=given[1].place,
            )


@FAULT.lint
def kills_other_jobs(source: Source) -> Iterator[Finding]:
    for command in kill_commands.kills(source):
        word = kill_commands.found_by_python(source, command)
        for target in kill_commands.targets(command):
            if kill_commands.EVERYONES.fullmatch(target.text):
                word = target
        if word is not None:
            report = FAULT.note if kill_commands.narrowed(command) else FAULT.warning
            yield report(
                f"this ends everything that runs in Python, not only this job (`{word.text}`)",
                reason="other jobs, notebooks and tools of the same user are ended too; as root, "
                "those of all users",
                fix=END_BY_PID + "; or name the script: `pkill -f train.py`",
                at=word.place,
            )
        elif command.name == "fuser" or any("lsof" in word.text for word in command.words):
            yield FAULT.note(
                "this ends whatever process holds it, whichever job it belongs to",
                reason="on a shared machine the holder can be another job, or a monitoring tool",
                fix="check first: `fuser -v …`, `ss -ltnp`; then " + END_BY_PID,
                at=command.place,
            )


@FAULT.lint
def sleep_after_kill(source: Source) -> Iterator[Finding]:
    starts = [
        launch.command.number
        for launch in source.launches
        if launch.command and _starts_ranks(source, launch)
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
        report = FAULT.note if last.name == "kill" else FAULT.warning
        yield report(
            f"`sleep {length}` after `{last.name}` does not wait for the process to exit",
            reason="sockets close when their process exits, and TIME_WAIT (60 s) does not block "
            "the store; what must be gone is the process, and no fixed time guarantees that",
            fix=f"wait for the processes: {WAIT_FOR_EXIT}",
            at=pause.place,
        )


def _starts_ranks(source: Source, launch: Launch) -> bool:
    """A launch of ranks; a plain Python script only where the kill targets it."""
    script = launch.script.rpartition("/")[2]
    aimed = [
        word.text for kill in kill_commands.kills(source) for word in kill_commands.targets(kill)
    ]
    single = launch.kind == "python" and script and any(script in text for text in aimed)
    return bool(single) or launch.kind in command_line.STARTERS


@FAULT.lint
def port_chosen_by_loop(source: Source) -> Iterator[Finding]:
    for loop, looker in port_loops.searches(source):
        yield FAULT.warning(
            f"this loop looks for a free port with {looker}",
            reason="the port can be taken before the job binds it, and "
            + next(why for lookers, why in TOOL_LIMITS if looker in lookers),
            fix=LET_LAUNCHER_CHOOSE,
            at=loop.place,
        )
    for loop in port_loops.tries(source):
        yield FAULT.warning(
            "this loop starts the job on the next port, whatever the last failure was",
            reason="a job that fails for any other reason, perhaps after hours, starts again on "
            "another port, and the original error is lost among the attempts",
            fix=LET_LAUNCHER_CHOOSE,
            at=loop.place,
        )
    for command in source.commands:
        if word := port_loops.bind_to_zero(command):
            yield FAULT.note(
                "a port is chosen by binding to 0 and releasing it",
                reason="the kernel picks one from the ephemeral range, and may give it to an "
                "outgoing connection before the job binds it",
                fix=LET_LAUNCHER_CHOOSE,
                at=word.place,
            )


# --- restarts and background processes -----------------------------------------------------------

ENDLESS = re.compile(
    r"(?:\s*(?:while|until))?\s*(?:true|:|\[+ *(?:1|true) *\]+|\(\( *1 *\)\)|!.*)\s*"
)


@FAULT.lint
def endless_restart_loop(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        if launch.command is None or launch.kind not in command_line.STARTERS or launch.around:
            continue
        for number in launch.command.loops[-1:]:
            loop = source.loops[number]
            retried = loop.kind == "until" and launch.place.line == loop.place.line
            if retried or (loop.kind == "while" and ENDLESS.fullmatch(loop.condition)):
                yield FAULT.note(
                    f"this loop restarts {launch.kind} without limit",
                    reason="a failure that recurs at once is repeated endlessly, and the script "
                    "must resume from a checkpoint each time",
                    fix=f"`{launch.kind} --max-restarts=3 …`"
                    if launch.kind in command_line.TORCHRUN
                    else "use `holdfast run …`, which restarts and stops when the same failure "
                    "recurs",
                    at=loop.place,
                )


@FAULT.lint
def batch_script_does_not_wait(source: Source) -> Iterator[Finding]:
    batch = any(launch.kind == "sbatch" for launch in source.launches)
    in_background = [
        launch.command for launch in source.launches if launch.command and launch.command.background
    ]
    if not batch or not source.complete or not in_background:
        return
    last = max(in_background, key=lambda command: command.number)
    waits = ("wait", "tail", "sleep", "srun", "mpirun", "torchrun", "while", "python")
    if not any(after.name in waits or after.loops for after in command_line.after(source, last)):
        yield FAULT.error(
            f"{last.name} runs in the background, but the batch script ends",
            reason="Slurm ends the job, and everything still running, when its batch script ends",
            fix="add `wait` as the last line",
            at=last.place,
        )


# --- variables that no program sees --------------------------------------------------------------

PROGRAM_VARIABLES = re.compile(
    r"(?:TORCH_)?NCCL_\w+|GLOO_\w+|TORCH_DISTRIBUTED_DEBUG|OMP_NUM_THREADS"
)
"""names that only a program reads: an unexported shell variable has no effect"""
BUILTINS = frozenset({"echo", "printf", "exit", "wait", "date", "deactivate", "cd", "popd", "true"})


def _exported(setting: SourceSetting) -> str:
    """With the value as written, where that fits on a line of ours."""
    if setting.written and setting.written.isprintable() and "`" not in setting.written:
        return f"`export {setting.name}={setting.written}`"
    return f"`export {shell_words.setting(setting.name, setting.value)}`"


@FAULT.lint
def variable_not_exported(source: Source) -> Iterator[Finding]:
    exported = {setting.name for setting in source.settings if setting.exported}
    started = [launch.place for launch in source.launches if launch.kind in command_line.STARTERS]
    last = max(started, default=None)
    for setting in source.settings:
        private = setting.by == "shell" and not setting.exported and setting.name not in exported
        if not private or setting.name in source.reads or last is None or last < setting.place:
            continue
        if PROGRAM_VARIABLES.fullmatch(setting.name):
            yield FAULT.warning(
                f"{setting.name} is set in this shell only: no program sees it",
                reason="without export a variable is not passed to the programs that the shell "
                "starts, unless it came with the environment",
                fix=_exported(setting),
                at=setting.place,
            )


@FAULT.lint
def variable_exported_too_late(source: Source) -> Iterator[Finding]:
    started = [launch for launch in source.launches if launch.kind in command_line.STARTERS]
    programs = [c.place for c in source.commands if c.name not in BUILTINS]
    last = max(programs, default=None)
    if not source.complete or not started or last is None:
        return
    for setting in source.settings:
        late = setting.by == "export" and setting.place > last
        if late and PROGRAM_VARIABLES.fullmatch(setting.name):
            yield FAULT.warning(
                f"{setting.name} is exported after the last launch of this script",
                reason="a program gets the environment of the moment it starts",
                fix="move the export above the launch",
                at=setting.place,
            )


# --- firewall and SELinux ------------------------------------------------------------------------


@FAULT.lint
def firewall_or_selinux_disabled(source: Source) -> Iterator[Finding]:
    for command in source.commands:
        if what := disabled_guards.disabled_guard(command):
            selinux = what == "SELinux"
            yield FAULT.warning(
                f"this disables {what} for the whole machine",
                reason="a denial by SELinux shows as 'Permission denied' and leaves an AVC record; "
                "training jobs are rarely confined"
                if selinux
                else "a firewall accepts loopback anyway; between machines a job needs the master "
                "port and the ephemeral ports, from its own network only",
                fix="see what was denied with `ausearch -m AVC -ts recent`; allow that: "
                "`audit2allow`"
                if selinux
                else "open it to the nodes only: `ufw allow from 10.0.0.0/24`, or `firewall-cmd "
                "--zone=trusted --add-source=10.0.0.0/24`, with your own subnet",
                at=command.place,
            )
