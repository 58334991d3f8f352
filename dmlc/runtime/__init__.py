"""Runtimes: a `Program` and arrays in, arrays out. They know no IR and generate no code."""
