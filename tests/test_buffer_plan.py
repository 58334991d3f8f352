"""The plan of memory between kernels: apart in time may be together in memory, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmlc import ir
from dmlc.buffer_plan import ALIGNMENT, Need, Occupants, plan_buffers
from dmlc.codegen.hlsl import HLSL_6_2
from dmlc.codegen.opencl import OPENCL
from dmlc.codegen.render import render
from dmlc.kernel.target import CPU, GPU
from dmlc.lowering.group import lower_group
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import fuse


def test_what_is_never_needed_together_shares_memory() -> None:
    needs = [Need("a", 1000, 0, 1), Need("b", 500, 1, 2), Need("c", 900, 2, 3)]
    assert plan_buffers(needs) == {"a": 0, "b": 1024, "c": 0}


def test_gaps_are_filled_by_what_fits_them() -> None:
    needs = [Need("a", 300, 0, 1), Need("b", 10, 0, 9), Need("c", 600, 2, 9), Need("d", 1, 2, 9)]
    assert plan_buffers(needs) == {"a": 0, "b": 512, "c": 768, "d": 0}


def test_what_dies_there_may_be_stored_over_if_it_is_as_large() -> None:
    first = Need("a", 4096, 0, 1)
    assert plan_buffers([first, Need("b", 4096, 1, 2, "a")]) == {"a": 0, "b": 0}
    assert plan_buffers([first, Need("b", 2048, 1, 2, "a")]) == {"a": 0, "b": 4096}
    assert plan_buffers([Need("a", 8, 0, 3), Need("b", 8, 1, 2, "a")]) == {"a": 0, "b": 256}


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 12), st.integers(0, 6)), max_size=30)
)
def test_what_is_needed_together_is_apart(drawn: list[tuple[int, int, int]]) -> None:
    needs = [Need(str(n), size, at, at + more) for n, (size, at, more) in enumerate(drawn)]
    offsets = plan_buffers(needs)
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())
    for one in needs:
        for other in needs:
            together = one.first <= other.last and other.first <= one.last
            if one is not other and together and one.bytes and other.bytes:
                start, end = offsets[one.name], offsets[one.name] + one.bytes
                theirs = offsets[other.name]
                assert end <= theirs or theirs + other.bytes <= start


def test_a_stage_lies_over_the_one_it_alone_reads_where_a_buffer_may_be_both() -> None:
    function = ir.parse("""func @f(%X: f32[4000]) -> (%Y) {
      %a: f32[i0 < 4000] = exp(%X[i0])
      %b: f32[i0 < 4000] = exp(%a[i0])
      %c: f32[i0 < 4000] = exp(%b[i0])
      %Y: f32[i0 < 4000] = exp(%c[i0])
    }""")
    fusion = fuse(function, budget=Budget(most_instructions=2))
    assert [g.stages for g in fusion.groups] == [("a",), ("b",), ("c",), ("Y",)]
    for dialect, profile, peak in ((OPENCL, CPU, 16000), (HLSL_6_2, GPU, 32128)):
        kernels = tuple(
            kernel
            for group in fusion.groups
            for kernel in lower_group(fusion.function, group, profile, dialect.limits)
        )
        program = render(fusion.function, kernels, dialect, profile)
        assert [t.lifetime for t in program.scratch] == [(0, 1), (1, 2), (2, 3)]
        assert program.scratch_bytes == peak
    # In HLSL the third lies where the first does, which the second kernel reads.
    assert [kernel.after for kernel in program.kernels] == [(), (0,), (0, 1), (2,)]


def test_kernels_wait_for_those_that_last_used_their_memory() -> None:
    occupants = Occupants()
    assert occupants.replace("a", 0, 100) == []
    assert occupants.replace("b", 256, 100) == []
    assert occupants.replace("empty", 256, 0) == []
    # It takes the middle of one, whose rest stays.
    assert occupants.replace("c", 20, 30) == ["a"]
    assert occupants.replace("d", 0, 300) == ["a", "b", "c"]
    assert occupants.replace("e", 20, 30) == ["d"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_whoever_had_a_byte_before_is_waited_for(drawn: list[tuple[int, int]]) -> None:
    occupants = Occupants()
    waits: dict[str, set[str]] = {}
    taken: list[tuple[int, int, str]] = []
    for number, (start, size) in enumerate(drawn):
        gone = occupants.replace(str(number), start, size)
        waits[str(number)] = set(gone).union(*(waits[name] for name in gone))
        before = {n for s, e, n in taken if s < start + size and start < e and size and s < e}
        assert before <= waits[str(number)]
        taken.append((start, start + size, str(number)))
