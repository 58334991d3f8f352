"""What a simulated device does where a language leaves it open, freedom by freedom, and that it
does nothing else."""

from __future__ import annotations

import dataclasses
import functools
import string
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.codegen import simulate
from dmlc.codegen.hlsl import HLSL_6_2
from dmlc.codegen.targets import find_dialect
from dmlc.devices import compile_for, find_device, load_on, selector_of
from dmlc.freedoms import Freedom, Taken
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, Memory, run_kernel
from dmlc.kernel.parse import parse_kernel
from dmlc.pipeline import Steps, compile_by
from dmlc.program import FLOAT_WIDTHS, Program
from dmlc.runtime.strict import StrictDevice
from dmlc.scalars import Array, DataType
from dmlc.scalars.operation import Spelling
from dmlc.source import DmlcError, UnknownNameError, UnsupportedError
from dmlc.transform.fuse import keep_apart

TINY = np.float32(1e-40)
X = np.array([1.5, -2.0, TINY, -TINY, 0.0, 3.0, 7.0, 0.3], np.float32)
SEEDS = range(8)


def run(formula: str, x: Array, seed: int, *freedoms: str) -> Array:
    """A formula of one tensor, on a device that takes some freedoms alone."""
    device = find_device(",".join((f"strict:{seed}", *(freedoms or ("none",)))))
    assert device is not None
    short = DataType(x.dtype).short
    text = f"func @F(%x: {short}[n]) -> (%y) {{\n  %y: {short}[i0 < n] = {formula}\n}}"
    return load_on(compile_for(ir.parse(text), device), device)({"x": x})["y"]


def differ(one: Array, other: Array) -> bool:
    return one.tobytes() != other.tobytes()


def test_a_name_says_the_seed_and_the_freedoms() -> None:
    everything = frozenset(Freedom)
    assert find_device("strict") == StrictDevice(0, everything)
    assert find_device("strict:7") == StrictDevice(7, everything)
    assert find_device("strict:7,none") == StrictDevice(7, frozenset())
    some = find_device("strict:2,division,order")
    assert some == StrictDevice(2, frozenset((Freedom.DIVISION, Freedom.ORDER)))
    assert some is not None
    assert find_device(selector_of(some)) == some
    assert "free in division and order" in str(some)
    with pytest.raises(DmlcError, match="the seed 'x', which is no number"):
        find_device("strict:x")
    with pytest.raises(UnknownNameError, match="did you mean 'denormals'"):
        find_device("strict:0,denormal")


def test_a_device_promises_what_it_does_not_take() -> None:
    every, exact = StrictDevice(), StrictDevice(0, frozenset())
    assert every.floats.special == exact.floats.special == FLOAT_WIDTHS
    assert (every.floats.denormals, exact.floats.denormals) == ((), FLOAT_WIDTHS)
    ulps = [d.floats.find_ulps("div", DataType.FLOAT32) for d in (every, exact)]
    assert ulps == [2.5, 0.5]


def test_a_program_compiled_for_others_is_refused() -> None:
    program = dmlc.compile("directml.ACTIVATION_RELU", "hlsl")
    with pytest.raises(UnsupportedError, match="nothing that could be interpreted"):
        load_on(program, StrictDevice())


@pytest.mark.parametrize("formula", ["mul(%x[i0], 3.0)", "div(%x[i0], 3.0)", "max(%x[i0], 0.0)"])
def test_without_freedoms_it_computes_as_the_semantics_say(formula: str) -> None:
    exact = run(formula, X, 0)
    evaluate = {"mul": lambda: X * 3, "div": lambda: X / 3, "max": lambda: np.maximum(X, 0)}
    assert np.array_equal(exact, evaluate[formula[:3]]().astype(np.float32))


def test_denormals_are_flushed_or_kept() -> None:
    found = [run("neg(%x[i0])", X, seed, "denormals") for seed in SEEDS]
    assert {bool(f[2]) for f in found} == {True, False}
    for each in found:
        assert np.array_equal(np.signbit(each), ~np.signbit(X))
        assert np.array_equal(each[:2], -X[:2])


