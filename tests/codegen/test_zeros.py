"""No kernel of a language whose drivers fold literals computes with a literal zero, in scalars or
in vectors: they take a product of one for 0, and a sum with one for the other term."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.scalars import OPERATIONS, DataType
from dmlc.scalars.operation import Unsupported
from dmlc.source import UnsupportedError
from tests.expression_tree import Tree, read_tree
from tests.goldens import CASES, read_case

TARGETS = ("hlsl", "wgsl")
_FOLDED = ("*", "/", "+", "-")
_ZERO = re.compile(r"0\.0[a-zA-Z]*")
_VALUE = re.compile(r"^    .*?[^=!<>]=\s(?P<value>[^=].*);$")


def list_values(program: Program) -> Iterator[str]:
    """What locals, variables and elements take in the bodies of kernels, not of helpers."""
    for kernel in program.kernels:
        _, _, body = kernel.source.rpartition(f" {kernel.entry_point}(")
        joined = re.sub(r"\n\s+(?=[?:*/+&|-]|\w+\(.*\)[;,]$)", " ", body)
        for line in joined.splitlines():
            found = _VALUE.match(line)
            if found and " = " not in found["value"]:
                yield found["value"]


def is_zero(tree: Tree) -> bool:
    """Whether a literal zero stands there, by itself or for each lane, or the negative of one."""
    match tree:
        case str():
            return _ZERO.fullmatch(tree) is not None
        case ("cast", _, inner) | ("-", inner):
            return is_zero(inner)
        case _:
            return False


def find_folded(tree: Tree) -> Iterator[Tree]:
    """The arithmetic that has a literal zero for an operand."""
    if isinstance(tree, str):
        return
    if tree[0] in _FOLDED and len(tree) == 3 and any(map(is_zero, tree[1:])):
        yield tree
    for part in tree:
        yield from find_folded(part)


def check(program: Program) -> None:
    for text in list_values(program):
        assert list(find_folded(read_tree(text))) == [], text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64])
def test_every_operation_on_a_zero(dtype: DataType, target: str) -> None:
    dialect, kind = find_dialect(target), dtype.compute
    if isinstance(dialect.storage[dtype], Unsupported):
        with pytest.raises(UnsupportedError):
            compile(ir.parse(f"func @f(%X: {dtype.short}[8]) -> (%Y) {{\n"
                             f"  %Y: {dtype.short}[i0 < 8] = neg(%X[i0])\n}}"), target)  # fmt: skip
        return
    binary = [
        o.name
        for o in OPERATIONS.values()
        if o.arity == 2 and o.operands.accept(kind) and not o.gives_bool
        if not isinstance(dialect.operations[o.name, kind], Unsupported)
    ]
    zeros = (f"0.0:{kind.short}", f"-0.0:{kind.short}")
    for name, size in itertools.product(binary, (15, 8192)):
        formulas = [f"{name}(%X[i0], {zero})" for zero in zeros]
        formulas += [f"{name}({zero}, %X[i0])" for zero in zeros]
        domain = f"{dtype.short}[i0 < {size}]"
        stages = "\n".join(f"  %Y{n}: {domain} = {text}" for n, text in enumerate(formulas))
        results = ", ".join(f"%Y{n}" for n in range(len(formulas)))
        function = f"func @f(%X: {dtype.short}[{size}]) -> ({results}) {{\n{stages}\n}}"
        program = compile(ir.parse(function), target)
        check(program)
        if name in ("add", "sub", "mul", "div"):
            assert any("zero" in text for text in list_values(program))
        if target == "hlsl" and dtype is not DataType.FLOAT64 and size == 8192:
            assert "float4" in program.kernels[0].source


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_golden_kernels(case: str, target: str) -> None:
    try:
        program = compile(read_case(case), target)
    except UnsupportedError:
        return
    check(program)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("ACTIVATION_LINEAR", {"Alpha": 0, "Beta": 0}),
        ("ACTIVATION_LEAKY_RELU", {"Alpha": 0}),
        ("ACTIVATION_ELU", {"Alpha": 0}),
        ("ACTIVATION_SCALED_ELU", {"Alpha": 0, "Gamma": 0}),
        ("ACTIVATION_HARD_SIGMOID", {"Alpha": 0, "Beta": 0}),
        ("ACTIVATION_SCALED_TANH", {"Alpha": 0, "Beta": 0}),
        ("ACTIVATION_PARAMETRIC_SOFTPLUS", {"Alpha": 0, "Beta": 0}),
        ("ACTIVATION_SHRINK", {"Bias": 0, "Threshold": 0}),
    ],
)
def test_attributes_that_are_zero(name: str, attributes: dict[str, float], target: str) -> None:
    described = {"InputTensor": dmlc.TensorDesc(DataType.FLOAT32, (64, 64))}
    function = dmlc.operator(f"directml.{name}").bind(described, attributes)
    check(compile(function, target))


def test_a_literal_zero_is_found() -> None:
    texts = ("x * 0.0f", "x + (float4)(-0.0f)", "f(a ? x : 0.0L / x)", "(0.0f) - x")
    assert all(list(find_folded(read_tree(text))) for text in texts)
    texts = ("x * zero", "a ? x : 0.0f", "f(0.0f, x)", "x * 0.05f", "-x + 10.0f")
    assert not any(list(find_folded(read_tree(text))) for text in texts)
