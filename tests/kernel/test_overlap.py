"""Two loop nests as one."""

from __future__ import annotations

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import index, operate
from dmlc.lowering.loop_fusion import fuse_loops
from dmlc.scalars import DataType

VALUE = k.Type(DataType.FLOAT32)


def local(name: str) -> k.Local:
    return k.Local(name, k.INDEX)


def put(array: str, place: k.Expression) -> k.StoreLocal:
    return k.StoreLocal(array, place, k.Literal(VALUE, 1.0))


def loop(name: str, stop: int, *body: k.Statement, backwards: bool = False) -> k.For:
    return k.For(local(name), index(0), index(stop), 1, body, backwards=backwards)


def test_loops_become_one_over_the_second_variable() -> None:
    place = operate("add", local("i"), index(4))
    made = fuse_loops([loop("i", 8, put("a", place))], [loop("j", 8, put("b", local("j")))])
    moved = operate("add", local("j"), index(4))
    assert made == [loop("j", 8, put("a", moved), put("b", local("j")))]


def test_one_that_runs_backwards_counts_down() -> None:
    first = loop("i", 8, put("a", local("i")), backwards=True)
    made = fuse_loops([first], [loop("j", 8, put("b", local("j")))])
    down = k.Let(local("i"), operate("sub", index(7), local("j")))
    assert made == [loop("j", 8, down, put("a", local("i")), put("b", local("j")))]


def test_loops_inside_and_what_is_around_them() -> None:
    first = [put("a", index(0)), loop("n", 3, loop("i", 8, put("a", local("i"))))]
    second = [
        put("b", index(0)),
        loop("m", 3, loop("j", 8, put("b", local("j"))), put("b", index(1))),
    ]
    made = fuse_loops(first, second)
    inner = loop("j", 8, put("a", local("j")), put("b", local("j")))
    assert made == [put("a", index(0)), put("b", index(0)), loop("m", 3, inner, put("b", index(1)))]


def test_loops_that_do_not_pair_up() -> None:
    ours = loop("i", 8, put("a", local("i")))
    assert fuse_loops([ours], []) is None
    assert fuse_loops([ours], [loop("j", 9, put("b", local("j")))]) is None
    assert fuse_loops([ours], [loop("j", 8, put("b", local("j")), backwards=True)]) is None
    open_end = k.For(local("i"), index(0), local("n"), 1, (), backwards=True)
    assert fuse_loops([open_end], [k.For(local("j"), index(0), local("n"), 1, ())]) is None
    nested = loop("n", 3, ours)
    assert fuse_loops([nested], [loop("m", 3, put("b", local("m")))]) is None
