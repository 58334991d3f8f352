"""The schedule table: which row serves a kernel, what is refused, and what is left as it is."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.target import GPU, Profile, Subject
from dmlc.loops.script import ScheduleError
from dmlc.pipeline import Steps, compile_kernels, list_subjects
from dmlc.processes import python_command, python_environment
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.schedules.table import (
    FACTS,
    KINDS,
    NUMBERS,
    choose_profile,
    list_devices,
    parse_table,
    print_row,
    read_table,
)
from dmlc.source import Source
from dmlc.tuning.candidates import list_numbers, write_table

PRODUCT = """
func @product(%A: f32[{m}, {k}], %B: f32[{k}, {n}]) -> (%C) {{
  %C: f32[i0 < {m}, i1 < {n}] = sum[r0 < {k}] mul(%A[i0, r0], %B[r0, i1])
}}"""
ROWS = """
func @rows(%X: f32[12, 300]) -> (%Y) {
  %S: f32[i0 < 12] = sum[r0 < 300] %X[i0, r0]
  %Y: f32[i0 < 12, i1 < 300] = div(%X[i0, i1], %S[i0])
}"""
COLUMNS = """
func @columns(%X: f32[700, 40]) -> (%Y) {
  %Y: f32[i0 < 40] = sum[r0 < 700] %X[r0, i0]
}"""
PLAIN = """
func @plain(%X: f32[37, 64]) -> (%Y) {
  %Y: f32[i0 < 37, i1 < 64] = mul(%X[i0, i1], %X[i0, i1])
}"""
CONVOLUTION = """
func @convolution(%X: f32[4, 10, 10], %W: f32[24, 4, 3, 3]) -> (%Y) {
  %Y: f32[i0 < 24, i1 < 8, i2 < 8] = sum[r0 < 4, r1 < 3, r2 < 3] \
mul(%X[r0, add(i1, r1), add(i2, r2)], %W[i0, r0, r1, r2])
}"""


SMALL = ("panel 16 16 16", "panel 24 32 64")
"""Panels that small products have several of."""


def make_product(m: int, n: int, k: int) -> ir.Function:
    return ir.parse(PRODUCT.format(m=m, n=n, k=k))


def find_row(text: str, subject: Subject, gpu_class: str | None = "nvidia.sm_90") -> str:
    profile = choose_profile(None, "gpu", gpu_class, Source("own", text))
    row = profile.find_row(subject)
    return "" if row is None else row.text


def describe(size: int | None, kind: str = "elementwise", dtype: str = "FLOAT32") -> Subject:
    return Subject(kind, DataType[dtype], size)


def test_the_nearest_row_serves() -> None:
    text = """
device gpu
  row elementwise any any; vectors 1
device nvidia
  row elementwise any 2^10..; vectors 2
  row elementwise FLOAT32 2^10..; vectors 4
  row elementwise FLOAT32 2^12..2^14; vectors 8
device nvidia.sm_90
  row elementwise FLOAT16 2^12; vectors 1
