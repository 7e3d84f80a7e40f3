"""The conditions around a piece of code that only some ranks meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.analysis.source.program import Function, Program
from holdfast.analysis.source.ranks.branches import RankSplit
from holdfast.analysis.source.ranks.rank_dependence import RankQuestions, rank_questions
from holdfast.analysis.source.ranks.rank_names import integer

Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class RankGuard(NamedTuple):
    """One condition: who comes through, and what the others do instead."""

    split: RankSplit
    node: ast.AST
    arm: Sequence[ast.AST]
    """what those for whom it holds run"""
    other: Sequence[ast.AST]
    """what the others run"""


def rank_guards(
    program: Program, node: ast.AST, until: ast.AST | None = None
) -> Iterator[RankGuard]:
    """Rank conditions around a node within its function, the nearest first."""
    questions = rank_questions(program)
    below = node
    for above in program.above(node):
        if isinstance(above, Function | ast.Lambda | ast.ClassDef) or above is until:
            return
        found = _guard(questions, above, below)
        if found is not None:
            yield found
        below = above


def _guard(questions: RankQuestions, above: ast.AST, below: ast.AST) -> RankGuard | None:
    found: RankGuard | None = None
    if isinstance(above, ast.If):
        found = _arms(questions, above, below, above.body, above.orelse)
    elif isinstance(above, ast.IfExp):
        found = _arms(questions, above, below, [above.body], [above.orelse])
    elif isinstance(above, ast.While):
        found = _arms(questions, above, below, above.body, [])
    elif isinstance(above, ast.BoolOp):
        found = _short_circuit(questions, above, below)
    elif isinstance(above, Comprehension) and not isinstance(below, ast.comprehension):
        splits = (questions.split(test) for part in above.generators for test in part.ifs)
        split = next((one for one in splits if one), None)
        found = RankGuard(split, above, [below], []) if split else None
    elif isinstance(above, ast.match_case):
        found = _case(questions, above, below)
    return found


def _arms(
    questions: RankQuestions,
    node: ast.If | ast.IfExp | ast.While,
    below: ast.AST,
    yes: Sequence[ast.AST],
    no: Sequence[ast.AST],
) -> RankGuard | None:
    if below is node.test:
        return None
    split = questions.split(node.test)
    if split is None:
        return None
    if below in yes:
        return RankGuard(split, node, yes, no)
    return RankGuard(split.inverted(), node, no, yes) if below in no else None


def _short_circuit(questions: RankQuestions, node: ast.BoolOp, below: ast.AST) -> RankGuard | None:
    """`rank == 0 and dist.barrier()`"""
    before = node.values[: node.values.index(below)] if below in node.values else []
    split = next((one for part in before if (one := questions.split(part))), None)
    if split is None:
        return None
    return RankGuard(split if isinstance(node.op, ast.And) else split.inverted(), node, [below], [])


def _case(questions: RankQuestions, case: ast.match_case, below: ast.AST) -> RankGuard | None:
    """`match rank: case 0: …`; what the other cases hold counts as the other side."""
    match = questions.program.parents.get(case)
    if not isinstance(match, ast.Match) or below not in case.body:
        return None
    of = questions.number(match.subject)
    if of is None:
        return None
    value = integer(case.pattern.value) if isinstance(case.pattern, ast.MatchValue) else None
    subject = ast.unparse(match.subject)
    text = f"{subject} == {value}" if value is not None else f"no other case of {subject}"
    zero = True if value == 0 else None
    others = [one for each in match.cases if each is not case for one in each.body]
    return RankGuard(RankSplit(of, zero, text, one=value is not None), match, case.body, others)
