"""What SPIR-V asks of floats, in the kernels of the whole library.

Without these execution modes a driver may ignore NaN: NVIDIA's makes a minimum of `x <= y ? x : y`
that drops it. Lavapipe does not, so these tests look at the modules.
"""

from __future__ import annotations

import pytest

from dmlc import library
from tests.library_programs import find_shaders


@pytest.mark.parametrize("name", library.names())
def test_spirv_asks_to_keep_nan_and_signed_zeros_of_each_of_its_floats(name: str) -> None:
    for shader in find_shaders(name):
        facts = shader.facts
        asked = [width for mode, width in facts.float_modes if mode == "SignedZeroInfNanPreserve"]
        assert tuple(asked) == facts.float_widths


def test_most_operators_compute_with_floats() -> None:
    some = [find_shaders(f"directml.{name}") for name in ("ACTIVATION_RELU", "GEMM", "REDUCE")]
    assert all(shader.facts.float_modes for shaders in some for shader in shaders)
    assert all(some)
