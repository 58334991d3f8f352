"""Runtimes: a `Program` and arrays in, arrays out. They know no IR and generate no code.

The modules and packages below are imported when they are first used: to compile takes none.
"""
