"""What several contract tests read from a source."""

import ast
import subprocess

import pytest


def is_for_types(node):
    """Is it a block that only type checkers read?"""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def code_lines(text):
    """How many lines of a source are code: no docstrings, comments or empty lines."""
    docs = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body and ast.get_docstring(node) is not None else None
            docs |= set(range(first.lineno, first.end_lineno + 1)) if first else set()
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in docs and line.strip()[:1] not in ("", "#") for n, line in lines)


def tracked_files(root):
    """(name, path) of every file below `root` that git tracks; the test is skipped outside of a checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [(name, root / name) for name in listed.stdout.split() if (root / name).is_file()]
