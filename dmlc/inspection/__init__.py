"""What generated kernels are on GPUs, from the GPUs' own compilers, on a machine without one.

The parts: `gather` (all of it put together), `launches` (a kernel's launch, before it is compiled),
`radv` (AMD's compiler) and `amd` (its listings), `ptxas` and `nvidia` (NVIDIA's), `machine` and
`listing` (a compiled kernel, whoever made it), `turns` (how often its loops run), `model` (time on
named devices), `work` (the least there is to do), `report` (the figures).
"""

from __future__ import annotations

from dmlc.inspection.gather import inspect
from dmlc.inspection.report import Compiled, InspectedKernel, Inspection, Modelled, Roofline

__all__ = ["Compiled", "InspectedKernel", "Inspection", "Modelled", "Roofline", "inspect"]
