"""What is chosen for drivers whose compiler gets AVX-512 wrong, from facts that are made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmlc.processes import setting
from dmlc.runtime import instructions
from dmlc.runtime.instructions import LAVAPIPE, POCL, Choice, Facts, Override, choose, find_flags

ROOT = Path(__file__).parents[2]
AVX2 = frozenset({"sse2", "avx", "avx2", "fma", "f16c", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512vl"}


@pytest.mark.parametrize("override", [POCL, LAVAPIPE])
@pytest.mark.parametrize("llvm", [13, 15, 22])
def test_avx512_is_avoided_where_llvm_gets_it_wrong(override: Override, llvm: int) -> None:
    found = choose(override, Facts(AVX512, llvm, {}))
    assert (found.variable, found.value) == (override.variable, override.value)
    set_to = f"{override.variable}={override.value}"
    assert found.note == f"without AVX-512, which LLVM {llvm} compiles wrongly ({set_to})"


@pytest.mark.parametrize(
    ("flags", "llvm"),
    [
        (AVX2, 15),
        (frozenset[str](), 15),
        (AVX512 - {"avx2"}, 15),
        (AVX512, 23),
        (AVX512, None),
    ],
)
def test_nothing_is_chosen_where_nothing_is_wrong(flags: frozenset[str], llvm: int | None) -> None:
    for started in (False, True):
        facts = Facts(flags, llvm, {"POCL_KERNELLIB_NAME": "avx"}, started)
        assert choose(POCL, facts) == Choice("POCL_KERNELLIB_NAME", None, "")


def test_what_the_user_has_set_stands() -> None:
    found = choose(POCL, Facts(AVX512, 15, {"POCL_KERNELLIB_NAME": "avx512"}))
    assert found.value is None
    assert found.note == (
        "with POCL_KERNELLIB_NAME=avx512, as you set it, where dmlc avoids AVX-512, which LLVM 15 "
        "compiles wrongly"
    )
    found = choose(LAVAPIPE, Facts(AVX512, 15, {"GALLIUM_OVERRIDE_CPU_CAPS": "avx"}))
    assert found.value is None
    assert found.note == "without AVX-512, which LLVM 15 compiles wrongly, as you set it"


def test_a_driver_that_runs_already_is_left_alone() -> None:
    found = choose(LAVAPIPE, Facts(AVX512, 15, {}, started=True))
    assert found.value is None
    assert found.note.startswith("with AVX-512, which its LLVM compiles wrongly: something else")
    assert "set GALLIUM_OVERRIDE_CPU_CAPS=avx before" in found.note


def test_flags_are_those_of_the_first_processor() -> None:
    text = "processor\t: 0\nflags\t\t: sse2 avx512f\nbugs\t\t: x\n\nflags\t\t: other\n"
    assert find_flags(text) == {"sse2", "avx512f"}
    assert find_flags("Features\t: fp asimd\n") == frozenset()


def test_flags_that_nothing_says_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_CPUINFO", tmp_path / "missing")
    instructions.read_flags.cache_clear()
    assert instructions.read_flags() == frozenset()
    instructions.read_flags.cache_clear()


def test_a_variable_is_set_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMLC_TEST", raising=False)
    with setting("DMLC_TEST", "1"):
        assert os.environ["DMLC_TEST"] == "1"
    with setting("DMLC_TEST", None):
        assert "DMLC_TEST" not in os.environ
    monkeypatch.setenv("DMLC_TEST", "mine")
    with setting("DMLC_TEST", "1"):
        assert os.environ["DMLC_TEST"] == "mine"
    assert os.environ["DMLC_TEST"] == "mine"


def run_twice(code: str, variable: str, values: tuple[str, str], cache: dict[str, str]) -> None:
    for value in values:
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | cache | {variable: value},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )


def test_the_cache_of_pocl_tells_the_libraries_apart(tmp_path: Path) -> None:
    """Else a kernel built with AVX-512 would come back to a process that does without it."""
    code = (
        "from dmlc.runtime import opencl; from tests.runtime import handmade; import numpy as np;"
        "o = np.ones(64, np.float32);"
        "opencl.load(handmade.relu_grad())({'X': o, 'dY': o})"
    )
    for values in (("sse2", "ssse3"), ("ssse3", "sse2")):
        run_twice(code, "POCL_KERNELLIB_NAME", values, {"POCL_CACHE_DIR": str(tmp_path)})
        assert len(list(tmp_path.glob("*/*/program.bc"))) == 2


def test_the_cache_of_mesa_tells_the_instructions_apart(tmp_path: Path) -> None:
    code = (
        "from dmlc.runtime import vulkan; from tests.runtime import handmade_hlsl;"
        "import numpy as np; o = np.ones(64, np.float32);"
        "vulkan.load(handmade_hlsl.relu_grad(), 'vulkan:llvmpipe')({'X': o, 'dY': o})"
    )
    counts: list[int] = []
    for values in (("sse2", "sse2"), ("sse2", "ssse3"), ("ssse3", "sse2")):
        # Newer versions keep one file of all kernels, unless they are told.
        cache = {"MESA_SHADER_CACHE_DIR": str(tmp_path), "MESA_DISK_CACHE_MULTI_FILE": "true"}
        run_twice(code, "GALLIUM_OVERRIDE_CPU_CAPS", values, cache)
        counts.append(sum(p.is_file() and len(p.parent.name) == 2 for p in tmp_path.rglob("*")))
    assert counts[0] > 0
    assert counts[1:] == [2 * counts[0], 2 * counts[0]]
