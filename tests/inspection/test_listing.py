"""Machine code read from recorded listings, and how often its loops run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmlc.inspection.amd import read_listing
from dmlc.inspection.listing import Instruction, InstructionClass, Listing, Stretch
from dmlc.inspection.machine import MachineKernel
from dmlc.inspection.radv import read_kernel
from dmlc.inspection.turns import weigh_stretches
from dmlc.kernel.counts import Access, Body, Loop, Rarity
from dmlc.source import UnsupportedError

RECORDED = Path(__file__).resolve().parents[1] / "data" / "inspection"
LOAD = Access("x", 4, 1, False, 1, 1)
STORE = Access("y", 4, 1, True, 1, 1)


def read(name: str, gpu: str) -> MachineKernel:
    return read_kernel(json.loads((RECORDED / f"{name}.json").read_text("utf-8")), gpu)


def classify(line: str, gpu: str = "gfx1100") -> Instruction:
    (instruction,) = read_listing(f"BB0:\n\t{line}  ; be800003\n", gpu).instructions
    return instruction


def test_a_recorded_kernel_of_rdna() -> None:
    kernel = read("batch_norm.gfx1100", "gfx1100")
    assert (kernel.registers, kernel.uniform_registers, kernel.spilled_registers) == (12, 128, 0)
    assert (kernel.shared_bytes, kernel.scratch_bytes) == (2048, 0)
    assert (kernel.waves, kernel.wave) == (32, 64)
    # As many as the driver counts.
    assert len(kernel.listing.instructions) == 132
    assert kernel.listing.count_widths(InstructionClass.LOAD) == {4: 4}
    assert kernel.listing.count_widths(InstructionClass.STORE) == {4: 3}
    assert kernel.listing.count_widths(InstructionClass.UNIFORM_LOAD) == {4: 4}
    whole = kernel.listing.find_stretches()
    assert [len(s.instructions) for s in whole.walk()] == [58, 26, 19, 29]
    assert sum(s.count(InstructionClass.BARRIER) for s in whole.walk()) == 2
    # Two loads of four bytes each, before the first is waited for.
    assert [s.find_flight() for s in whole.loops] == [(8, 2), (0, 0), (8, 2)]


def test_a_recorded_kernel_of_gcn() -> None:
    kernel = read("relu_grad_f16.vega10", "vega10")
    assert (kernel.registers, kernel.uniform_registers) == (4, 32)
    assert len(kernel.listing.instructions) == 88
    assert kernel.listing.count_widths(InstructionClass.LOAD) == {2: 8}
    assert kernel.listing.count_widths(InstructionClass.STORE) == {2: 4}
    whole = kernel.listing.find_stretches()
    assert whole.loops == []
    # Each pair is used before the next is asked for; a store is counted with them, and is no load.
    assert whole.find_flight() == (4, 2)


def test_a_gpu_without_a_listing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not list its machine code for tahiti"):
        read("relu_grad_f16.tahiti", "tahiti")


@pytest.mark.parametrize(
    ("line", "kind", "size"),
    [
        ("buffer_load_b32 v5, v4, s[12:15], 0 offen", InstructionClass.LOAD, 4),
        ("buffer_load_b128 v[0:3], v4, s[12:15], 0 offen", InstructionClass.LOAD, 16),
        ("buffer_load_u16 v5, v4, s[12:15], 0 offen", InstructionClass.LOAD, 2),
        ("buffer_load_d16_b16 v5, v4, s[12:15], 0 offen", InstructionClass.LOAD, 2),
        ("buffer_load_short_d16 v5, v4, s[12:15], 0 offen", InstructionClass.LOAD, 2),
        ("buffer_load_ubyte v5, v4, s[12:15], 0 offen", InstructionClass.LOAD, 1),
        ("buffer_load_dwordx4 v[0:3], v4, s[12:15], 0 offen", InstructionClass.LOAD, 16),
        ("buffer_load_dword v0, v4, s[12:15], 0 offen", InstructionClass.LOAD, 4),
        ("buffer_load_format_xyzw v[0:3], v4, s[12:15], 0 offen", InstructionClass.LOAD, 16),
        ("global_load_b64 v[0:1], v4, off", InstructionClass.LOAD, 8),
        ("global_store_dwordx2 v4, v[0:1], off", InstructionClass.STORE, 8),
        ("buffer_store_b16 v5, v4, s[12:15], 0 offen", InstructionClass.STORE, 2),
        ("scratch_store_b32 off, v1, s32 offset:4", InstructionClass.SPILL, 4),
        ("s_buffer_load_b32 s6, s[8:11], s1", InstructionClass.UNIFORM_LOAD, 4),
        ("s_buffer_load_dwordx8 s[0:7], s[8:11], 0x0", InstructionClass.UNIFORM_LOAD, 32),
        ("s_load_b128 s[8:11], s[2:3], 0x20", InstructionClass.OTHER, 0),
        ("ds_store_2addr_stride64_b32 v3, v2, v1 offset1:4", InstructionClass.SHARED, 0),
        ("s_barrier", InstructionClass.BARRIER, 0),
        ("v_add_f32_e32 v2, v2, v5", InstructionClass.OTHER, 0),
        ("v_fmac_f32_e32 v2, v2, v5", InstructionClass.FMA, 0),
        ("v_pk_fma_f16 v2, v2, v5, v2", InstructionClass.FMA, 0),
        ("v_fma_mixlo_f16 v2, v2, v5, v2", InstructionClass.FMA, 0),
        ("v_mad_u32_u24 v2, v2, v5, v2", InstructionClass.OTHER, 0),
    ],
)
def test_instructions_fall_into_classes(line: str, kind: InstructionClass, size: int) -> None:
    found = classify(line)
    assert (found.kind, found.bytes) == (kind, size)


def test_waits_say_what_they_leave_under_way() -> None:
    assert classify("s_waitcnt vmcnt(1)").left == 1
    assert classify("s_waitcnt vmcnt(0) lgkmcnt(0)").left == 0
    assert classify("s_waitcnt lgkmcnt(0)").left is None
    assert classify("s_cbranch_scc1 BB21").target == "BB21"
    assert classify("buffer_store_dword v0, v1, s[0:3], 0 offen", "vega10").queued
    assert not classify("buffer_store_dword v0, v1, s[0:3], 0 offen", "navi21").queued


def test_hints_are_told_from_what_a_unit_runs() -> None:
    lines = ("s_delay_alu instid0(VALU_DEP_1)", "s_waitcnt_depctr 0xfffd", "v_mov_b32 v0, 0")
    assert [classify(line).kind for line in lines] == [
        InstructionClass.HINT,
        InstructionClass.HINT,
        InstructionClass.OTHER,
    ]


def flight(*lines: str) -> tuple[int, int]:
    text = "".join(f"\t{line}\n" for line in lines)
    return read_listing(text, "gfx1100").find_stretches().find_flight()


def test_bytes_in_flight_are_those_asked_for_and_not_waited_for() -> None:
    wide, narrow = "buffer_load_b128 v[0:3], v9, s[0:3], 0", "buffer_load_b32 v4, v9, s[0:3], 0"
    assert flight(wide, narrow, "s_waitcnt vmcnt(0)") == (20, 2)
    assert flight(wide, "s_waitcnt vmcnt(0)", narrow, "s_waitcnt vmcnt(0)") == (16, 1)
    # The first is waited for, and the others stay under way.
    assert flight(narrow, narrow, narrow, "s_waitcnt vmcnt(2)", wide) == (24, 3)
    assert flight("v_add_f32_e32 v0, v0, v0") == (0, 0)


LOOPS = """
BB0:
\tv_mov_b32 v0, 0
BB1:
\tbuffer_load_b32 v1, v0, s[0:3], 0 offen
BB2:
\tds_load_b32 v2, v0
\ts_cbranch_scc0 BB2
BB3:
\ts_branch BB1
BB4:
\ts_barrier
\ts_endpgm
"""


def test_loops_are_found_in_loops() -> None:
    whole = read_listing(LOOPS, "gfx1100").find_stretches()
    names = [[i.name for i in stretch.instructions] for stretch in whole.walk()]
    assert names == [
        ["v_mov_b32", "s_barrier", "s_endpgm"],
        ["buffer_load_b32", "s_branch"],
        ["ds_load_b32", "s_cbranch_scc0"],
    ]
    (outer,) = whole.loops
    assert len(outer.loops) == 1


# Turns ------------------------------------------------------------------------------------------


def listing(text: str) -> Listing:
    lines = [line if line.endswith(":") else f"\t{line}" for line in text.split("; ")]
    return read_listing("\n".join(lines) + "\n", "gfx1100")


def weigh(body: Body, code: Listing) -> list[float] | None:
    whole, times = weigh_stretches(body, code)
    return None if times is None else [times[stretch] for stretch in whole.walk()]


LOADING = "buffer_load_b32 v1, v0, s[0:3], 0"


def test_loops_take_the_turns_of_the_kernels_own() -> None:
    body = Body(loops=(Loop(7, None, False, Body((LOAD,), loops=(Loop(3, None, False, Body()),))),))
    assert weigh(body, read_listing(LOOPS, "gfx1100")) == [1, 7, 21]


def test_an_unrolled_loop_is_told_from_one_that_stays() -> None:
    stays = Loop(50, None, False, Body((LOAD,)))
    short = Loop(2, 2, False, Body((), barriers=1, shared=1))
    code = listing(f"BB1:; {LOADING}; s_cbranch_scc0 BB1; s_barrier; s_barrier; ds_load_b32 v0, v1")
    for loops in ((stays, short), (short, stays)):
        assert weigh(Body(loops=loops), code) == [1, 50]
    # Both could have been unrolled: the loads say which one was not.
    both = (Loop(2, 2, False, Body((LOAD,))), short)
    assert weigh(Body(loops=both), code) == [1, 2]


def test_what_is_unrolled_around_a_loop_repeats_it() -> None:
    inner = Loop(9, None, False, Body((LOAD,)))
    outer = Loop(2, 2, True, Body(loops=(inner,)))
    code = listing(
        f"BB1:; {LOADING}; s_cbranch_scc0 BB1; BB2:; {LOADING}; s_cbranch_scc0 BB2; s_endpgm"
    )
    assert weigh(Body(loops=(outer,)), code) == [1, 9, 9]


def test_several_turns_at_once_are_seen_by_their_loads() -> None:
    code = listing(f"BB1:; {LOADING}; {LOADING}; {LOADING}; {LOADING}; s_cbranch_scc0 BB1")
    assert weigh(Body(loops=(Loop(40, None, False, Body((LOAD,))),)), code) == [1, 10]


def test_loops_that_the_kernel_does_not_have_are_not_guessed() -> None:
    assert weigh(Body((LOAD,)), listing(f"BB1:; {LOADING}; s_cbranch_scc0 BB1")) is None


def test_what_is_rare_is_found_behind_a_branch() -> None:
    store = "buffer_store_b32 v1, v0, s[4:7], 0"
    code = listing(
        f"{LOADING}; {store}; s_cbranch_scc0 BB1; {LOADING}; {LOADING}; {store}; {store}; BB1:; "
        "s_endpgm"
    )
    body = Body((LOAD, STORE, LOAD, LOAD, STORE, STORE), rarities=(Rarity(0.01, 8, 8),))
    whole, times = weigh_stretches(body, code)
    assert times is not None
    assert [(len(s.instructions), times[s]) for s in whole.walk()] == [(4, 1), (4, 0.01)]
    # With nothing rare, all of it is run.
    assert weigh(Body((LOAD, STORE) * 3), code) == [1]


def test_a_stretch_is_split_where_it_stands() -> None:
    stretch = Stretch([3, 4, 8, 9], [classify("s_barrier")] * 4)
    made = stretch.split(4, 9)
    assert (stretch.numbers, made.numbers) == ([3, 9], [4, 8])
    assert stretch.loops == [made]
