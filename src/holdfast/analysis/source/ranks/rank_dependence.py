"""Does an expression differ from rank to rank, and which ranks does a condition let through?

    rank = dist.get_rank()          a rank number
    is_main = rank == 0             a split: true on some ranks, false on the others
    args.local_rank != -1           neither: true on all of them, or on none ("not distributed")

Names are followed through plain assignments of the same file. What is not understood is taken to
be the same on every rank: then nothing is said about it.
"""

from __future__ import annotations

import ast

from holdfast.analysis.source.program import Call, Program, constant, dotted, once_per_program
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.ranks.branches import RankSplit
from holdfast.analysis.source.ranks.rank_names import (
    VARIABLES,
    RankScope,
    asks_if_distributed,
    flag_name,
    getter_name,
    integer,
    is_world_size,
    last_word,
    names_a_rank,
    number_name,
)

THROUGH = ("builtins.int", "builtins.str", "builtins.bool")
DEPTH = 6
"""names and functions followed, one through the other"""
NO_RANKS: frozenset[int] = frozenset()
MOST_LISTED = 4096
TURNED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.Gt(),
    ast.Gt: ast.Lt(),
    ast.LtE: ast.GtE(),
    ast.GtE: ast.LtE(),
}
"""`0 < rank` is `rank > 0`"""


