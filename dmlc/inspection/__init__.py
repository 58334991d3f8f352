"""Properties of generated kernels on GPUs, from the GPUs' own compilers, on a machine without one.

The parts: `gather` (the whole inspection), `launches` (a kernel's launch, before it is compiled),
`radv` (AMD's compiler) and `amd` (its listings), `ptxas` and `nvidia` (NVIDIA's), `machine` and
`listing` (a compiled kernel of any vendor), `turns` (trip counts of its loops), `model` (time on
named devices), `work` (lower bounds), `report` (the figures).
"""

from __future__ import annotations

from dmlc.inspection.gather import inspect
from dmlc.inspection.report import Compiled, InspectedKernel, Inspection, Modelled, Roofline

__all__ = ["Compiled", "InspectedKernel", "Inspection", "Modelled", "Roofline", "inspect"]
