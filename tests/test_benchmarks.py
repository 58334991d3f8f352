"""The arithmetic of the benchmarks; what they time needs a C compiler and a quiet machine."""

from __future__ import annotations

from benchmarks import measure
from benchmarks.__main__ import LIMIT, check, show_cell, show_table, show_time


def test_times_are_shown_with_their_unit_and_ratio() -> None:
    assert show_time(1.5e-6) == "1.5 us"
    assert show_time(0.0123) == "12.3 ms"
    assert show_time(2.0) == "2 s"
    assert show_cell(3e-6, 2e-6) == "3 us (1.50)"
    assert show_cell(3e-5, 2e-6) == "30 us (15)"


def test_the_table_is_markdown() -> None:
    columns = {"1K": {LIMIT: 1e-6, "dmlc": 2e-6}, "1M": {LIMIT: 1e-3, "dmlc": 1.1e-3}}
    assert show_table("ReLU grad f32", columns).splitlines() == [
        "| ReLU grad f32   | 1K          | 1M            |",
        "| --------------- | ----------- | ------------- |",
        "| machine's limit | 1 us (1.00) | 1 ms (1.00)   |",
        "| dmlc            | 2 us (2.00) | 1.1 ms (1.10) |",
    ]


def test_medians_are_taken_in_an_order_that_changes() -> None:
    order: list[str] = []
    times = {name: iter([1.0, 9.0, 2.0] * 10) for name in "abcd"}

    def sampler(name: str) -> float:
        order.append(name)
        return next(times[name])

    found = measure.measure({n: lambda n=n: sampler(n) for n in times}, rounds=30)
    assert found == dict.fromkeys("abcd", 2.0)
    rounds = [order[k : k + 4] for k in range(0, 120, 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    before_a = {turn[turn.index("a") - 1] for turn in rounds if turn[0] != "a"}
    assert before_a == {"b", "c", "d"}


def test_a_sample_is_the_mean_of_its_repeats() -> None:
    calls: list[int] = []
    assert measure.repeats_for(lambda: calls.append(1)) > 1
    calls.clear()
    assert 0 <= measure.sample(lambda: calls.append(1), 3) < 1
    assert len(calls) == 4


def test_targets_are_checked_where_they_were_measured() -> None:
    large = {LIMIT: 1.0, "dmlc bound call": 1.2, "PyTorch eager, out=": 1.5}
    small = {
        LIMIT: 0.1, "dmlc bound call": 3.0, "dmlc executable, out=": 9.0, "PyTorch eager, out=": 2.0
    }  # fmt: skip
    times = {"ReLU f32": {"1K": small, "16M": large}, "ReLU f16": {"1K": small}}
    found = check(times, {"dmlc --help": 0.1})
    missed = [what for what, figure, most in found if figure > most]
    assert [what for what, _, _ in found] == [
        "ReLU f32 16M: bound call / limit",
        "ReLU f32 16M: bound call / PyTorch out=",
        "ReLU f32 1K: bound call / PyTorch out=",
        "ReLU f32 1K: executable / PyTorch out=",
        "dmlc --help, seconds",
    ]
    assert missed == ["ReLU f32 16M: bound call / limit", "ReLU f32 1K: executable / PyTorch out="]


def test_targets_of_batch_normalization() -> None:
    large = {LIMIT: 1.0, "dmlc bound call": 1.7, "PyTorch eager": 3.0, "torch.compile": 4.0}
    small = {LIMIT: 1.0, "dmlc bound call": 2.0, "PyTorch eager": 3.0, "torch.compile": 2.5}
    found = check({"BN f32": {"(32, 64, 56, 56)": large, "(128, 1024)": small}}, {})
    assert found == [
        ("BN f32 (32, 64, 56, 56): bound call / limit", 1.7, 1.8),
        ("BN f32 (32, 64, 56, 56): bound call / best of PyTorch", 1.7 / 3, 0.5),
        ("BN f32 (128, 1024): bound call / best of PyTorch", 0.8, 1.0),
    ]


def test_targets_of_resampling() -> None:
    times = {LIMIT: 1.0, "dmlc bound call": 2.0, "PyTorch eager": 10.0}
    found = check({"Resampling f16": {"bilinear 84->56": times, "nearest 84->56": times}}, {})
    assert found == [
        ("Resampling f16 bilinear 84->56: bound call / limit", 2.0, 3.0),
        ("Resampling f16 bilinear 84->56: bound call / PyTorch eager", 0.2, 0.25),
        ("Resampling f16 nearest 84->56: bound call / limit", 2.0, 1.6),
        ("Resampling f16 nearest 84->56: bound call / PyTorch eager", 0.2, 0.5),
    ]
