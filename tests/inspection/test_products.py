"""What matrix products and convolutions take on a GPU: instructions, widths and registers."""

from __future__ import annotations

import pytest

import dmlc
from dmlc import ir
from dmlc.inspection import Compiled
from dmlc.source import DmlcError
from tests.gradients import derive
from tests.inspection.budgets import by_mesa
from tests.open_sizes import SUBJECTS
from tests.products import Product, Windows

GPU = "gfx1100"


def inspect(function: ir.Function) -> Compiled:
    (kernel,) = dmlc.inspect(function, [GPU]).kernels
    (compiled,) = kernel.compiled
    assert (compiled.spilled_registers, compiled.scratch_bytes) == (0, 0)
    return compiled


@pytest.mark.parametrize(
    ("a_transposed", "b_transposed"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_a_product_takes_one_instruction_a_point_and_little_more(
    a_transposed: bool, b_transposed: bool
) -> None:
    product = Product(
        1024, 1024, 1024, a_transposed=a_transposed, b_transposed=b_transposed, after=False
    )
    compiled = inspect(product.make())
    assert compiled.instructions_per_point is not None
    assert 1 <= compiled.instructions_per_point <= by_mesa(1.15, 1.4)
    assert min(compiled.loads) == 16
    # Of these 64 are sums, four times as many as those of smaller products that have 48 registers.
    assert compiled.registers is not None
    assert compiled.registers <= by_mesa(132, 252)


@pytest.mark.parametrize("rows", [1, 4096])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_matrix_and_a_vector_take_the_time_of_memory(rows: int, turned: bool, dtype: str) -> None:
    columns = 4097 - rows
    product = Product(
        rows, columns, 4096, a_transposed=turned, b_transposed=turned, dtype=dtype, after=False
    )
    found = dmlc.inspect(product.make(), [GPU])
    assert len(found.kernels) <= 2
    assert found.find_share(GPU, "h100") >= 0.7


@pytest.mark.parametrize("size", [2048])
@pytest.mark.parametrize(
    ("a_transposed", "b_transposed"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_a_large_product_takes_little_but_its_sums(
    size: int, a_transposed: bool, b_transposed: bool
) -> None:
    product = Product(
        size, size, size, a_transposed=a_transposed, b_transposed=b_transposed, after=False
    )
    compiled = inspect(product.make())
    assert compiled.instructions_per_point is not None
    assert compiled.instructions_per_point <= by_mesa(1.15, 1.3)
    assert compiled.fma_share == pytest.approx(1 / compiled.instructions_per_point, abs=0.01)
    assert compiled.registers is not None
    # Two groups of 256 lie beside each other.
    assert compiled.registers <= by_mesa(120, 128)
    assert (compiled.shared_bytes, compiled.barriers) == (16384, 1)


@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_skinny_product_reads_its_matrix_at_the_speed_of_memory(
    b_transposed: bool, dtype: str
) -> None:
    product = Product(8, 2048, 2048, b_transposed=b_transposed, dtype=dtype, after=False)
    found = dmlc.inspect(product.make(), [GPU])
    first, _ = found.kernels
    (compiled,) = first.compiled
    assert min(compiled.loads) == 16
    assert compiled.spilled_registers == 0
    assert (compiled.bytes_in_flight or 0) >= 64
    assert first.groups >= 132
    # Of a few microseconds, two launches take half.
    assert found.find_share(GPU, "h100") >= (0.5 if dtype == "f32" else 0.35)
    assert found.find_share(GPU, "8cu") >= 0.7


def test_a_large_product_has_larger_tiles() -> None:
    function = Product(2048, 2048, 2048, after=False).make()
    (kernel,) = dmlc.inspect(function, [GPU]).kernels
    (compiled,) = kernel.compiled
    assert (kernel.groups, kernel.group_size) == (256, 256)
    assert compiled.instructions_per_point is not None
    assert 1 <= compiled.instructions_per_point <= 1.2
    assert (compiled.spilled_registers, compiled.scratch_bytes) == (0, 0)
    # It is promised no more.
    assert compiled.shared_bytes <= 16384


def test_kernels_of_open_sizes_are_looked_at_where_one_says() -> None:
    """Products of open sizes go through tiles; loads are of 4 bytes, whatever their addresses."""
    function = SUBJECTS["gemm"].bind()
    with pytest.raises(DmlcError, match="GEMM has sizes that are not known: K, N\n"):
        dmlc.inspect(function, [GPU], sizes={"M": 1024})
    sizes = {"M": 1024, "N": 1024, "K": 1024}
    (kernel,) = dmlc.inspect(function, [GPU], sizes=sizes).kernels
    (compiled,) = kernel.compiled
    assert kernel.groups == 256
    assert compiled.instructions_per_point is not None
    assert compiled.instructions_per_point <= 3
    assert (compiled.spilled_registers, compiled.scratch_bytes) == (0, 0)
    normalized = SUBJECTS["bn_training_grad"].bind()
    sizes = {"N": 32, "C": 64, "H": 56, "W": 56}
    kernels = dmlc.inspect(normalized, [GPU], sizes=sizes).kernels
    # Few channels of many points are cut into pieces. Versions for other sizes are left out.
    assert [kernel.groups for kernel in kernels] == [1024, 1024]
    for (compiled,) in (kernel.compiled for kernel in kernels):
        assert compiled.instructions_per_point is not None
        assert compiled.instructions_per_point <= 70


def test_what_comes_after_a_product_takes_little() -> None:
    compiled = inspect(Product(512, 512, 512, before=True).make())
    assert compiled.instructions_per_point is not None
    assert compiled.instructions_per_point <= 2.6
    assert compiled.registers is not None
    assert compiled.registers <= by_mesa(64, 108)


@pytest.mark.parametrize("kind", ["forward", "data"])
def test_a_convolution_reads_its_windows_where_they_lie(kind: str) -> None:
    """Which element of a row of the window it is, a work item knows before it runs."""
    compiled = inspect(Windows(16, 64, 56, 56, 64, 3, 1, 1).make(kind))
    assert compiled.instructions_per_point is not None
    assert 1 <= compiled.instructions_per_point <= by_mesa(1.45, 1.6)


def test_a_derived_gradient_of_a_convolution_with_strides_is_a_product() -> None:
    forward = ir.parse("""
        func @conv(%X: f32[8, 64, 58, 58], %K: f32[64, 64, 3, 3]) -> (%Y) {
          %Y: f32[i0 < 8, i1 < 64, i2 < 28, i3 < 28] = sum[r0 < 64, r1 < 3, r2 < 3]
            mul(%X[i0, r0, add(mul(i2, 2), r1), add(mul(i3, 2), r2)], %K[i1, r0, r1, r2])
        }""")
    derived = derive(forward, ("X",)).function
    (kernel,) = dmlc.compile(derived, "hlsl", "gpu").kernels
    calls = kernel.source.replace("\n//    ", "")
    assert "stage k left shared" in calls
    assert calls.count("thin ") == 2
    (inspected,) = dmlc.inspect(derived, [GPU]).kernels
    (compiled,) = inspected.compiled
    # Each element of X has nine points, of which a quarter is there.
    assert compiled.instructions_per_output is not None
    assert compiled.instructions_per_output <= 64 * 9 * 1.5
