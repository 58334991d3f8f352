"""Runtimes: execution of a `Program` on arrays. They know no IR and generate no code.

The modules and packages below are imported at their first use, since compilation needs none.
"""
