"""Blocking messages that every rank sends, or waits for, before it does the other.

    dist.send(x, (rank + 1) % world)
    dist.recv(y, (rank - 1) % world)

Only what runs on every rank alike counts: under a condition that may tell ranks apart nothing is
said, nor about functions that are called under one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.collectives.communication import Exchange, reached
from holdfast.analysis.source.collectives.torch_calls import AT_ONCE
from holdfast.analysis.source.program import Function, Program, Scope, dotted
from holdfast.analysis.source.python.name_values import names

SENDS = frozenset(["send", "isend", "send_object_list"])
RECEIVES = frozenset(["recv", "irecv", "recv_object_list"])
UNIFORM = re.compile(r"world|initiali[sz]ed|available|distributed|step|epoch|iter", re.I)
MAY_TELL_APART = re.compile(r"rank|even|odd|parity|first|last|main|master|stage|send|recv|%", re.I)
NEIGHBOUR = re.compile(r"ne?xt|prev|left|right|neighbou?r|partner|succ|pred", re.I)


class Ring(NamedTuple):
    first: Exchange
    """what blocks everywhere"""
    second: Exchange
    """what would let it continue"""
    computed: bool
    """whether the text shows that each rank has its neighbour; else their names say so"""


def rings(program: Program) -> Iterator[Ring]:
    messages = [one for one in reached(program) if one.op in SENDS or one.op in RECEIVES]
    used: set[ast.AST] = set()
    for one in messages:
        block, index = _block(program, one.call.node)
        if one.call.node in used or not _on_every_rank(program, one.call.node):
            continue
        second = _answer(program, one, messages, block, index)
        if second is None or _posted_before(program, one, block, index):
            continue
        ways = [_neighbour(program, one), _neighbour(program, second)]
        if "" not in ways and not _same_by_name(one, second, ways):
            used |= {one.call.node, second.call.node}
            yield Ring(one, second, "named" not in ways)


def _block(program: Program, node: ast.AST) -> tuple[list[ast.stmt], int]:
    """The block of statements that holds it, and its index there."""
    below = node
    for above in program.above(node):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(above, field, None)
            if isinstance(statements, list) and below in statements:
                return statements, statements.index(below)
        below = above
    return [], 0


def _answer(
    program: Program, one: Exchange, messages: list[Exchange], block: list[ast.stmt], index: int
) -> Exchange | None:
    """The first message of the other direction behind it, if it waits before that."""
    other = RECEIVES if one.op in SENDS else SENDS
    for candidate in messages:
        where, position = _block(program, candidate.call.node)
        if candidate.op in other and where is block and position > index:
            return candidate if _blocks(program, one, block[index:position]) else None
    return None


def _blocks(program: Program, one: Exchange, between: list[ast.stmt]) -> bool:
    if one.op not in AT_ONCE:
        return True
    if one.via is not None:
        return False
    parent = program.parents.get(one.call.node)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "wait"
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    waited = f"{dotted(target)}.wait" if target is not None and dotted(target) else None
    return any(
        isinstance(node, ast.Call) and dotted(node.func) == waited
        for line in between[1:]
        for node in ast.walk(line)
    )


def _posted_before(program: Program, one: Exchange, block: list[ast.stmt], index: int) -> bool:
    """Something was begun before it and not waited for, which the others can answer."""
    earlier = {node for line in block[:index] for node in ast.walk(line)}
    for other in reached(program):
        if other is one or other.call.node not in earlier:
            continue
        where, start = _block(program, other.call.node)
        until = index if where is block else len(where)
        posted = other.op in AT_ONCE and not _blocks(program, other, where[start:until])
        if posted or other.op == "batch_isend_irecv":
            return True
    return False


# --- on every rank ----------------------------------------------------------------------------


def _on_every_rank(program: Program, node: ast.AST, *, deep: bool = True) -> bool:
    below = node
    for above in program.above(node):
        if isinstance(above, ast.If | ast.IfExp) and below is not above.test:
            if not _uniform(above.test):
                return False
        elif isinstance(above, ast.Match | ast.ExceptHandler):
            return False
        if _left_early(above, below):
            return False
        if isinstance(above, Function):
            return not deep or _called_alike(program, above)
        if isinstance(above, Scope) and not isinstance(above, ast.Module):
            return False
        below = above
    return True


def _uniform(test: ast.expr) -> bool:
    text = ast.unparse(test)
    if "__name__" in text or isinstance(test, ast.Constant):
        return True
    return bool(UNIFORM.search(text)) and not MAY_TELL_APART.search(text)


def _left_early(above: ast.AST, below: ast.AST) -> bool:
    """`if rank == 0: …; return` before it: the rest is for some only."""
    statements = getattr(above, "body", None)
    if not isinstance(statements, list) or below not in statements:
        return False
    return any(
        isinstance(line, ast.If)
        and not _uniform(line.test)
        and any(isinstance(n, ast.Return | ast.Continue | ast.Break) for n in ast.walk(line))
        for line in statements[: statements.index(below)]
    )


def _called_alike(program: Program, function: Function) -> bool:
    calls = (call for call in program.calls if program.target(call) is function)
    return all(_on_every_rank(program, call.node, deep=False) for call in calls)


# --- to a neighbour ---------------------------------------------------------------------------


def _neighbour(program: Program, one: Exchange) -> str:
    """'computed', 'named', or '' when the other side may be any rank."""
    peers = [_peer(one.inner.node)]
    if one.via is not None:
        peers += [*one.call.node.args, *(k.value for k in one.call.node.keywords)]
    ways = {_way(program, peer) for peer in peers if peer is not None}
    return "computed" if "computed" in ways else "named" if "named" in ways else ""


def _same_by_name(one: Exchange, second: Exchange, ways: list[str]) -> bool:
    """To and from `next_rank`: a stage of a pipeline, whose neighbours do the opposite."""
    peers = [_peer(message.inner.node) for message in (one, second)]
    texts = {ast.unparse(peer) for peer in peers if peer is not None}
    return "named" in ways and len(texts) == 1 and "partner" not in texts.pop()


def _peer(node: ast.Call) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg in ("dst", "src", "group_dst", "group_src"):
            return keyword.value
    return node.args[1] if len(node.args) > 1 else None


def _way(program: Program, peer: ast.expr) -> str:
    value = names(program).follow(peer)
    if any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.BitXor)
        for node in ast.walk(value)
    ):
        return "computed"
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        mirrored = "rank" in ast.unparse(value.right) and "rank" not in ast.unparse(value.left)
        return "computed" if mirrored else ""  # `1 - rank`, `world - 1 - rank`
    if _goes_round(_choices(program, value)):
        return "computed"
    return "named" if dotted(value) and NEIGHBOUR.search(dotted(value)) else ""


def _choices(program: Program, value: ast.expr) -> list[ast.expr]:
    """Both arms of `a if … else b`; both values of a name that an `if` corrects."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    return names(program).values(dotted(value), value) if dotted(value) else []


def _goes_round(choices: list[ast.expr]) -> bool:
    """`rank + 1` or 0, `rank - 1` or `world - 1`: the last one's neighbour is the first."""
    texts = {ast.unparse(one) for one in choices}
    if len(texts) != 2:
        return False
    up = "0" in texts and any(text.endswith(" + 1") for text in texts)
    return up or all(text.endswith(" - 1") for text in texts)
