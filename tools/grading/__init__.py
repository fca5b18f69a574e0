"""Assignments: one source notebook each, from which releases, solutions and tests are made, and graded."""
