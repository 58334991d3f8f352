"""Floats as integers, where a language leaves to devices what comes of them."""

from __future__ import annotations

import re

import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.scalars import DataType

FLOATS = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)


@pytest.mark.parametrize("target", [t for t in DataType if t.is_integer], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_opencl_converts_no_nan(source: DataType, target: DataType, profile: str) -> None:
    """OpenCL only recommends that NaN becomes 0: NVIDIA makes the smallest integer of it."""
    text = f"""func @f(%x: {source.short}[n]) -> (%y) {{
      %y: {target.short}[i0 < n] = cast(%x[i0], {target.short})
    }}"""
    found = compile(ir.parse(text), "opencl", profile).kernels[0].source
    converted = re.findall(r"convert_\w+_sat\((.*)\)", found)
    assert converted
    assert all(re.fullmatch(r"\(x == x\) \? x : \(\w+\)\(0\)", each) for each in converted)