def test_quotients_and_roots_are_off_by_what_is_promised() -> None:
    x = np.linspace(1, 100, 997, dtype=np.float32)
    for formula, exact, most in (("div(%x[i0], 3.0)", x / 3, 2), ("sqrt(%x[i0])", np.sqrt(x), 4)):
        exact = exact.astype(np.float32)
        found = run(formula, x, 1, "division")
        steps = found.view(np.int32).astype(int) - exact.view(np.int32)
        assert set(steps) == set(range(-most, most + 1))


def test_a_run_can_be_repeated_and_another_seed_differs() -> None:
    x = np.linspace(1, 100, 97, dtype=np.float32)
    found = [run("div(%x[i0], 3.0)", x, seed) for seed in (1, 1)]
    assert not differ(*found)
    found = [run("div(%x[i0], 3.0)", x, seed, "division") for seed in (1, 1, 2)]
    assert not differ(found[0], found[1])
    assert differ(found[0], found[2])


# Kernels by hand ---------------------------------------------------------------------------

OWN = Path(__file__).name


def launch(
    body: str,
    x: Array,
    *freedoms: Freedom,
    seed: int = 1,
    special: tuple[int, ...] = FLOAT_WIDTHS,
    index: str = "u32",
    result: str = "f32",
    size: int | None = None,
) -> Array:
    """What a kernel with a work item for each element of `x` stores in `y`, which holds 9 before;
    both have so many elements, or `size`."""
    kernel = parse_kernel(
        f"""kernel f {{
        launch ceil({x.size} / 1) groups of 1, index {index}
        buffer x: {DataType(x.dtype).short} read
        buffer y: {result} read_write
        shared array shared: f32[4]
        let i: index = group
        {body}
    }}""",
        OWN,
    )
    y = np.full(size or x.size, 9, DataType(result).dtype)
    memories = {"x": Memory(x.copy(), filled=True), "y": Memory(y, filled=True)}
    taken = Taken(seed, frozenset(freedoms), special, 2, 4)
    make = functools.partial(simulate.StrictLaunch, taken=taken, dialect=find_dialect("hlsl"))
    run_kernel(kernel, memories, {}, make)
    return memories["y"].values


NAN = np.array([np.nan, 1.0, np.nan, -2.0] * 8, np.float32)
ALL = tuple(Freedom)


@pytest.mark.parametrize("choice", ["select(le(a, 0.5), a, 0.5)", "min(a, 0.5)", "max(a, 0.5)"])
def test_nan_is_dropped_where_no_mode_keeps_it(choice: str) -> None:
    body = f"let a: f32 = x[i] let b: f32 = {choice} store y[i] = b"
    kept = launch(body, NAN, *ALL)
    assert np.isnan(kept[::2]).all() or choice.startswith("select")
    free = [launch(body, NAN, *ALL, special=(), seed=seed)[::2] for seed in SEEDS]
    assert {bool(n) for each in free for n in np.isnan(each)} == {True, False}
    # Where there is no NaN, nothing is open.
    assert all(np.array_equal(launch(body, NAN, *ALL, special=(), seed=s)[1::2], kept[1::2])
               for s in SEEDS)  # fmt: skip


def test_the_sign_of_a_zero_is_lost_where_no_mode_keeps_it() -> None:
    body = "let a: f32 = mul(x[i], 0.0) store y[i] = a"
    x = np.arange(1, 40, dtype=np.float32)
    assert not np.signbit(launch(body, x, *ALL)).any()
    assert set(np.signbit(launch(body, x, *ALL, special=()))) == {True, False}


def test_remainders_of_what_may_be_negative_are_taken_by_the_sizes() -> None:
    """The dialect divides sizes without a sign: nothing is left open."""
    x = np.arange(-20, 20, dtype=np.int32)
    body = "let n: s32 = cast(6, s32) store y[i] = mod(x[i], n)"
    assert np.array_equal(launch(body, x, *ALL, result="s32"), np.fmod(x, 6))


def test_a_remainder_as_it_stands_is_open_where_an_operand_is_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Spelling("{0} % {1}", compound=True)
    table = {**HLSL_6_2.operations, ("mod", DataType.INT32): plain}
    broken = dataclasses.replace(HLSL_6_2, operations=table)
    monkeypatch.setattr(f"{__name__}.find_dialect", lambda _: broken)
    x = np.arange(-20, 20, dtype=np.int32)
    found = launch("let n: s32 = cast(6, s32) store y[i] = mod(x[i], n)", x, *ALL, result="s32")
    assert np.array_equal(found[20:], x[20:] % 6)
    assert (found[:20] != np.fmod(x, 6)[:20]).all()
    exact = launch("let n: s32 = cast(6, s32) store y[i] = mod(x[i], n)", x, result="s32")
    assert np.array_equal(exact, np.fmod(x, 6))


