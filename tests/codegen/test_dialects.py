"""The dialects: total tables, literals that read back, names that are kept."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from dmlc.codegen import functions
from dmlc.codegen.dialect import COMPUTE_TYPES, Dialect, operation_pairs
from dmlc.codegen.targets import TARGETS, find_dialect
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, DataType
from dmlc.scalars.operation import Spelling, Unsupported
from dmlc.source import UnknownNameError

HLSL, OPENCL, WGSL = (find_dialect(name) for name in ("hlsl", "opencl", "wgsl"))
PLAIN = [dialect for target in TARGETS for dialect in target.dialects]
DIALECTS = [*PLAIN, *(dialect.sharing for dialect in PLAIN if dialect.sharing is not None)]
BY_NAME = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)


@BY_NAME
def test_every_operation_is_spelled_or_refused_with_a_reason(dialect: Dialect) -> None:
    assert set(dialect.operations) == {*operation_pairs(), ("fma", DataType.FLOAT32)}
    for (name, dtype), entry in dialect.operations.items():
        if isinstance(entry, Unsupported):
            assert len(entry.reason) > 10, (name, dtype)
            continue
        operands = OPERATIONS[name].arity
        for text in (entry.text, entry.vector or entry.text):
            used = set(re.findall(r"\{([01abc])\}", text))
            assert {{"0": "a", "1": "b"}.get(u, u) for u in used} == set("abc"[:operands])


@BY_NAME
def test_every_conversion_load_and_store_is_spelled(dialect: Dialect) -> None:
    assert set(dialect.conversions) == {
        (a, b) for a in COMPUTE_TYPES for b in COMPUTE_TYPES if a is not b
    }
    assert set(dialect.storage) == set(TENSOR_TYPES)
    held = {t for t, name in dialect.storage.items() if isinstance(name, str)}
    assert set(dialect.loads) == held
    assert set(dialect.stores) | set(dialect.halves) == held
    limits = dialect.limits
    assert set(dialect.halves) == {*limits.word_types, *limits.pair_types}
    assert set(dialect.streaming) <= held


def called(dialect: Dialect) -> set[str]:
    """The keys of the helper functions that a dialect's spellings call."""
    tables = (
        dialect.operations, dialect.conversions, dialect.loads, dialect.stores, dialect.streaming,
        dialect.halves, dialect.packs, dialect.prefetches, {0: dialect.shuffles},
    )  # fmt: skip
    entries = [e for table in tables for e in table.values() if isinstance(e, Spelling)]
    return {h for e in entries for h in (e.helper, e.vector_helper) if isinstance(h, str)}


@BY_NAME
def test_every_helper_function_that_is_called_is_written(dialect: Dialect) -> None:
    """And no other, but what some dialect of the language calls."""
    every = [d for each in DIALECTS for d in (each, each.words) if d is not None]
    alike = [d for d in every if d.helpers is dialect.helpers]
    needed = {n for h in dialect.helpers.values() for n in h.needs}
    wanted = needed.union(*map(called, alike))
    types = "|".join(dialect.types.values())
    # What is written for one type, or for one number of lanes, is called like any other.
    written = {key for key in dialect.helpers if key in wanted}
    others = [re.sub(rf"_(x\d+|({types})\d*)$", "", k) for k in dialect.helpers if k not in written]
    assert written.union(others) == wanted


def test_helper_functions_are_read_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "What is in this file.\n\n//// sin_$T cos_$T\n$T $H(const $T x)\n{\n    return $K(x);\n}\n"
        "\n//// ${T}_to_$R\n// Rounds.\n$R $H(const $T x);\n\n//// put_x8\n$narrow(x);\n"
        "\n//// narrow$X\n#\n"
    )
    monkeypatch.setattr(functions, "read_resource", {"templates/f.c": text}.__getitem__)
    found = functions.read_helpers("f.c")
    assert list(found) == ["sin", "cos", "to", "put_x8", "narrow"]
    assert found["cos"].text is found["sin"].text
    assert found["cos"].text.template.startswith("$T $H(const $T x)\n{")
    assert found["to"].text.template == "// Rounds.\n$R $H(const $T x);"
    assert [h.needs for h in found.values()] == [(), (), (), ("narrow",), ()]
    names = re.compile(functions.match_names(found, "int|float"))
    for name in ("sin_float", "cos_float4", "float_to_int", "put_x8", "narrow", "narrow_x16"):
        assert names.fullmatch(name), name
    for name in ("sin", "to", "put", "sin_floaty", "narrow_float"):
        assert not names.fullmatch(name), name


