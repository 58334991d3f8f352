"""`python -m tests.onnx.mutate --count N --seed S`: mutants of ONNX models, which are imported or
refused in words.

A mutant is a small valid model of which a few fields of its messages are changed: dimensions,
attributes, names, types, bytes. What raises anything but `DmlcError`, takes longer or more memory
than `tests.fuzz.hostile` allows, or ends the process, is a finding. What a mutant means, nobody
knows: functions are not looked at. Mutants are drawn from the seed and their number, so that
`--first` makes a single one again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import multiprocessing
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dmlc
from dmlc.source import DmlcError
from tests.fuzz import hostile
from tests.fuzz.check import Finding
from tests.onnx.node_cases import as_array, collect, list_modules

SAMPLE = (
    "averagepool", "cast", "clip", "concat", "conv", "convtranspose", "einsum", "gather", "gemm",
    "hannwindow",
    "if_", "loop", "lstm", "onehot", "pad", "reducemean", "reshape", "resize", "scan", "slice",
    "split", "tile", "topk",
)  # fmt: skip
"""The modules of ONNX's node tests whose models are mutated in the suite."""

KIND = "hostile onnx"
CHUNK = 20
"""Mutants to a process."""
EVERY = 1.0
"""Seconds from one line of progress to the next."""
HANGS = 100.0
"""The most seconds that these may take together."""
LARGEST = 8 << 30
"""The most bytes that a process may address."""

# Models ----------------------------------------------------------------------------------------