def test_a_function_that_divides_with_a_sign_is_seen_in_its_text() -> None:
    """As the functions of HLSL were before they divided sizes."""
    helper = HLSL_6_2.helpers["mod_signed"]
    text = "$T $H(const $T a, const $T b)\n{\n    const $T rest = a % b;\n    return rest;\n}"
    before = dataclasses.replace(helper, text=string.Template(text))
    broken = dataclasses.replace(HLSL_6_2, helpers={**HLSL_6_2.helpers, "mod_signed": before})
    x = np.arange(-20, 20, dtype=np.int32)
    kernel = parse_kernel(
        """kernel f { launch ceil(40 / 1) groups of 1, index u32
        buffer x: s32 read
        buffer y: s32 write
        let i: index = group
        let n: s32 = cast(6, s32) store y[i] = mod(x[i], n) }""",
        OWN,
    )
    for dialect, is_right in ((HLSL_6_2, True), (broken, False)):
        memories = {n: Memory(x.copy(), filled=True) for n in "xy"}
        taken = Taken(1, frozenset(Freedom), FLOAT_WIDTHS, 2, 4)
        make = functools.partial(simulate.StrictLaunch, taken=taken, dialect=dialect)
        run_kernel(kernel, memories, {}, make)
        assert np.array_equal(memories["y"].values, np.fmod(x, 6)) == is_right


def test_what_is_beyond_a_buffer_is_anything_and_what_is_stored_there_is_lost() -> None:
    x = np.arange(8, dtype=np.float32)
    body = "store y[add(i, 4)] = add(x[i], 100.0)"
    assert list(launch(body, x, *ALL)) == [9, 9, 9, 9, 100, 101, 102, 103]
    found = launch("store y[i] = x[add(i, 4)]", x, *ALL)
    assert list(found[:4]) == [4, 5, 6, 7]
    with pytest.raises(KernelFault, match="element 8 of 'x', which has 8"):
        launch("store y[i] = x[add(i, 4)]", x, Freedom.DENORMALS)


def test_shared_memory_holds_anything_before_it_is_written() -> None:
    x = np.arange(8, dtype=np.float32)
    body = "store y[i] = shared[0]"
    found = [launch(body, x, *ALL, seed=seed) for seed in SEEDS]
    assert len({each.tobytes() for each in found}) == len(SEEDS)
    with pytest.raises(KernelFault, match="read before it is written"):
        launch(body, x)


def test_groups_run_in_any_order_and_races_are_faults() -> None:
    x = np.arange(32, dtype=np.float32)
    with pytest.raises(KernelFault, match="written where another item"):
        launch("store y[0] = x[i]", x, *ALL)
    assert np.array_equal(launch("store y[i] = x[i]", x, *ALL), x)


@pytest.mark.parametrize("freedoms", [(), ALL])
def test_lanes_that_race_between_barriers_are_faults(freedoms: tuple[Freedom, ...]) -> None:
    """In whatever order lanes run: who used an element since the last barrier is known."""
    x = np.arange(4, dtype=np.float32)
    store, read = "store_local shared[lane] = x[lane]", "store y[lane] = shared[sub(3, lane)]"

    def run_lanes(*steps: str) -> Array:
        body = "\n".join(steps)
        kernel = parse_kernel(
            f"""kernel f {{ launch ceil(4 / 4) groups of 4, index u32
            buffer x: f32 read
            buffer y: f32 write
            shared array shared: f32[4]
            {body} }}""",
            OWN,
        )
        memories = {n: Memory(x.copy(), filled=True) for n in "xy"}
        taken = Taken(1, frozenset(freedoms), FLOAT_WIDTHS, 2, 4)
        make = functools.partial(simulate.StrictLaunch, taken=taken, dialect=HLSL_6_2)
        run_kernel(kernel, memories, {}, make)
        return memories["y"].values

    assert list(run_lanes(store, "barrier", read)) == [3, 2, 1, 0]
    with pytest.raises(KernelFault, match="another item"):
        run_lanes(store, read)
    with pytest.raises(KernelFault, match="another item"):
        # Some read what was there when others store again.
        run_lanes(store, "barrier", read, store)


