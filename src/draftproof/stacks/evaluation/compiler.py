"""The compiler that scopes carry: syntax trees to closures."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from draftproof.stacks.evaluation.code import Expression, ScopeKind, Statement
from draftproof.stacks.evaluation.expressions import compile_expression
from draftproof.stacks.evaluation.statements import compile_block


class ClosureCompiler:
    """Makes closures; holds no state."""

    def expression(self, node: ast.expr, scope: ScopeKind) -> Expression:
        """A closure that gives the expression's value."""
        return compile_expression(node, scope)

    def block(self, nodes: Sequence[ast.stmt], scope: ScopeKind) -> Statement:
        """A closure that runs statements."""
        return compile_block(nodes, scope)
