"""What several contract tests read from a source."""

import ast


def is_for_types(node):
    """Is it a block that only type checkers read?"""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
