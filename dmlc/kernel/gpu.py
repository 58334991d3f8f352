"""The body of a kernel on a GPU: a few elements per work item, a group's width apart."""

from __future__ import annotations

from collections.abc import Callable

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import View
from dmlc.kernel.emit import Emitter, add, index, local_name, multiply, operate
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError

_WORD = k.Type(DataType.UINT32)


def lower_flat(b: Builder) -> Shape:
    """Element `group * per_group + k * group_size + lane`, for each k below `per_item`; or pairs
    of elements in the same way, where a result is stored two to a word."""
    profile, walk = b.profile, b.walk
    paired = _list_paired(b)
    per_item = profile.per_item // 2 if paired else profile.per_item
    count = b.take_count() if walk.packed else index(b.count())
    row = b.limits.row
    if isinstance(walk.count, int) and not walk.packed:
        groups = -(-walk.count // profile.per_group)
        row = row if row is not None and groups > row else None
    launch = k.Launch(walk.count, profile.per_group, profile.group_size, row)
    what = f"{per_item} pairs of" if paired else f"{per_item}"
    words = f"each computes {what} elements, {profile.group_size} apart"
    emitter = Emitter(b.elements, b.names, b.depth(lambda axis: 1))
    body = emitter.lets(0, b.fixed)
    group = b.let("group", k.Position(k.Geometry.GROUP))
    start = multiply(group.local, profile.group_size * per_item)
    first = b.let("first", add(start, k.Position(k.Geometry.LANE)))
    number = k.Local(b.names.take("k"), k.INDEX)
    place = add(first.local, multiply(number, profile.group_size))
    if paired:
        steps = _compute_pair(b, emitter, place, count, paired)
    else:
        element = b.let("i", place)
        steps = (element, _compute(b, emitter, element.local, count, {}, index(0)))
    loop = k.For(number, index(0), index(per_item), 1, steps, unroll=True)
    return Shape(launch, words, [*body, group, first, loop])


def _compute(
    b: Builder,
    emitter: Emitter,
    element: k.Local,
    count: k.Expression,
    words: dict[str, k.Local],
    half: k.Expression,
) -> k.If:
    """One element, where it is one: its values, stored or put into the `words` of its results."""
    inside: list[k.Statement] = []
    position = _flat_position(b, element, inside)
    inside += emitter.lets(1, position)
    for statement in emitter.stores(position, 1, {}):
        word = words.get(statement.buffer)
        if word is not None:
            statement = k.PutHalf(word, statement.buffer, half, statement.value)
        inside.append(statement)
    return k.If(operate("lt", element, count), tuple(inside))


def _compute_pair(
    b: Builder, emitter: Emitter, place: k.Expression, count: k.Expression, paired: list[View]
) -> tuple[k.Statement, ...]:
    """Elements 2 * place and 2 * place + 1. The last word may be half empty."""
    pair = b.let("pair", place)
    words = {v.tensor: k.Local(b.names.take(f"{local_name(v.tensor)}_word"), _WORD) for v in paired}
    half = k.Local(b.names.take("side"), k.INDEX)
    element = b.let("i", add(multiply(pair.local, 2), half))
    steps = (element, _compute(b, emitter, element.local, count, words, half))
    inside = (
        *(k.Variable(word, k.Literal(_WORD, 0)) for word in words.values()),
        k.For(half, index(0), index(2), 1, steps, unroll=True),
        *(k.StoreWord(tensor, pair.local, word) for tensor, word in words.items()),
    )
    return (pair, k.If(operate("lt", multiply(pair.local, 2), count), inside))


def _list_paired(b: Builder) -> list[View]:
    """The results that are stored two to a word. Raises `UnsupportedError` where one has gaps
    between its elements: half a word cannot be stored."""
    paired = [view for view, _ in b.elements.results if view.dtype in b.limits.word_types]
    for view in paired:
        if not b.walk.packed and b.walk.strides[view] != ir.packed_strides(b.sizes()):
            raise UnsupportedError(
                f"'{view.tensor}' is {view.dtype.name} with strides, and without 16-bit types "
                "kernels store two elements at a time",
                notes=["store it packed, or compile for shader model 6.2"],
            )
    return paired


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
