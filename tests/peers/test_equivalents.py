"""The table of what operators do has no function that PyTorch has not."""

from __future__ import annotations

import functools

import torch

from dmlc.library.equivalents import list_operations


def test_names_of_pytorch_are_functions_of_pytorch() -> None:
    named = {name for operation in list_operations() for name in operation.pytorch}
    for name in sorted(named):
        functools.reduce(getattr, name.split(".")[1:], torch)