CHAIN = """func @F(%x: f32[40]) -> (%y) {
  %a: f32[i0 < 40] = mul(%x[i0], 2.0)
  %b: f32[i0 < 40] = add(%a[sub(39, i0)], 1.0)
  %c: f32[i0 < 40] = mul(%b[sub(39, i0)], %a[i0])
  %y: f32[i0 < 40] = add(%c[sub(39, i0)], %b[i0])
}"""


def run_chain(program: Program, *freedoms: Freedom) -> list[bool]:
    """Whether four seeds give what the kernels of a chain come to, each in a kernel of its own."""
    x = np.arange(40, dtype=np.float32)
    a = x * 2
    b = a[::-1] + 1
    wanted = (b[::-1] * a)[::-1] + b
    devices = (StrictDevice(seed, frozenset(freedoms)) for seed in SEEDS)
    return [np.array_equal(load_on(program, d)({"x": x})["y"], wanted) for d in devices]


@pytest.fixture(scope="module")
def chain() -> Program:
    steps = Steps(fuse=keep_apart)
    made = compile_by(steps, ir.parse(CHAIN), "hlsl", interpreted=True)
    assert len(made.kernels) == 4
    return made


def test_tensors_that_are_needed_together_do_not_share_their_bytes(chain: Program) -> None:
    assert all(run_chain(chain, *ALL))
    # As if the plan had all of them in one place.
    placed = (t if t.offset is None else dataclasses.replace(t, offset=0) for t in chain.tensors)
    assert not any(run_chain(dataclasses.replace(chain, tensors=tuple(placed)), *ALL))


def test_kernels_run_in_any_order_that_waits_allow(chain: Program) -> None:
    assert [kernel.after for kernel in chain.kernels] == [(), (0,), (0, 1), (1, 2)]
    free = (dataclasses.replace(kernel, after=()) for kernel in chain.kernels)
    loose = dataclasses.replace(chain, kernels=tuple(free))
    assert not all(run_chain(loose, Freedom.ORDER, Freedom.MEMORY))
    assert all(run_chain(loose, Freedom.MEMORY)), "one after the other"


def test_a_product_is_added_before_it_is_rounded_where_no_local_takes_it() -> None:
    x = np.linspace(1, 2, 64, dtype=np.float32)
    loose = "if lt(i, 64) { store y[i] = add(mul(x[i], x[i]), -1.5) }"
    kept = "let a: f32 = add(mul(x[i], x[i]), -1.5) store y[i] = a"
    rounded = (x * x - np.float32(1.5)).astype(np.float32)
    fused = (x.astype(np.float64) ** 2 - 1.5).astype(np.float32)
    found = {launch(loose, x, Freedom.CONTRACTION, seed=s).tobytes() for s in range(16)}
    assert found == {rounded.tobytes(), fused.tobytes()}
    for seed in range(16):
        assert np.array_equal(launch(kept, x, Freedom.CONTRACTION, seed=seed), rounded)


def test_conversions_of_what_does_not_fit_are_made_to_fit() -> None:
    """HLSL's own are open beyond the bounds: the dialect has a function for them."""
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -1.5, 2.5], np.float32)
    found = launch("store y[i] = cast(x[i], s32)", x, *ALL, result="s32")
    limits = np.iinfo(np.int32)
    assert list(found) == [0, limits.max, limits.min, limits.max, -1, 2]
    table = {**HLSL_6_2.conversions, (DataType.FLOAT32, DataType.INT32): Spelling("({R}){0}")}
    node = k.Convert(k.Local("a", k.Type(DataType.FLOAT32)), k.Type(DataType.INT32))
    kernel = parse_kernel("kernel f { launch ceil(1 / 1) groups of 1, index u32 }", OWN)
    launched = simulate.StrictLaunch(
        kernel, {}, {}, taken=Taken(1, frozenset(Freedom), FLOAT_WIDTHS, 2, 4),
        dialect=dataclasses.replace(HLSL_6_2, conversions=table),
    )  # fmt: skip
    convert = launched._find_conversion(node, DataType.INT32)
    assert list(convert(x)[4:]) == [-1, 2]
    assert (convert(x)[:4] != found[:4]).all()
