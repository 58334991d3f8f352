"""How much memory a kernel touches: of each tensor what its passes come by, each element once.

It is asked for the caches' sake: which stores pass them by, `streaming` decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlc import ir
from dmlc.kernel.element import Gather
from dmlc.kernel.phases import Phase
from dmlc.transform.traffic import count_bytes


def measure_footprint(function: ir.Function, passes: Iterable[Phase]) -> dict[str, int | None]:
    """The bytes that passes touch of each tensor, by its name; None where a size is known at run
    time only.

    Each element of a view counts once. Several views of a tensor in one pass add up, to no more
    than the tensor; the next pass is taken to come by the same elements, if it does not come by
    more. What is read at computed positions may be all of a tensor.
    """
    tensors = function.tensors()
    touched: dict[str, int | None] = {}
    for phase in passes:
        anywhere = {v.view for v in phase.elements.values if isinstance(v, Gather)}
        own: dict[str, int | None] = {}
        for view in phase.elements.buffers():
            tensor = tensors.get(view.tensor)
            whole = None if tensor is None else count_bytes(tensor)
            count = phase.space.count_steps(view)
            size = None if count is None else count * view.dtype.bytes
            if view in anywhere and whole is not None:
                size = whole
            before = own.get(view.tensor, 0)
            both = None if size is None or before is None else size + before
            own[view.tensor] = both if both is None or whole is None else min(both, whole)
        for name, size in own.items():
            before = touched.get(name, 0)
            touched[name] = None if size is None or before is None else max(size, before)
    return touched
