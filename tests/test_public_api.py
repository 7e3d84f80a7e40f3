"""What `import holdfast` offers: its names, their docstrings, and errors that show their hint."""

from __future__ import annotations

import inspect
import subprocess
import sys
import traceback

import pytest

import holdfast

ERRORS = (
    "CollectiveTimeout",
    "ConfigError",
    "EnvironmentFailure",
    "Error",
    "RanksDiffer",
    "ResumeRefused",
)


def test_every_error_is_an_error_of_holdfast_and_of_python() -> None:
    assert all(issubclass(getattr(holdfast, name), holdfast.Error) for name in ERRORS)
    assert issubclass(holdfast.ConfigError, ValueError)
    assert issubclass(holdfast.EnvironmentFailure, RuntimeError)
    assert issubclass(holdfast.CollectiveTimeout, TimeoutError)
    assert issubclass(holdfast.ResumeRefused, holdfast.ConfigError)
    assert issubclass(holdfast.RanksDiffer, holdfast.ConfigError)
    assert holdfast.ResumeRefused("x", slugs=["config-changed"]).slugs == ("config-changed",)


@pytest.mark.parametrize("name", ERRORS)
def test_a_traceback_shows_the_hint(name: str) -> None:
    error = getattr(holdfast, name)("the sentence", hint="the way out")
    text = "".join(traceback.format_exception(error))
    assert "the sentence" in text
    assert text.endswith("\nhint: the way out\n")


def test_the_user_of_a_script_sees_the_hint() -> None:
    script = "import holdfast\nwith holdfast.deadline('x', seconds='soon'): pass"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ConfigError: seconds must be a duration, got 'soon'\nhint: write seconds" in done.stderr


def callables() -> list[tuple[str, object]]:
    """Public functions and classes, and the public methods of the classes."""
    found: list[tuple[str, object]] = []
    for name in holdfast.__all__:
        thing = getattr(holdfast, name)
        found.append((name, thing))
        if inspect.isclass(thing) and name not in ERRORS:
            found += [
                (f"{name}.{method}", function)
                for method, function in vars(thing).items()
                if inspect.isfunction(function) and not method.startswith("_")
            ]
    return found


INTERNAL = {  # what State, Sampler and StatefulLoader offer to Checkpoint and to torch
    *("State.capture", "State.restore", "State.structure", "State.apply_changed_settings"),
    *("State.left_behind", "State.give", "State.prepare", "State.settings_not_in_force"),
    *(f"{name}.{way}" for name in ("Sampler", "StatefulLoader")
      for way in ("state_dict", "load_state_dict")),
}  # fmt: skip


PUBLIC = {name: thing for name, thing in callables() if name not in INTERNAL}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented_with_its_arguments(name: str) -> None:
    thing = PUBLIC[name]
    text = inspect.getdoc(thing) or ""
    assert text, f"{name} has no docstring"
    if name in (*ERRORS, "Run"):
        return
    arguments = [arg for arg in inspect.signature(thing).parameters if arg != "self"]  # type: ignore[arg-type]
    if arguments:
        assert "Args:" in text, name
        missing = [arg for arg in arguments if f"{arg}:" not in text]
        assert not missing, f"{name}: {missing}"
