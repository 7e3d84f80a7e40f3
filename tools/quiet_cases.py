"""The cases of the quiet table: what runs, for how long, and who may rightly be named."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    script: str
    words: tuple[str, ...]
    """arguments of the script; `{s}` is the time, scaled"""
    seconds: float
    ranks: int = 2
    may_be_named: tuple[int, ...] = ()
    """ranks that really delay the others at some time, so that a notice may say so"""
    never: tuple[str, ...] = ("gil-held", "rank-frozen", "rank-exits-early")
    """notices that would be untrue, whichever rank they name"""
    meanwhile: str = ""
    """of `quiet_surroundings.MEANWHILE`"""
    around: str = ""
    """of `quiet_surroundings.SURROUNDINGS`"""

    def arguments(self, scale: float) -> list[str]:
        return [word.format(s=round(self.seconds * scale, 1)) for word in self.words]


PAUSES, LOOPS, EDGES = "quiet_pauses.py", "quiet_loops.py", "quiet_edges.py"
REINFORCE, SHAPES = "quiet_reinforce.py", "quiet_shapes.py"
WORLDS = "quiet_worlds.py"


def _pause(name: str, what: str, seconds: float, *words: str, rank: int, ranks: int = 2) -> Case:
    return Case(name, what, PAUSES, words, seconds, ranks, may_be_named=(rank,))


def _loop(name: str, what: str, seconds: float, *, ranks: int = 2, named: tuple[int, ...] = ()
) -> Case:  # fmt: skip
    return Case(name, what, LOOPS, (name, "{s}"), seconds, ranks, may_be_named=named)


def _edge(name: str, what: str, seconds: float, which: str, named: tuple[int, ...]) -> Case:
    return Case(name, what, EDGES, (which, "{s}"), seconds, may_be_named=named)


def _wait(name: str, what: str, *, meanwhile: str = "") -> Case:
    words = ("80", f"{name}:0:40:{{s}}")
    return Case(name, what, PAUSES, words, 80, may_be_named=(0,), meanwhile=meanwhile)


def _shape(name: str, what: str, seconds: float, *, ranks: int = 2) -> Case:
    return Case(name, what, SHAPES, (name, "{s}"), seconds, ranks)


def _worlds(which: str, what: str, seconds: float, *, named: tuple[int, ...] = ()) -> Case:
    return Case(f"worlds-{which}", what, WORLDS, (which, "{s}"), seconds, 4, may_be_named=named)


_TABLE = (
    _wait("server", "rank 0 waits 80 s for the one answer of an HTTP server"),
    _wait("command", "rank 0 waits 80 s for a command it runs"),
    _wait("thread", "rank 0 joins a thread that takes 80 s"),
    _wait("lock", "rank 0 waits 80 s for a file lock of another process"),
    _wait("pipe", "rank 0 reads a pipe into which nothing comes for 80 s"),
    _wait("debugger", "rank 0 is at a pdb prompt for 80 s", meanwhile="continue"),
    _wait("save-thread", "rank 0 waits 80 s for a save in a thread, on a slow disk"),
    Case("ppo", "40 quick steps, then rollouts of 60 s, three times", REINFORCE, ("ppo", "{s}"), 60,
         may_be_named=(0,)),
    Case("grpo", "rank 0 waits 5 min for a generation server, twice; the others in a broadcast",
         REINFORCE, ("grpo", "{s}"), 300, may_be_named=(0,)),
    _shape("accumulation", "64 micro-batches of 60 ms to a step", 60),
    _shape("optimizers", "five optimizer calls in every step of a second", 40),
    _shape("alone", "a world of one rank", 15, ranks=1),
    _shape("trees", "every step starts a tree of processes; some outlive it", 20),
    _shape("prints", "more than a gigabyte of output, some lines of a megabyte", 20),
    _shape("atexit", "exit handlers that sleep for 20 s on every rank", 20),
    Case("clock", "the wall clock is set an hour ahead during a save of 30 s", PAUSES,
         ("200", "save:0:30:{s}"), 30, may_be_named=(0,), meanwhile="set", around="clock"),
    Case("launcher-stopped", "the launcher alone is stopped for 20 s (Ctrl-Z)", PAUSES, ("900",),
         20, meanwhile="stop"),
    Case("disk-hangs", "the disk of the runs folder takes no write for 40 s", PAUSES, ("1500",), 40,
         meanwhile="freeze", around="disk"),
    _worlds("pairs", "two pairs with their own stores and models; one is done after a third", 60),
    _worlds("ones", "four worlds of one rank, which end at different times", 40),
    _worlds("coordinator", "rank 0 has no group and sleeps 120 s; the others train and validate",
            120),
    _worlds("actors", "two learners wait 25 s for what two actors make, three times", 100,
            named=(0,)),
    _worlds("again", "the group is destroyed and made again, with other numbers", 40),
    _pause("first-save", "the first save, 90 s on rank 0 while the others wait, written with "
           "fsync to a slow disk", 90, "120", "save:0:60:{s}", rank=0, ranks=4),
    _pause("download-in-the-middle", "120 s download on rank 1 after 60 steps, 1 kB/s", 120,
           "120", "download:1:60:{s}", rank=1),
    _pause("download-first", "120 s download on rank 1 before the first step, 1 kB/s", 120,
           "60", "download:1:0:{s}", rank=1),
    _loop("no-optimizer", "80 s of training without any torch optimizer: no step is seen", 80),
    _pause("sleep", "rank 1 just sleeps for 40 s", 40, "120", "sleep:1:60:{s}", rank=1, ranks=4),
    _edge("sleep-before-init", "rank 1 sleeps for 40 s before it joins", 40, "before", (1,)),
    _pause("evaluation", "18 s evaluation every 25 steps on rank 0", 18, "80",
           "evaluate:0:25:{s}", "evaluate:0:50:{s}", "evaluate:0:75:{s}", rank=0),
    _pause("compile", "25 s of torch.compile on rank 0 before the first step", 25, "60",
           "compile:0:0:{s}", rank=0),
    _pause("save", "a 14 s save on rank 0 every 30 steps, written with fsync to a slow disk", 14,
           "100", "save:0:30:{s}", "save:0:60:{s}", rank=0),
    _loop("slow-first-epoch", "steps of 2 s while the caches fill, then of 20 ms", 30),
    _loop("leave-early", "rank 1 ends with 0, rank 0 works on alone for 25 s", 25),
    _loop("step-in-backward", "one optimizer per parameter, each run inside backward", 15),
    _loop("scaler-skips", "GradScaler skips every step for 15 s", 25),
    _loop("evaluate-together", "25 s without a step in which all ranks evaluate, with "
          "collectives in two groups", 25, ranks=4),
    _loop("subgroups", "two pipelines of different sizes meet every ten steps, all wait for rank 3",
          20, ranks=4, named=(3,)),
    _edge("teardown", "rank 1 takes 20 s in exit handlers and threads", 20, "teardown", (1,)),
    _edge("imports", "15 s of computing before torch is imported", 15, "imports", ()),
    Case("suspended", "launcher and ranks are stopped for 20 s", PAUSES, ("400",), 20,
         meanwhile="suspend"),
    Case("starved", "a neighbour takes all cores for 25 s", PAUSES, ("400",), 25, ranks=4,
         may_be_named=(0, 1, 2, 3), meanwhile="starve"),
    Case("starved-at-work", "a neighbour takes all cores for 25 s from ranks that compute; none of "
         "them may be called slow", LOOPS, ("compute", "{s}"), 25, meanwhile="starve"),
)  # fmt: skip

CASES = {case.name: case for case in _TABLE}
