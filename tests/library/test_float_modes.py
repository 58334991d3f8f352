"""What SPIR-V asks of floats, in the kernels of the whole library.

Without these execution modes a driver may ignore NaN: NVIDIA's makes a minimum of `x <= y ? x : y`
that drops it. Lavapipe does not, so these tests look at the modules.
"""

from __future__ import annotations

from dmlc.runtime.spirv import read_module
from tests.library_programs import list_shaders


def test_all_spirv_asks_to_keep_nan_and_signed_zeros_of_each_of_its_floats() -> None:
    floats = 0
    for name, shader in list_shaders():
        facts = read_module(shader.spirv)
        asked = [width for mode, width in facts.float_modes if mode == "SignedZeroInfNanPreserve"]
        assert tuple(asked) == facts.float_widths, name
        floats += bool(asked)
    assert floats > 200