class RankQuestions:
    """Questions about the expressions of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = names(program)
        self.counters = {
            (program.function_of(loop), part.id)
            for loop in program.loops
            if isinstance(loop, ast.For | ast.AsyncFor)
            for part in ast.walk(loop.target)
            if isinstance(part, ast.Name)
        }
        """variables of loops: `for rank in range(world_size)` is not this process's rank"""

    # --- a rank number --------------------------------------------------------------------------

    def number(self, node: ast.expr | None, depth: int = 0) -> RankScope | None:
        """Whose rank number an expression is, or is made of; None when it is none."""
        if node is None or depth > DEPTH:
            return None
        if isinstance(node, ast.Name | ast.Attribute):
            return self._named_number(node, depth)
        if isinstance(node, ast.Call):
            return self._called_number(node, depth)
        parts: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            variable = str(constant(node.slice))
            return VARIABLES.get(variable) if self._is_environment(node.value) else None
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.NamedExpr):
            parts = [node.value]
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            parts = node.values
        kinds = (self.number(part, depth + 1) for part in parts)
        return next((kind for kind in kinds if kind), None)

    def _named_number(self, node: ast.Name | ast.Attribute, depth: int) -> RankScope | None:
        if self.is_counter(node):
            return None
        values = self.names.values(dotted(node), node)
        kinds = (self.number(value, depth + 1) for value in values)
        if found := next((kind for kind in kinds if kind), None):
            return found
        if values and not any(isinstance(v, ast.Call | ast.Attribute | ast.Await) for v in values):
            return None  # `rank = 0`, `rank = world_size - 1`: everywhere the same
        return number_name(node.attr if isinstance(node, ast.Attribute) else node.id)

    def _called_number(self, node: ast.Call, depth: int) -> RankScope | None:
        name = self.program.name_of(node.func)
        if name in ("os.environ.get", "os.getenv", "environ.get"):
            return VARIABLES.get(str(constant(node.args[0]))) if node.args else None
        if name in THROUGH:
            return self.number(node.args[0], depth + 1) if node.args else None
        of = getter_name(dotted(node.func).rpartition(".")[2])
        if of and (node.args or node.keywords):
            return RankScope.GROUP if name.startswith("torch.distributed.") else None
        return of

    def _is_environment(self, node: ast.expr) -> bool:
        return self.program.name_of(node) == "os.environ"

    def is_counter(self, node: ast.expr) -> bool:
        """A variable of a loop or comprehension around it, or of another loop of the function."""
        if not isinstance(node, ast.Name):
            return False
        if (self.program.function_of(node), node.id) in self.counters:
            return True
        makers = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        return any(
            isinstance(part, ast.Name) and part.id == node.id
            for above in self.program.above(node)
            if isinstance(above, makers)
            for generator in above.generators
            for part in ast.walk(generator.target)
        )

    # --- a condition ------------------------------------------------------------------------------

    def split(self, node: ast.expr, depth: int = 0) -> RankSplit | None:
        """Which ranks a condition lets through; None: all or none, or it cannot be told."""
        found: RankSplit | None = None
        if depth > DEPTH:
            return None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.split(node.operand, depth + 1)
            found = inner.inverted() if inner else None
        elif isinstance(node, ast.BoolOp):
            found = self._joined(node, depth)
        elif isinstance(node, ast.Compare):
            found = self._compared(node, depth)
        elif isinstance(node, ast.NamedExpr):
            found = self.split(node.value, depth + 1)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Call):
            found = self._flag(node, depth) or self._truth_of_number(node, depth)
        elif isinstance(node, ast.BinOp):
            found = self._truth_of_number(node, depth)
        return found

    def _truth_of_number(self, node: ast.expr, depth: int) -> RankSplit | None:
        """`if rank:`, `if not rank % 8:`"""
        of = self.number(node, depth)
        if of is None:
            return None
        zero = None if isinstance(node, ast.BinOp) else False
        return RankSplit(of, zero, _text(node), one=zero is not None, group=self._group(node))

    def _joined(self, node: ast.BoolOp, depth: int) -> RankSplit | None:
        found = [(part, self.split(part, depth + 1)) for part in node.values]
        splits = [split for _, split in found if split]
        others = [part for part, split in found if not split]
        if not splits:
            return None
        first = splits[0]._replace(text=_text(node), turned=False)
        if isinstance(node.op, ast.And):
            if any(self.alone(part) for part in others):
                return None
            mixed = any(not asks_if_distributed(part) for part in others)
            return first._replace(mixed=mixed, ranks=first.ranks if len(splits) == 1 else NO_RANKS)
        if not all(self.alone(part) for part in others):
            return None  # `rank == 0 or debug`: then it may hold everywhere
        sure = all(split.sure for split in splits)
        alone = len(splits) == 1
        ranks = first.ranks if alone else _listed([part for part, split in found if split], splits)
        return first._replace(
            zero=first.zero if alone else None, sure=sure, one=first.one and alone, ranks=ranks
        )

    def _compared(self, node: ast.Compare, depth: int) -> RankSplit | None:
        sides = [node.left, *node.comparators]
        kinds = [self.number(side, depth + 1) for side in sides]
        known = [(side, kind) for side, kind in zip(sides, kinds, strict=True) if kind]
        if len(known) != 1 or isinstance(node.ops[0], ast.Is | ast.IsNot):
            return None
        number, of = known[0]
        group = self._group(number)
        if len(node.ops) > 1:
            return RankSplit(of, None, _text(node), sure=False, group=group)
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            return self._member(node, of, group) if number is node.left else None
        op, other = node.ops[0], node.comparators[0]
        if number is not node.left:
            op, other = TURNED.get(type(op), op), node.left
        value = integer(self.names.follow(other))
        if self._same_everywhere(op, other, value):
            return None
        plain = not isinstance(number, ast.BinOp)
        zero: bool | None = None
        if plain and (value == 0 or (value == 1 and isinstance(op, ast.Lt | ast.GtE))):
            zero = isinstance(op, ast.Eq | ast.LtE | ast.Lt)
        one = zero is not None or isinstance(op, ast.Eq | ast.NotEq)
        negated = isinstance(op, ast.NotEq)
        ranks = _ranks(op, value) if plain and value is not None else NO_RANKS
        return RankSplit(
            of, zero, _text(node), negated, one=plain and one, group=group, ranks=ranks
        )

    def _same_everywhere(self, op: ast.cmpop, other: ast.expr, value: int | None) -> bool:
        """`rank >= 0`, `rank != -1` and `rank < world_size` hold on all; in `for r in range(n):
        if rank == r:` every rank has a turn; None and words select no rank."""
        if value is not None:
            return value < 0 or (value == 0 and isinstance(op, ast.GtE | ast.Lt))
        if any(isinstance(part, ast.Name) and self.is_counter(part) for part in ast.walk(other)):
            return True
        if isinstance(other, ast.BinOp):
            return not any(is_world_size(part) for part in (other.left, other.right))
        return not names_a_rank(last_word(other))

    def _member(self, node: ast.Compare, of: RankScope, group: str) -> RankSplit | None:
        """`rank in (0, 4)` is known; `rank in ranks` may be everybody."""
        where = node.comparators[0]
        negated = isinstance(node.ops[0], ast.NotIn)
        if not isinstance(where, ast.List | ast.Tuple | ast.Set):
            text = _text(node)
            return RankSplit(of, None, text, negated, sure=False, members=True, group=group)
        values = {integer(one) for one in where.elts}
        ranks = {value for value in values if value is None or value >= 0}
        if not ranks:
            return None
        zero = not negated if ranks == {0} else None
        listed = frozenset(value for value in ranks if value is not None)
        sure = len(listed) == len(ranks)
        return RankSplit(
            of, zero, _text(node), negated, sure=sure, one=zero is not None, group=group,
            ranks=listed if sure else NO_RANKS,
        )  # fmt: skip

    def _flag(self, node: ast.Name | ast.Attribute | ast.Call, depth: int) -> RankSplit | None:
        if isinstance(node, ast.Call):
            return self._called_flag(node, depth)
        if self.is_counter(node):
            return None
        values = self.names.values(dotted(node), node)
        splits = (self.split(value, depth + 1) for value in values)
        if found := next((split for split in splits if split), None):
            return found._replace(text=_text(node), turned=False)
        if values and not any(isinstance(v, ast.Call | ast.Attribute) for v in values):
            return None
        of = flag_name(dotted(node).rpartition(".")[2])
        return RankSplit(of, True, _text(node), one=True) if of else None

    def _called_flag(self, node: ast.Call, depth: int) -> RankSplit | None:
        written = dotted(node.func)
        function = self.program.target(Call(node, "", written))
        if function is not None:
            results = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
            splits = (self.split(value, depth + 1) for value in results if value is not None)
            found = next((split for split in splits if split), None)
            return found._replace(text=_text(node), turned=False) if found else None
        if self.program.name_of(node.func) in THROUGH and node.args:
            return self.split(node.args[0], depth + 1)
        of = None if node.args else flag_name(written.rpartition(".")[2])
        return RankSplit(of, True, _text(node), one=True) if of else None

    # --- no company -------------------------------------------------------------------------------

    def alone(self, node: ast.expr) -> bool:
        """Whether a condition says that there is only one rank, or no group yet."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return asks_if_distributed(node.operand)
        if not isinstance(node, ast.Compare) or len(node.ops) > 1:
            return False
        op, value = node.ops[0], integer(node.comparators[0])
        if self.number(node.left):
            return isinstance(op, ast.Is) or (isinstance(op, ast.Eq) and value == -1)
        few = {ast.Eq: 1, ast.LtE: 1, ast.Lt: 2}.get(type(op))
        return is_world_size(node.left) and value is not None and value == few

    def _group(self, node: ast.expr) -> str:
        """The group of `dist.get_rank(group)`, also where a name stands for it."""
        for part in ast.walk(self.names.follow(node)):
            if isinstance(part, ast.Call) and self._called_number(part, DEPTH) is RankScope.GROUP:
                given = [*part.args, *(k.value for k in part.keywords)]
                return _text(given[0]) if given else ""
        return ""


def _ranks(op: ast.cmpop, value: int) -> frozenset[int]:
    """The ranks that `rank OP value` sets apart; of `rank >= 4` those on which it does not hold."""
    if isinstance(op, ast.Eq):
        return frozenset([value])
    count = value + isinstance(op, ast.LtE | ast.Gt)
    ordered = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return frozenset(range(count)) if ordered and count <= MOST_LISTED else NO_RANKS


def _listed(parts: list[ast.expr], splits: list[RankSplit]) -> frozenset[int]:
    """Of `rank == 0 or rank in (1, 2)`."""
    plain = all(isinstance(p, ast.Compare) and isinstance(p.ops[0], ast.Eq | ast.In) for p in parts)
    known = plain and all(split.ranks for split in splits)
    return NO_RANKS.union(*(split.ranks for split in splits)) if known else NO_RANKS


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


@once_per_program
def rank_questions(program: Program) -> RankQuestions:
    """Built once for the faces that ask about one script after the other."""
    return RankQuestions(program)