def _make_network() -> onnx.ModelProto:
    """Layers with weights, open sizes and shapes that are computed."""
    source = np.random.default_rng(1)
    weights = {
        "w": source.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": source.normal(size=4).astype(np.float32),
        "flat": np.array([0, -1], np.int64),
        "one": np.array([1], np.int64),
        "m": source.normal(size=(64, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["p"]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("ConstantOfShape", ["n"], ["z"]),
        helper.make_node("Add", ["p", "z"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, 8, 8]),
         helper.make_tensor_value_info("unread", onnx.TensorProto.FLOAT, ["batch*2", "n", "n"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _make_nested() -> onnx.ModelProto:
    """Functions that call functions, in a loop, and constants that are computed."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    value = helper.make_node("Constant", [], ["k"])
    value.attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="scale",
                                               type=onnx.AttributeProto.FLOAT))  # fmt: skip
    inner = helper.make_function(
        "own", "inner", ["a"], ["b"],
        [value, helper.make_node("Mul", ["a", "k"], ["b"])], opsets, ["scale"],
    )  # fmt: skip
    outer = helper.make_function(
        "own", "outer", ["a"], ["b"],
        [helper.make_node("inner", ["a"], ["h"], domain="own", scale=0.5),
         helper.make_node("inner", ["h"], ["b"], domain="own", scale=2.0)], opsets,
    )  # fmt: skip
    value_info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("outer", ["v"], ["w"], domain="own"),
         helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [value_info("i", onnx.TensorProto.INT64, []), value_info("go", onnx.TensorProto.BOOL, []),
         value_info("v", onnx.TensorProto.FLOAT, [3])],
        [value_info("on", onnx.TensorProto.BOOL, []),
         value_info("w", onnx.TensorProto.FLOAT, [3])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Range", ["zero", "three", "step"], ["r"]),
        helper.make_node("Cast", ["r"], ["rf"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Tile", ["rf", "times"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["s"]),
        helper.make_node("Loop", ["three", "", "s"], ["y"], body=body),
    ]
    held = {
        "zero": np.array(0), "three": np.array(3), "step": np.array(1),
        "times": np.array([1]), "text": np.array(["a", "b"], object),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "nested", [value_info("x", onnx.TensorProto.FLOAT, [3])],
        [value_info("y", onnx.TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[outer, inner])


def _fix_inputs(model: onnx.ModelProto, names: Sequence[str], given: Any) -> onnx.ModelProto:
    """A model with some of its inputs as constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [i for i in model.graph.input if i.name not in names]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    for name in names:
        made.graph.initializer.append(numpy_helper.from_array(as_array(given[name]), name))
    return made


def make_models(modules: Sequence[str]) -> list[bytes]:
    """Valid models: those of ONNX's node tests, with constants for what has to be known; where
    they have no more than one node, also with constants alone. Two larger ones are ours."""
    made = [_make_network(), _make_nested()]
    for case in collect(modules).values():
        names = [i.name for i in case.model.graph.input]
        given = dict(zip(names, case.data_sets[0][0], strict=False))
        fixed: list[str] = []
        while True:
            model = _fix_inputs(case.model, fixed, given)
            try:
                dmlc.onnx.load(model)
            except dmlc.onnx.UnknownValueError as error:
                new = [name for name in error.names if name not in fixed]
                if not new:
                    break
                fixed += new
            except DmlcError:
                break
            else:
                made.append(model)
                break
        if len(case.model.graph.node) == 1 and all(_is_array(value) for value in given.values()):
            whole = _fix_inputs(case.model, names, given)
            with contextlib.suppress(DmlcError):
                dmlc.onnx.load(whole)
                made.append(whole)
    return [model.SerializeToString() for model in made if model.ByteSize() < 1 << 16]


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic | onnx.TensorProto)


# Mutants ---------------------------------------------------------------------------------------

_INTEGERS = (
    0, -1, 1, 2, 3, 5, 7, 16, 64, 255, 1000, 65536, 10**6, 10**9, 2**31 - 1, 2**31, 10**12, 2**40,
    2**62, 2**63 - 1, -2, -7, -(2**31), -(2**63),
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("nan"), float("inf"), float("-inf"))
_TEXTS = (
    "", "a*b", "N", "n + 1", "2*n - 7", "(" * 300, "(" * 40 + "n" + ")" * 40, "9" * 5000, "0", "-1",
    "n / 0", "n // 2", "__", "é\u202e\x1b[2J", "if_", "x" * 3000, "batch", "LEFT", "SAME_UPPER",
    "ai.onnx.ml", "a, b", "ij,jk->ik", "...->", "cubic", "reflect",
)  # fmt: skip
_BAD_TEXT = b"\xff\xfe\xfd"


@functools.cache
def _list_operators() -> list[str]:
    schemas: Sequence[Any] = onnx.defs.get_all_schemas()
    return sorted({schema.name for schema in schemas})


Slot = tuple[Any, Any]
"""A message, and one of its fields."""


def _walk(message: Any) -> Iterator[Slot]:
    """The fields of a message that are set, and those of the messages in it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for each in value if _is_repeated(field) else [value]:
                yield from _walk(each)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change_value(field: Any, value: Any, same: Sequence[Any], source: random.Random) -> Any:
    """Another value for a field that is no message. `same` are those that the model has in such
    fields."""
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return source.choice([*_FLOATS, -value, value * 1e6])
    if field.type == field.TYPE_STRING:
        taken = [text for text in same if isinstance(text, str)]
        other = source.choice([*_TEXTS, *taken, *_list_operators()[:: source.randrange(1, 40)]])
        return source.choice([other, *([source.choice(taken)] if taken else [])])
    if field.type == field.TYPE_BYTES:
        at = source.randrange(len(value) + 1)
        extra = source.choice([b"", b"\0", b"\xff", _BAD_TEXT, *(t.encode() for t in _TEXTS[:8])])
        return source.choice([value[:at], value[:at] + extra + value[at:], extra, value * 2,
                              value[:at] + extra + value[at + len(extra) :]])  # fmt: skip
    if field.type == field.TYPE_ENUM:
        return source.choice(list(field.enum_type.values_by_number))
    number = source.choice([*_INTEGERS, value + 1, value - 1, -value, value * 2, *same])
    if field.type in (field.TYPE_INT32,):
        return (number + 2**31) % 2**32 - 2**31
    if field.type in (field.TYPE_UINT64,):
        return number % 2**64
    return (number + 2**63) % 2**64 - 2**63


def _change(slot: Slot, slots: Sequence[Slot], source: random.Random) -> None:
    message, field = slot
    value = getattr(message, field.name)
    alike = [
        each
        for m, f in slots
        if f.type == field.type and f.type != f.TYPE_MESSAGE
        for each in (getattr(m, f.name) if _is_repeated(f) else [getattr(m, f.name)])
    ]
    if field.type == field.TYPE_MESSAGE:
        kind = field.message_type
        others = [
            each
            for m, f in slots
            if f.type == f.TYPE_MESSAGE and f.message_type is kind
            for each in (getattr(m, f.name) if _is_repeated(f) else [getattr(m, f.name)])
        ]
        other = type(others[0])()
        other.CopyFrom(source.choice(others))
        if not _is_repeated(field):
            message.ClearField(field.name)
            if source.random() < 0.7:
                value.CopyFrom(other)
            return
        place = source.randrange(len(value))
        match source.randrange(4):
            case 0:
                del value[place]
            case 1:
                value.append(other)
            case 2:
                value[place].CopyFrom(other)
            case _:
                value.append(type(other)())
        return
    if not _is_repeated(field):
        if source.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _change_value(field, value, alike, source))
        return
    place = source.randrange(len(value))
    match source.randrange(6):
        case 0:
            del value[place]
        case 1:
            value.append(_change_value(field, value[place], alike, source))
        case 2:
            del value[:]
        case _:
            value[place] = _change_value(field, value[place], alike, source)


def _add_attribute(node: Any, source: random.Random) -> None:
    """An attribute that an operator of this name has, with some value."""
    schemas: Sequence[Any] = [s for s in onnx.defs.get_all_schemas_with_history()
                              if s.name == node.op_type]  # fmt: skip
    names = [(name, a.type) for s in schemas for name, a in s.attributes.items()]
    if not names:
        return
    name, kind = source.choice(names)
    made = node.attribute.add(name=name, type=int(kind.value))
    integers = [source.choice(_INTEGERS) for _ in range(source.choice([1, 2, 3, 4, 6]))]
    made.i = integers[0]
    made.f = source.choice(_FLOATS)
    made.s = source.choice([*_TEXTS, "linear"]).encode()
    made.ints.extend(integers)
    made.floats.extend(source.choice(_FLOATS) for _ in integers)


def mutate_model(content: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """A model with a few fields changed, or with texts that are no UTF-8."""
    model = onnx.ModelProto.FromString(content)
    for _ in range(source.choice([1, 1, 1, 2, 2, 3, 5])):
        slots = list(_walk(model))
        if not slots:
            break
        if source.random() < 0.1 and model.graph.node:
            _add_attribute(source.choice(list(model.graph.node)), source)
        else:
            _change(source.choice(slots), slots, source)
    made = model.SerializeToString()
    if source.random() < 0.03:
        names = [v for m, f in _walk(model) if f.type == f.TYPE_STRING
                 for v in (getattr(m, f.name) if _is_repeated(f) else [getattr(m, f.name)])
                 if v]  # fmt: skip
        if names:
            text = source.choice(names).encode("utf-8", "surrogateescape")
            made = made.replace(text, (_BAD_TEXT * len(text))[: len(text)])
    return made


def make_mutant(seed: int, number: int, models: Sequence[bytes]) -> bytes:
    source = random.Random(f"{seed} {number}")
    return mutate_model(source.choice(models), models, source)


# Runs ------------------------------------------------------------------------------------------


def _work(
    connection: Connection, numbers: Sequence[int], seed: int, models: Sequence[bytes],
    now: Any,
) -> None:  # fmt: skip
    """Imports some mutants in a process of its own, and sends what is found."""
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    ran: Counter[str] = Counter()
    found: list[tuple[int, str, str]] = []
    for number in numbers:
        now.value = number
        try:
            hostile.look(KIND, make_mutant(seed, number, models), ran)
        except Finding as finding:
            found.append((number, finding.kind, str(finding)))
    connection.send((ran, found))


def _try(numbers: Sequence[int], seed: int, models: Sequence[bytes]) -> tuple[Counter[str], Any]:
    """What some mutants come to. One that ends the process is a finding as others are, and those
    behind it are tried in another one."""
    context = multiprocessing.get_context("fork")
    now = context.Value("q", numbers[0])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, numbers, seed, models, now))
    process.start()
    sender.close()
    try:
        found = receiver.recv() if receiver.poll(HANGS) else None
    except EOFError:
        found = None
    if found is None:
        process.kill()
    process.join()
    if found is not None:
        return found
    # What was found before is found again by those that are tried once more.
    place = numbers.index(now.value)
    ran, found = _try(numbers[:place], seed, models) if place else (Counter(), [])
    died = [(now.value, f"{KIND}: the process ended or hung", f"status {process.exitcode}")]
    rest = numbers[place + 1 :]
    more, others = _try(rest, seed, models) if rest else (Counter(), [])
    return ran + more, [*found, *died, *others]


def _list_shares(numbers: range) -> list[range]:
    """The numbers of the mutants of each process."""
    return [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]


def _try_all(
    numbers: range, seed: int, models: Sequence[bytes], jobs: int
) -> Iterator[tuple[Counter[str], list[tuple[int, str, str]]]]:
    """What all mutants come to, a share of them at a time, on so many processes."""
    context = multiprocessing.get_context("fork")
    shares = iter(_list_shares(numbers))
    with ProcessPoolExecutor(jobs, context, _keep_models, (models,)) as pool:
        running = {pool.submit(_try_share, n, seed) for n in itertools.islice(shares, jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            following = itertools.islice(shares, len(done))
            running |= {pool.submit(_try_share, n, seed) for n in following}
            yield from (each.result() for each in done)


_kept: list[Sequence[bytes]] = []
"""The models of a process, which takes them over from the one that started it."""


def _keep_models(models: Sequence[bytes]) -> None:
    _kept[:] = [models]


def _try_share(numbers: Sequence[int], seed: int) -> tuple[Counter[str], Any]:
    return _try(numbers, seed, _kept[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--sample", action="store_true", help="the models of the suite alone")
    parser.add_argument("--save", metavar="DIR", help="keep a mutant of each finding")
    options = parser.parse_args()
    models = make_models(SAMPLE if options.sample else list_modules())
    ran: Counter[str] = Counter()
    kinds: dict[str, list[int]] = {}
    numbers = range(options.first, options.first + options.count)
    told = time.monotonic()
    for counts, found in _try_all(numbers, options.seed, models, options.jobs):
        ran += counts
        for number, kind, text in found:
            if kind not in kinds:
                print(
                    f"\n=== seed {options.seed}, --first {number}: {kind}\n{text[:400]}", flush=True
                )
                if options.save:
                    path = Path(options.save) / f"{options.seed}_{number}.onnx"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(make_mutant(options.seed, number, models))
            kinds.setdefault(kind, []).append(number)
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            failed = sum(map(len, kinds.values()))
            done = f"{sum(ran.values()) + failed:,} of {len(numbers):,} mutants"
            print(f"seed {options.seed}: {done}, {failed} findings", file=sys.stderr, flush=True)
    print(f"{sum(ran.values()):,} mutants of {len(models):,} models: {dict(ran)}")
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"  {len(found):,} x {kind}: {found[:3]}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
