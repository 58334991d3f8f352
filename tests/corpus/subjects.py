"""What the corpus compiles: the library, the functions that benchmarks time on GPUs, the example
graphs, operators with open sizes, those whose kernels are broken on purpose, the golden cases, and
calls that take schedules which none of these has.

A subject is an operator, a row, a graph or a case, and gives one function or a few, each by a name
of its own. Subjects are named without binding any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from benchmarks import gpu_kernels, gpu_scan
from benchmarks.gpu_scan import Row
from dmlc import library
from dmlc.binding import Operator, TensorDesc
from dmlc.catalog import find_function
from dmlc.ir import Function
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from tests import open_sizes
from tests.examples import graphs
from tests.goldens import CASES, read_case
from tests.testing.broken_programs import SUBJECTS as BROKEN

Subject = Callable[[], Iterator[tuple[str, Function]]]


def _read_operator(name: str) -> Iterator[tuple[str, Function]]:
    """The first example of an operator, in the first data type of each width that it takes, by the
    type of its first tensor; and the operator for any size, where one function serves all."""
    operator = Operator(library.find(name).operators[name])
    widths: set[int] = set()
    for case in read_cases(operator, operator.definition.examples[0]):
        dtype = next(iter(case.call.tensors.values())).data_type
        if dtype.bytes not in widths:
            widths.add(dtype.bytes)
            yield f"{name} {dtype.name}", case.call.function
    try:
        yield f"{name} of any size", find_function(operator)
    except DmlcError:
        return  # Most operators need to be told sizes.


def _make_one(name: str, make: Callable[[], Function]) -> Iterator[tuple[str, Function]]:
    yield name, make()


def _bind_graph(name: str) -> Function:
    return graphs.load(name).bind(dims=graphs.SIZES[name])


def _sort_rows(*sizes: int) -> Row:
    whole, places = TensorDesc("FLOAT32", sizes), TensorDesc("UINT32", sizes)
    return Row(
        "directml.TOP_K1",
        {"InputTensor": whole, "OutputValueTensor": whole, "OutputIndexTensor": places},
        {"Axis": len(sizes) - 1, "K": sizes[-1], "AxisDirection": "INCREASING"},
    )


def _scatter(elements: int, updates: int) -> Row:
    whole, added = TensorDesc("FLOAT32", (elements,)), TensorDesc("FLOAT32", (updates,))
    tensors = {"InputTensor": whole, "IndicesTensor": TensorDesc("UINT32", (updates,))}
    return Row("directml.SCATTER", tensors | {"UpdatesTensor": added}, {"Axis": 0})


def _lay_deep(data_type: str, *sizes: int) -> Row:
    tensors = {"InputTensor": TensorDesc(data_type, sizes)}
    return Row("directml.DEPTH_TO_SPACE", tensors, {"BlockSize": 2})


CALLS: Mapping[str, Row] = {
    "sort of rows (256, 8192)": _sort_rows(256, 8192),
    "SCATTER of 1M into 1M": _scatter(1 << 20, 1 << 20),
    "SCATTER of 1M into 64": _scatter(64, 1 << 20),
    "DEPTH_TO_SPACE f16 (4, 64, 60, 60)": _lay_deep("FLOAT16", 4, 64, 60, 60),
}
"""What takes other schedules: rows that a work item sorts by itself, points that work items walk,
and 16-bit results that are stored together though their operands lie apart."""
_ONES: Mapping[str, Callable[[], Function]] = {
    **gpu_kernels.ROWS,
    **{name: row.bind for name, row in gpu_scan.ROWS.items()},
    **{f"graph {name}": partial(_bind_graph, name) for name in graphs.NAMES},
    **{f"open sizes: {name}": subject.bind for name, subject in open_sizes.SUBJECTS.items()},
    **{f"broken: {name}": subject.make_function for name, subject in BROKEN.items()},
    **{name: row.bind for name, row in CALLS.items()},
    **{f"golden {name}": partial(read_case, name) for name in CASES},
}
SUBJECTS: Mapping[str, Subject] = {
    **{name: partial(_read_operator, name) for name in library.names()},
    **{name: partial(_make_one, name, make) for name, make in _ONES.items()},
}
"""The subjects by their names."""