def test_opencl_refuses_no_type() -> None:
    refused = [p for p, e in OPENCL.operations.items() if isinstance(e, Unsupported)]
    assert all(dtype is DataType.INDEX for _, dtype in refused)
    assert not any(isinstance(e, Unsupported) for e in OPENCL.conversions.values())


def test_wgsl_lacks_floats_of_64_bits_alone() -> None:
    for (name, dtype), entry in WGSL.operations.items():
        if dtype is DataType.FLOAT64:
            assert isinstance(entry, Unsupported), (name, dtype)
        elif dtype is not DataType.INDEX:
            assert isinstance(entry, Spelling), (name, dtype)
    refused = [t for t, name in WGSL.storage.items() if isinstance(name, Unsupported)]
    assert refused == [DataType.FLOAT64]


def test_hlsl_refuses_most_of_double_precision_and_nothing_of_bytes() -> None:
    refused = {p for p, e in HLSL.operations.items() if isinstance(e, Unsupported)}
    assert not any(dtype in (DataType.INT8, DataType.UINT8) for _, dtype in refused)
    assert ("exp", DataType.FLOAT64) in refused
    assert ("add", DataType.FLOAT64) not in refused
    assert not any(dtype is DataType.FLOAT32 for _, dtype in refused)


@BY_NAME
@pytest.mark.parametrize("bits", [1, 0x00800000, 0x3DCCCCCD, 0x7F7FFFFF, 0x80000000, 0xBF800001])
def test_float_literals_read_back_equal(dialect: Dialect, bits: int) -> None:
    value = np.uint32(bits).view(np.float32)
    text = dialect.literal(DataType.FLOAT32, float(value)).strip("()")
    assert text.endswith("f")
    assert np.float32(text[:-1]).view(np.uint32) == bits
    if DataType.FLOAT64 not in dialect.types:
        return
    double = dialect.literal(DataType.FLOAT64, float(value)).strip("()").rstrip("L")
    assert float(double) == float(value)
    assert math.copysign(1, float(double)) == math.copysign(1, float(value))


@BY_NAME
def test_special_literals(dialect: Dialect) -> None:
    for dtype in {DataType.FLOAT32, DataType.FLOAT64} & set(dialect.types):
        made = {dialect.literal(dtype, value) for value in (math.inf, -math.inf, math.nan)}
        assert len(made) == 3
    for dtype in {DataType.INT32, DataType.INT64} & set(dialect.types):
        low = int(np.iinfo(dtype.dtype).min)
        assert str(low) not in dialect.literal(dtype, low), "no such literal exists in C"
    assert dialect.literal(DataType.BOOL, True) == "true"
    assert dialect.literal(DataType.UINT32, 7) == "7u"
    assert dialect.literal(DataType.INT32, -7) == ("(-7i)" if dialect is WGSL else "(-7)")


@BY_NAME
@pytest.mark.parametrize("name", ["return", "sqrt", "__x"])
def test_reserved_everywhere(dialect: Dialect, name: str) -> None:
    assert dialect.reserved(name)


@pytest.mark.parametrize("dialect", [HLSL, OPENCL], ids=["hlsl", "opencl"])
@pytest.mark.parametrize("name", ["float4", "int", "isnan", "half"])
def test_reserved_in_languages_like_c(dialect: Dialect, name: str) -> None:
    assert dialect.reserved(name)


@pytest.mark.parametrize("name", ["fn", "let", "f32", "vec4", "select", "active", "storage"])
def test_reserved_in_wgsl_only(name: str) -> None:
    assert WGSL.reserved(name)
    assert not OPENCL.reserved(name) or name == "select"


@pytest.mark.parametrize("name", ["point", "line", "in", "out", "linear", "shared", "technique"])
def test_reserved_in_hlsl_only(name: str) -> None:
    assert HLSL.reserved(name)
    assert not OPENCL.reserved(name)


@pytest.mark.parametrize("name", ["kernel", "__global", "vload16", "convert_int4", "get_global_id"])
def test_reserved_in_opencl(name: str) -> None:
    assert OPENCL.reserved(name)


@BY_NAME
@pytest.mark.parametrize("name", ["InputTensor", "src", "diff_dst", "x", "floaty", "Output1"])
def test_ordinary_names_stay(dialect: Dialect, name: str) -> None:
    assert not dialect.reserved(name)


def test_unknown_target() -> None:
    with pytest.raises(UnknownNameError, match="unknown target 'hsls'") as caught:
        find_dialect("hsls")
    assert "did you mean 'hlsl'?" in str(caught.value)
