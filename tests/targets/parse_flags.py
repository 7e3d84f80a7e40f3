"""Answers cases of flags, read as JSON from stdin, so that the test needs no torch of its own."""

import contextlib
import io
import json
import os
import sys
from typing import Any

import msgspec
from torch.distributed.run import get_args_parser

from holdfast.errors import Error
from holdfast.run.launch.flags import build_parser, parse
from holdfast.run.launch.newer_flags import CompletionAsked


def actions(parser: Any) -> list[dict[str, Any]]:
    return [
        {
            "dest": action.dest,
            "options": list(action.option_strings),
            "default": action.default,
            "type": getattr(action.type, "__name__", None),
            "choices": action.choices and list(action.choices),
            "nargs": action.nargs,
            "action": type(action).__name__,
        }
        for action in parser._actions
    ]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    before = dict(os.environ)
    os.environ.update(case.get("environment", {}))
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            flags = parse(case["argv"])
            stock = vars(get_args_parser().parse_args(case.get("stock", case["argv"])))
    except CompletionAsked as asked:
        return {"completion": asked.shell}
    except Error as problem:
        return {"error": type(problem).__name__, "text": f"{problem.sentence} | {problem.hint}"}
    except SystemExit as end:
        return {"exit": end.code, "text": said.getvalue()}
    finally:
        os.environ.clear()
        os.environ.update(before)
    ours = vars(flags)
    rules = [rule.name for rule in flags.rules.rules]
    return {**ours, "torchrun": vars(flags.torchrun), "stock": stock, "rules": rules}


print(
    json.dumps(
        {
            "stock": actions(get_args_parser()),
            "ours": actions(build_parser()),
            "answers": [answer(case) for case in json.load(sys.stdin)],
        },
        default=msgspec.to_builtins,
    )
)
