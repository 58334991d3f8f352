"""The body of a kernel on a GPU: a few elements per work item, a group's width apart."""

from __future__ import annotations

from collections.abc import Callable

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import View
from dmlc.kernel.emit import Emitter, add, index, multiply, operate


def lower_flat(b: Builder) -> Shape:
    """Element `group * per_group + k * group_size + lane`, for each k below `per_item`."""
    profile, walk = b.profile, b.walk
    count = b.take_count() if walk.packed else index(b.count())
    row = b.limits.row
    if isinstance(walk.count, int) and not walk.packed:
        groups = -(-walk.count // profile.per_group)
        row = row if row is not None and groups > row else None
    launch = k.Launch(walk.count, profile.per_group, profile.group_size, row)
    words = f"each computes {profile.per_item} elements, {profile.group_size} apart"
    emitter = Emitter(b.elements, b.names, b.depth(lambda axis: 1))
    body = emitter.lets(0, b.fixed)
    group = b.let("group", k.Position(k.Geometry.GROUP))
    start = multiply(group.local, profile.per_group)
    first = b.let("first", add(start, k.Position(k.Geometry.LANE)))
    number = k.Local(b.names.take("k"), k.INDEX)
    element = b.let("i", add(first.local, multiply(number, profile.group_size)))
    inside: list[k.Statement] = []
    position = _flat_position(b, element.local, inside)
    inside += emitter.lets(1, position)
    inside += emitter.stores(position, 1, {})
    guard = k.If(operate("lt", element.local, count), tuple(inside))
    loop = k.For(number, index(0), index(profile.per_item), 1, (element, guard), unroll=True)
    return Shape(launch, words, [*body, group, first, loop])


def _flat_position(
    b: Builder, element: k.Local, statements: list[k.Statement]
) -> Callable[[View], k.Expression]:
    """Positions from the element's number; `statements` takes the decomposition they need."""
    if len(b.walk.sizes) == 1:
        return b.at({0: element})
    sizes = b.sizes()
    packed = ir.packed_strides(sizes)
    strided = [s for s in b.walk.strides.values() if s != packed]
    needed = {axis for axis in range(len(sizes)) if any(s[axis] for s in strided)}
    known: dict[int, k.Expression] = {}
    statements += b.decompose(element, list(enumerate(sizes)), known, needed)
    at = b.at(known)

    def position(view: View) -> k.Expression:
        if b.walk.strides[view] == packed:
            return add(element, index(view.offset))
        return at(view)

    return position
