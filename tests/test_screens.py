"""What the documents show of `lint`, `env` and `explain` is what they say today, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import write_screens

SESSION = """\
Before
```console
$ cat launch.sh
export NCCL_TIMEOUT=1800

$ holdfast lint launch.sh
{shown}
```
After
"""


@pytest.mark.parametrize("page", write_screens.PAGES, ids=lambda page: page.name)
def test_the_screens_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert write_screens.screens(text)
    assert write_screens.refreshed(text) == text, "run `make docs`"


@pytest.mark.parametrize(
    "stale",
    [
        "something that was said once",
        "…\nsomething that was said once\n…",
        "…\nFound 1 error in 1 file (1 looked at).\n…\nlaunch.sh:1:8: HOLD501 [variable-unread]",
    ],
)
def test_a_stale_screen_is_written_again(stale: str) -> None:
    made = write_screens.refreshed(SESSION.format(shown=stale))
    assert "\nlaunch.sh:1:8: HOLD501 [variable-unread] error: NCCL_TIMEOUT" in made
    assert "1 looked at).\n```\nAfter\n" in made
    assert "…\n" not in made.replace("timeout=…)", "")
    assert write_screens.refreshed(made) == made


def test_what_is_left_out_stays_out() -> None:
    page = SESSION.format(shown="…\n  1 | export NCCL_TIMEOUT=1800\n…")
    assert write_screens.refreshed(page) == page


def test_commands_without_a_screen_are_not_run() -> None:
    page = "```console\n$ holdfast env -- no-such-program  # nothing is claimed\n$ rm x\n```\n"
    assert write_screens.screens(page) == 0
    assert write_screens.refreshed(page) == page
