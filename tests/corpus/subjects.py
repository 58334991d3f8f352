"""What the corpus compiles: the library, the functions that benchmarks time on GPUs, the example
graphs, operators with open sizes, and the golden cases.

A subject is an operator, a row, a graph or a case, and gives one function or a few, each by a name
of its own. Subjects are named without binding any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from benchmarks import gpu_kernels, gpu_scan
from dmlc import library
from dmlc.binding import Operator
from dmlc.catalog import find_function
from dmlc.ir import Function
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from tests import open_sizes
from tests.examples import graphs
from tests.goldens import CASES, read_case

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


_ONES: Mapping[str, Callable[[], Function]] = {
    **gpu_kernels.ROWS,
    **{name: row.bind for name, row in gpu_scan.ROWS.items()},
    **{f"graph {name}": partial(_bind_graph, name) for name in graphs.NAMES},
    **{f"open sizes: {name}": subject.bind for name, subject in open_sizes.SUBJECTS.items()},
    **{f"golden {name}": partial(read_case, name) for name in CASES},
}
SUBJECTS: Mapping[str, Subject] = {
    **{name: partial(_read_operator, name) for name in library.names()},
    **{name: partial(_make_one, name, make) for name, make in _ONES.items()},
}
"""The subjects by their names."""
