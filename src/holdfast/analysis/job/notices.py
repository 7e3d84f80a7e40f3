"""Which notices of a stall are said: early, then ever more rarely, and none of this job's habits.

A notice is true whether or not it is a fault, but a job that evaluates a thousand times is not to
be told so a thousand times: what came back by itself from the same place is news only when it
takes clearly longer. Pure: times are passed in.
"""

from __future__ import annotations

from holdfast.analysis.collectives import stacks
from holdfast.analysis.scene.scene import Scene, Stack
from holdfast.findings import Verdict

AGAIN = (60.0, 300.0, 1800.0)
"""seconds into a stall at which it is said again; later whenever it has become twice as long"""
LASTING = 1800.0
"""seconds before what does not end with a step (a slow rank) is said again, later twice as many"""
MOST = 3
"""different notices of one stall in between: two ranks may be named in turn"""
LONGER = 1.5
"""times the longest stall that the job came back from at this place: up to then it is habit"""
PLACES = 200
"""that are remembered"""

Place = tuple[object, ...]
Name = tuple[str, tuple[int, ...], tuple[str, ...]]
"""fault, ranks, nodes"""


def place_of(scene: Scene, found: Verdict) -> Place:
    """Who is waited for, and in which function of the user's."""
    stack = scene.rank(found.ranks[0]).stack if found.ranks else None
    frame = stacks.user_frame(stack) if isinstance(stack, Stack) else None
    return (found.ranks, frame.file if frame else "", frame.function if frame else "")


class Notices:
    """Of one run: habits are kept through its attempts."""

    def __init__(self) -> None:
        self._habits: dict[Place, float] = {}
        self._lasting: dict[Name, tuple[float, float]] = {}
        self._begin(0.0)

    def _begin(self, since: float) -> None:
        self._since = since
        self._lasted = 0.0
        self._places: set[Place] = set()
        self._said: set[Name] = set()
        self._next = 0.0

    def new_attempt(self) -> None:
        self._lasting.clear()
        self._begin(0.0)

    def is_due(self, found: Verdict, place: Place, *, since: float, lasted: float) -> bool:
        """Whether to say this now, `lasted` seconds into a stall; one stall has one `since`."""
        if since != self._since:
            self.over()
            self._begin(since)
        self._lasted = max(self._lasted, lasted)
        self._places.add(place)
        name = _name(found)
        if not found.certain and lasted <= LONGER * self._habits.get(place, 0.0):
            return False
        fresh = name not in self._said and len(self._said) < MOST
        if not fresh and lasted < self._next:
            return False
        if not fresh or not self._said:
            self._next = _next(lasted)
        self._said.add(name)
        return True

    def is_due_while_steps_continue(self, now: float, found: Verdict) -> bool:
        name = _name(found)
        due, pause = self._lasting.get(name, (0.0, LASTING))
        if now < due:
            return False
        self._lasting[name] = (now + pause, 2 * pause)
        return True

    def has_said(self, found: Verdict) -> bool:
        """In this stall."""
        return _name(found) in self._said

    def over(self) -> None:
        """The job came back by itself: where it was is known from now on."""
        for place in self._places:
            self._habits[place] = max(self._lasted, self._habits.pop(place, 0.0))
        while len(self._habits) > PLACES:
            del self._habits[next(iter(self._habits))]
        self._begin(0.0)


def _name(found: Verdict) -> Name:
    return found.slug, found.ranks, found.about_hosts


def _next(lasted: float) -> float:
    return next((again for again in AGAIN if again > lasted), 2 * lasted)
