"""The arithmetic of the benchmarks; what they time needs a C compiler and a quiet machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import dmlc
from benchmarks import against, batch_norm, contenders, gpu, gpu_kernels, gpu_scan, measure
from benchmarks.__main__ import check
from benchmarks.table import LIMIT, show_cell, show_rows, show_table, show_time
from benchmarks.task import Array, Task


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
    assert measure.sample(lambda: None, 3, iter([1.0, 7.0]).__next__) == 2
    assert measure.count_cpu_seconds() > 0
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


# On a GPU ---------------------------------------------------------------------------------------


def test_rows_say_what_was_not_timed() -> None:
    rows = {"1K": {"copy": 1e-6, "a": 2e-6, "b": 3e-6}, "1M": {"a": 1e-3}}
    assert show_rows("ReLU grad f32", rows, "copy").splitlines() == [
        "| ReLU grad f32 | copy        | a           | b           |",
        "| ------------- | ----------- | ----------- | ----------- |",
        "| 1K            | 1 us (1.00) | 2 us (2.00) | 3 us (3.00) |",
        "| 1M            | -           | 1 ms        | -           |",
    ]


def make_task() -> Task:
    return batch_norm.make_task(batch_norm.Case.make(np.float32, (4, 8, 6, 6)))


def find_dmlc() -> list[gpu.Player]:
    players, _ = gpu.find_players(allow_cpu=True)
    return [player for player in players if player.name.startswith("dmlc")]


@dataclasses.dataclass(frozen=True)
class Zeros:
    """A contender that is quick, and wrong."""

    task: Task

    def seconds(self, turns: int) -> float:
        return 1e-3 / turns

    def result(self) -> Array:
        return np.zeros_like(self.task.outputs[self.task.result])


def fail(task: Task) -> gpu.Timer:
    raise RuntimeError(f"no compiler\n  for {task.result}")


def test_everyone_who_is_right_is_timed() -> None:
    players = find_dmlc()
    assert [player.name for player in players] == ["dmlc on OpenCL", "dmlc on Vulkan"]
    others = [
        gpu.Player("broken", "here", fail),
        gpu.Player("wrong", "here", Zeros),
        gpu.Player("idle", "here", lambda task: None),
    ]
    times, problems = gpu.time_task(make_task(), [*players, *others], rounds=1)
    assert list(times) == [player.name for player in players]
    assert all(0 < seconds < 1 for seconds in times.values())
    assert problems == {"broken": "no compiler for OutputGradientTensor", "wrong": gpu.WRONG}


def test_every_benchmark_is_asked_for_once() -> None:
    operators = ["ReLU grad", "Graph", *gpu.TITLES]
    cases = gpu.list_cases(operators, ["f32", "f16"], ["1K"])
    titles = dict.fromkeys(case.title for case in cases)
    assert list(titles) == [
        "ReLU grad f32", "ReLU grad f16", "Graph f32", "Graph f16", gpu.KERNELS, gpu.SCAN
    ]  # fmt: skip
    for title, rows in zip(gpu.TITLES, (gpu_kernels.ROWS, gpu_scan.ROWS), strict=True):
        assert [case.name for case in cases if case.title == title] == list(rows)
    task = next(case for case in cases if case.title == "ReLU grad f16").make()
    assert task.moved == 3 * 2 * 1024
    task = next(case for case in cases if case.name == "BN training gradient (128, 1024)").make()
    assert set(task.inputs) == {p.name for p in task.function.parameters}
    assert task.torch is None


def test_a_product_has_a_row_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernels, "PRODUCT_GPUS", (gpu_kernels.GPU,))
    monkeypatch.setattr(gpu_kernels, "LAYOUTS", ("NT",))
    head, _, row = gpu_kernels.show_products([64]).splitlines()
    names, cells = (line.strip("| ").split(" | ") for line in (head, row))
    found = dict(zip(names, cells, strict=True))
    assert (found["product"], found["GPU"]) == ("NT 64", "gfx1100")
    assert float(found["instructions a multiply-add"]) > 1
    assert 0 < int(found["multiply-adds"].strip("%")) < 100


def test_a_row_of_the_scan_has_its_own_numbers_and_its_peer() -> None:
    asked: list[object] = []
    row = gpu_scan.Row(
        "training.EMBEDDING_GRAD",
        {
            "IndexTensor": dmlc.TensorDesc("INT32", (4096,)),
            "InputGradientTensor": dmlc.TensorDesc("FLOAT32", (4096, 3)),
            "OutputGradientTensor": dmlc.TensorDesc("FLOAT32", (700, 3)),
        },
        peer=lambda torch, tensors: asked.append((torch, tensors)) or 7,
        limits={"IndexTensor": 700},
    )
    task = gpu.make_row_task(row)
    assert 600 < task.inputs["IndexTensor"].max() < 700
    put: list[Array] = []
    assert task.torch is not None
    peer = task.torch("torch", lambda array: put.append(array) or len(put))
    assert [peer.eager(), peer.eager()] == [7, 7]
    assert asked == [("torch", {"IndexTensor": 1, "InputGradientTensor": 2})] * 2
    assert all(array is task.inputs[name] for array, name in zip(put, task.inputs, strict=True))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has OpenCL without a device, no Vulkan and no PyTorch."""

    def refuse() -> tuple[object, ...]:
        raise dmlc.UnavailableError("Vulkan is not here", notes=["install its loader"])

    monkeypatch.setattr(gpu.opencl, "devices", lambda: ())
    monkeypatch.setattr(gpu.vulkan, "devices", refuse)
    monkeypatch.setattr(gpu, "has_torch", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_nothing_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    cases = gpu.list_cases(["ReLU grad"], ["f32"], ["1K"])
    assert gpu.run(cases, 1, None, allow_cpu=False) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "PyTorch is not installed" in err
    assert "OpenCL finds no GPU, but nothing at all" in err
    assert "Vulkan is not here" in err
    assert err.endswith("there is no GPU to time kernels on; --allow-cpu tries it on a CPU\n")


def test_a_run_says_what_is_missing_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (player, _) = find_dmlc()
    broken = gpu.Player("broken", "nowhere", fail)

    def find(*, allow_cpu: bool) -> tuple[list[gpu.Player], list[str]]:
        return [player, broken], ["no Vulkan"] * allow_cpu

    monkeypatch.setattr(gpu, "find_players", find)
    case = contenders.Case.make(np.float32, 1000)
    cases = [gpu.Case("ReLU", "1000", lambda: contenders.make_task(case))]
    path = tmp_path / "times.json"
    assert gpu.run(cases, 1, str(path), allow_cpu=True) == 0
    out = capsys.readouterr().out
    assert f"dmlc on OpenCL: {player.device}\nbroken: nowhere\nmissing: no Vulkan\n" in out
    assert "| ReLU | dmlc on OpenCL |" in out
    assert "not timed: broken: no compiler for OutputGradientTensor (ReLU 1000)\n" in out
    found = json.loads(path.read_text("utf-8"))
    assert list(found["times"]["ReLU"]["1000"]) == ["dmlc on OpenCL"]
    assert found["missing"] == ["no Vulkan"]


# Two checkouts ----------------------------------------------------------------------------------


def test_rows_that_are_slower_than_in_another_checkout_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = {against.ROOT: [3e-6, 2e-6], Path("other"): [2e-6, 2e-6]}

    class Side:
        def __init__(self, checkout: Path, *chosen: object) -> None:
            self.times = taken[checkout]

        def sample(self, number: int) -> float:
            if number == 2:
                raise dmlc.DmlcError("there is no such operator")
            return self.times[number]

        def close(self) -> None:
            self.times = []

    def list_cases(*chosen: object) -> list[gpu.Case]:
        return [gpu.Case("Graph f32", name, make_task) for name in ("a", "b", "c")]

    monkeypatch.setattr(against, "Side", Side)
    monkeypatch.setattr(against, "list_cases", list_cases)
    assert against.compare(Path("other"), ["Graph"], ["f32"], ["1K"], 3) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| Graph f32, a | 2 us   | 3 us | 1.50 slower               |",
        "| Graph f32, b | 2 us   | 2 us | 1.00                      |",
        "| Graph f32, c | -      | -    | there is no such operator |",
    ]


def test_the_benchmarks_of_this_checkout_run_with_the_dmlc_of_another(tmp_path: Path) -> None:
    """The other checkout is one whose package says where it is from, and runs nothing."""
    package = tmp_path / "dmlc"
    package.mkdir()
    own = Path(dmlc.__file__).parent
    (package / "__init__.py").write_text(
        f"__path__.append({str(own)!r})\nexec(open({str(own / '__init__.py')!r}).read())\n"
        "def load_program(program):\n    from dmlc.source import DmlcError\n"
        "    raise DmlcError('from the other checkout')\n"
    )
    side = against.Side(tmp_path, ["ReLU grad"], ["f32"], ["1K"])
    with pytest.raises(dmlc.DmlcError, match="from the other checkout"):
        side.sample(0)
    side.close()
