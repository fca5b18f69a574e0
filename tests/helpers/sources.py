"""What several contract tests read from a source."""

import ast
import subprocess

import pytest


def is_for_types(node):
    """Is it a block that only type checkers read?"""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def tracked_files(root):
    """(name, path) of every file below `root` that git tracks; the test is skipped outside of a checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [(name, root / name) for name in listed.stdout.split() if (root / name).is_file()]
