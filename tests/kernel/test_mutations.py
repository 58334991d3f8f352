"""A kernel that is broken is found out without a device: by the verifier, the interpreter or its
results. `mutate` has the ways to break one; each is tried wherever it applies."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.kernel.passes import find_sizes
from dmlc.kernel.verify import verify_kernel
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import InternalError
from tests.goldens import find_wrong, make_inputs, read_case
from tests.kernel.lowering import run
from tests.testing.mutate import KINDS, list_mutants

COUNT = 33001
"""More than one group of every profile has."""

VECTORS = ("relu_grad_f32", "opencl", "cpu", None)
WORDS = ("relu_grad_f16", "hlsl", None, "6.0")
TREE = ("softmax_rows", "opencl", "gpu", None)
PIECES = ("sum_of_everything", "opencl", "gpu", None)
PLACES = ("argmax_of_rows", "opencl", "gpu", None)
WINDOW = ("resample_grad_linear", "opencl", "gpu", None)
NEIGHBOURS = ("average_pool", "opencl", "gpu", None)
BORDER = ("pad", "opencl", "cpu", None)
GATHER = ("gather", "opencl", "gpu", None)
LANES = ("resample_grad_thirds", "opencl", "cpu", None)

VERIFIER, FAULT, RESULT = "the verifier", "the interpreter", "a wrong result"
CAUGHT = {
    "a guard is missing": (PIECES, {VERIFIER, FAULT}),
    "a guard is negated": (WORDS, {FAULT}),
    "a barrier is missing": (PIECES, {FAULT}),
    "a barrier stands under a guard": (PIECES, {VERIFIER}),
    "an accumulator starts stale": (PIECES, {RESULT}),
    "an accumulator forgets": (WINDOW, {RESULT}),
    "an assignment is missing": (WINDOW, {RESULT}),
    "a variable is missing": (PLACES, {VERIFIER}),
    "a value is missing": (VECTORS, {VERIFIER}),
    "a value is defined twice": (VECTORS, {VERIFIER}),
    "a store is missing": (PIECES, {FAULT}),
    "a store goes one on": (GATHER, {VERIFIER}),
    "a write to an array is missing": (PLACES, {FAULT, RESULT}),
    "a write to an array goes one on": (PLACES, {VERIFIER, FAULT}),
    "a loop goes one too far": (WINDOW, {FAULT}),
    "a loop ends one early": (WORDS, {FAULT, RESULT}),
    "a loop starts one late": (PLACES, {RESULT}),
    "a loop's bounds are swapped": (WORDS, {FAULT, RESULT}),
    "a loop takes double steps": (LANES, {FAULT}),
    "a loop takes no steps": (PIECES, {VERIFIER}),
    "a loop is missing": (PIECES, {FAULT, RESULT}),
    "a vector loop takes half steps": (VECTORS, {FAULT}),
    "a half of a word is missing": (WORDS, {RESULT}),
    "a word is not stored": (WORDS, {FAULT}),
    "a read goes one on": (GATHER, {VERIFIER, FAULT}),
    "a read of an array goes one on": (PIECES, {VERIFIER, RESULT}),
    "a bound counts one more": (PIECES, {VERIFIER, FAULT}),
    "a condition is the other way": (PLACES, {RESULT}),
    "a guard is an alternative": (BORDER, {RESULT}),
    "a sum is a difference": (TREE, {VERIFIER, FAULT, RESULT}),
    "a stride is added": (PIECES, {VERIFIER, FAULT, RESULT}),
    "a quotient is a remainder": (TREE, {VERIFIER, RESULT}),
    "a limit is the other one": (BORDER, {VERIFIER}),
    "a difference is turned": (PIECES, {FAULT, RESULT}),
    "a quotient is turned": (GATHER, {RESULT}),
    "a number is one more": (NEIGHBOURS, {FAULT, RESULT}),
    "a choice is the other way": (PLACES, {RESULT}),
    "a group's number is a lane's": (PIECES, {VERIFIER, FAULT}),
    "a conversion is missing": (PLACES, {VERIFIER}),
    "a vector is read as a scalar": (VECTORS, {VERIFIER}),
    "lanes are turned": (LANES, {RESULT}),
    "a lane is beyond its vectors": (LANES, {VERIFIER}),
    "a tie is taken in": (WORDS, {RESULT}),
    "a tie is left out": (BORDER, {RESULT}),
    "a constant is off": (NEIGHBOURS, {RESULT}),
    "a factor is missing": (WINDOW, {RESULT}),
    "a term is missing": (TREE, {RESULT}),
    "a barrier is drawn into a guard": (PIECES, {VERIFIER}),
    "half the items of a group": (TREE, {FAULT}),
    "double the items of a group": (TREE, {VERIFIER}),
    "a group too few": (TREE, {FAULT}),
    "a group takes double": (TREE, {FAULT}),
    "a group takes half": (TREE, {FAULT}),
    "an array is one short": (TREE, {VERIFIER}),
    "an array is empty": (TREE, {VERIFIER}),
    "an array is not shared": (TREE, {FAULT}),
    "results are read only": (TREE, {VERIFIER}),
    "operands are write only": (TREE, {VERIFIER}),
}
"""For each way to break a kernel, one that is broken so wherever that can be, and what finds it."""


def catch(
    case: str,
    function: ir.Function,
    kernels: list[k.Kernel],
    broken: k.Kernel,
    inputs: dict[str, Array],
    wanted: dict[str, Array],
) -> str:
    """What finds out that one of a function's kernels is broken; nothing where none does."""
    try:
        verify_kernel(broken, "test", find_sizes(function, broken))
        got = run_kernels(function, kernels, inputs, misaligned=1)
    except KernelFault:
        return FAULT
    except InternalError:
        return VERIFIER
    return RESULT if find_wrong(case, got, wanted) else ""


def test_every_way_is_tried() -> None:
    assert list(CAUGHT) == list(KINDS)
    assert len(CAUGHT) >= 40


@pytest.mark.parametrize("kind", CAUGHT)
def test_broken_kernels_are_found_out(kind: str) -> None:
    (case, target, profile, model), finders = CAUGHT[kind]
    function = read_case(case)
    fused, kernels = make_kernels(function, target, profile, shader_model=model)
    inputs = make_inputs(function, COUNT)
    wanted = evaluate(function, inputs)
    found: list[str] = []
    for at, kernel in enumerate(kernels):
        for broken in list_mutants(kernel, kind):
            changed = [*kernels[:at], broken, *kernels[at + 1 :]]
            found.append(catch(case, fused, changed, broken, inputs, wanted))
    assert found, f"no place in {case} where {kind}"
    assert set(found) == finders


def test_tests_of_schedules_find_a_wrong_kernel() -> None:
    function = read_case("relu_grad_f32")
    fused, (kernel,) = make_kernels(function, "opencl", "gpu")
    run(fused, (kernel,))
    # The last one is in what the last group does.
    *_, wrong = list_mutants(kernel, "a condition is the other way")
    with pytest.raises(AssertionError, match="OutputGradientTensor: "):
        run(fused, (wrong,))
