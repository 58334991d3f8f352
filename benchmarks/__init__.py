"""Benchmarks: how fast compiled kernels run beside other programs and the machine's own limit."""