"""
    cases = {
        (1023, "FLOAT32"): "gpu elementwise any any",
        (1024, "FLOAT32"): "nvidia elementwise FLOAT32 2^10..",
        (4096, "FLOAT32"): "nvidia elementwise FLOAT32 2^12..2^14",
        (1 << 14, "FLOAT32"): "nvidia elementwise FLOAT32 2^10..",
        (4096, "FLOAT16"): "nvidia.sm_90 elementwise FLOAT16 2^12",
        (8192, "FLOAT16"): "nvidia elementwise any 2^10..",
        # Rows for any type are for those of up to 32 bits.
        (8192, "FLOAT64"): "",
        # What is known at run time only is in no range.
        (None, "FLOAT32"): "gpu elementwise any any",
    }
    for (size, dtype), wanted in cases.items():
        found = find_row(text, describe(size, dtype=dtype))
        assert found.partition(":")[0] == wanted, (size, dtype)


def test_own_rows_go_before_those_that_ship() -> None:
    shipped = choose_profile(None, "gpu", "nvidia.sm_90", None)
    subject = Subject("product", DataType.FLOAT32, 1 << 20, 1, 1 << 10, 1 << 10)
    row = shipped.find_row(subject)
    assert row is not None
    assert row.device == "nvidia.sm_90"
    own = "device gpu\nrow product any any; tile 32 32 4 16"
    assert find_row(own, subject) == "gpu product any any: tile 32 32 4 16"


def test_a_tile_serves_no_product_that_it_would_mostly_waste() -> None:
    text = "device gpu\nrow product any any; tile 128 128 8 8 ahead"
    wide = Subject("product", DataType.FLOAT32, 64 * 4096, 1, 64, 4096)
    narrow = Subject("product", DataType.FLOAT32, 32 * 4096, 1, 32, 4096)
    assert find_row(text, wide, None)
    assert not find_row(text, narrow, None)


WRONG = {
    "device nvidai": ("1:1: error: unknown device class 'nvidai'", "did you mean 'nvidia'?"),
    "row product any any": ("1:1: error: 'row' stands before any device", "device gpu"),
    "device gpu\nrow produkt any any; groups 4": (
        "2:1: error: unknown kernel class 'produkt'", "did you mean 'product'?"),
    "device gpu\nrow product FLOAT33 any; groups 4": (
        "2:1: error: unknown data type 'FLOAT33'", "did you mean 'FLOAT32'?"),
    "device gpu\nrow product any 1000; groups 4": (
        "2:1: error: '1000' are no sizes", "2^20 are those from 2^20 on"),
    "device gpu\nrow product any any": (
        "2:1: error: the row has no numbers", "give some below it, or delete it"),
    "device gpu\nrow product any any; groups 64": (
        "2:1: error: groups may change the order of sums", "reorders"),
    "device gpu\nrow elementwise any any reorders; groups 64": (
        "2:1: error: no number of the row changes the order of a sum", "delete 'reorders'"),
    "device gpu\nrow elementwise any any\n  group_size 100": (
        "3:3: error: group_size: it is a power of two from 32 to 256", "write: group_size N"),
    "device gpu\nrow product any any\n  tile 128 128 8 16 ahead": (
        "3:3: error: tile: it takes 32,768 bytes of shared memory", "write: tile ROWS COLUMNS"),
    "device gpu\nrow product any any\n  tile 128 128 4 4": (
        "3:3: error: tile: it takes 1024 work items", "write: tile"),
    "device gpu\nrow product any any\n  tile": (
        "3:3: error: tile: it takes numbers", "write: tile"),
    "device cpu\nrow product any any\n  tile 64 64 4 16": (
        "3:3: error: unknown number of a product on a cpu 'tile'", "known here: panel, groups"),
    "device gpu\nrow scan any any reorders; groups 4\nrow scan any any reorders; groups 8": (
        "3:1: error: there are two such rows", "2:1: note: the first"),
    "device gpu\nfact colour 3": ("2:1: error: unknown fact 'colour'", "known here"),
    "device gpu\nrow elementwise any any; vectors 2; vectors 4": (
        "2:37: error: 'vectors' is given twice", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_named_with_their_line_and_cure(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_table(Source("rows.txt", text))
    message, cure = WRONG[text]
    assert f"rows.txt:{message}" in str(caught.value)
    assert cure in str(caught.value)


def test_classes_that_do_not_fit_are_refused() -> None:
    for kind, own, wanted in (
        (("hlsl", None, "nvidia.sm_9"), None, "did you mean 'nvidia.sm_90'?"),
        (("opencl", "cpu", "nvidia"), None, "kernels for the profile 'cpu' are asked for"),
        (("hlsl", None, None), "device amd\nrow sort any any; groups 4", "--gpu-class amd"),
        (("hlsl", None, None), "// nothing", "has no rows"),
    ):
        target, profile, gpu_class = kind
        with pytest.raises(dmlc.DmlcError, match=wanted):
            dmlc.compile(ir.parse(PLAIN), target, profile, gpu_class=gpu_class, schedules=own)


def test_without_a_class_nothing_changes() -> None:
    for text in (ROWS, COLUMNS, PLAIN, CONVOLUTION):
        program = dmlc.compile(ir.parse(text), "hlsl")
        assert not any(kernel.row for kernel in program.kernels)
        assert "table row" not in "".join(kernel.source for kernel in program.kernels)
        assert "gpu_class" not in program.manifest()


def test_what_is_known_of_a_device_has_no_default() -> None:
    said = {"device_class", "rows", "taken", "bounds"}
    given = {f.name: getattr(GPU, f.name) for f in dataclasses.fields(Profile)}
    for name in given.keys() - said:
        with pytest.raises(TypeError, match=f"'{name}'"):
            Profile(**{other: value for other, value in given.items() if other != name})
    assert Profile(**{name: value for name, value in given.items() if name not in said}) == GPU


@pytest.mark.parametrize("gpu_class", [*GPU.classes, "nvidia.sm_90", "amd.gfx1035"])
def test_rows_that_ship_make_kernels(gpu_class: str) -> None:
    """The comment and the manifest have the row, and OpenCL C takes the same one."""
    for function in (make_product(1024, 1024, 64), ir.parse(ROWS), ir.parse(COLUMNS)):
        for target in ("hlsl", "opencl"):
            program = dmlc.compile(function, target, gpu_class=gpu_class)
            first, said = program.kernels[0], program.manifest()
            assert first.row.startswith(f"table row {gpu_class.partition('.')[0]}")
            comment = " ".join(first.source.replace("//", "").split())
            assert first.row in comment
            assert said["kernels"][0]["row"] == first.row
            assert (said["gpu_class"], said["profile"]) == (gpu_class, "gpu")


def test_every_class_has_facts_of_every_kind() -> None:
    table = read_table()
    for device in list_devices():
        if device not in ("gpu", "cpu"):
            assert table.find_facts(device).keys() == FACTS.keys(), device


@pytest.mark.parametrize("profile", ["gpu", "cpu"])
def test_all_that_is_tried_computes_the_same(profile: str) -> None:
    """Every number that a row may give, in kernels that are interpreted."""
    random, kinds = np.random.default_rng(0), set[str]()
    product = make_product(72, 40, 70)
    for function in (product, *map(ir.parse, (ROWS, COLUMNS, PLAIN, CONVOLUTION))):
        (subject, *_) = list_subjects(function, "opencl", profile)
        kinds.add(subject.kind)
        given = {
            p.name: random.uniform(0.5, 2, p.extents).astype(p.dtype.dtype)
            for p in function.parameters
        }
        wanted, texts = evaluate(function, given), set[str]()
        few = [(each,) for each in SMALL if subject.kind in NUMBERS["panel"].kinds.get(profile, ())]
        single = (numbers for numbers in list_numbers(subject, profile) if len(numbers) == 1)
        for numbers in (*few, *single):
            own = Source("own", write_table(subject, profile, numbers))
            try:
                program, fused, kernels = compile_kernels(
                    function, "opencl", profile, steps=Steps(table=own)
                )
            except dmlc.DmlcError:
                continue
            text = "".join(k.source.partition("kernel void")[2] for k in program.kernels)
            if text in texts:
                continue
            texts.add(text)
            found = run_kernels(fused, kernels, given)
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=2e-4, err_msg=str(numbers))
        assert texts
    assert kinds == {"product", "row_reduction", "column_reduction", "elementwise", "convolution"}


def test_rows_are_printed_as_they_are_read() -> None:
    for row in read_table().rows:
        again = parse_table(Source("again", f"device {row.device}\n{print_row(row)}")).rows
        assert again == (row,)


def test_every_number_belongs_to_kinds_that_there_are() -> None:
    for number in NUMBERS.values():
        assert set().union(*number.kinds.values(), number.reorders) <= KINDS.keys()


_HASH = """
import hashlib, dmlc
from dmlc import ir
made = hashlib.sha256()
for name in ("nvidia", "apple"):
    program = dmlc.compile(ir.parse({text!r}), "hlsl", gpu_class=name)
    made.update("".join(k.source for k in program.kernels).encode())
print(made.hexdigest())
"""


def test_the_same_table_makes_the_same_bytes() -> None:
    """In a process whose sets are in another order."""
    made = hashlib.sha256()
    for name in ("nvidia", "apple"):
        program = dmlc.compile(ir.parse(ROWS), "hlsl", gpu_class=name)
        made.update("".join(k.source for k in program.kernels).encode())
    command = [*python_command("x")[:-2], "-c", _HASH.format(text=ROWS)]
    environment = python_environment() | {"PYTHONHASHSEED": "7"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == made.hexdigest()
