"""Graphs of Windows' Compute Graph Compiler."""
