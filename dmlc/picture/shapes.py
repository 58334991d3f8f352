"""What is drawn: lines of text, rectangles with text in them, and links; and those that stand for
a tensor. Colours and fonts are the template's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.picture.diagram import Tensor, Transfer
from dmlc.picture.layered import Point
from dmlc.picture.lettering import measure, show_bytes, show_sizes, wrap_name

NAME, SMALL, CODE = 12.5, 11.0, 10.5
"""Font sizes: of names, of remarks and of formulas."""

LINE = 14.0
"""From one line of text to the next."""

PAD = 9.0
"""Between a rectangle's side and its text."""

_NAME_LONGEST, _TAG_LONGEST = 30, 22
_CORNERS = {"input": 16.0, "output": 16.0, "constant": 16.0, "again": 9.5, "kernel": 10.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of text: its baseline's start or middle, and the style the template gives it."""

    x: float
    y: float
    text: str
    style: str


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle with text in it: an input, an output, a stage, a tag or a frame."""

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[Line, ...]
    note: str = ""
    """What a pointer that rests on it is told."""
    stripe: str = ""
    """The style of a stripe along its left side; none without."""
    key: str = ""
    """What it stands for, for a page that tells more: `stage NAME` or `kernel LABEL`."""
    home: str = ""
    """The label of the kernel that it is in."""

    @property
    def corner(self) -> float:
        """The radius of its corners."""
        return _CORNERS.get(self.style.split()[0], 5.0)

    def moved(self, x: float, y: float) -> Shape:
        lines = tuple(dataclasses.replace(n, x=n.x + x, y=n.y + y) for n in self.lines)
        return dataclasses.replace(self, x=self.x + x, y=self.y + y, lines=lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """A link: the points of its route (see `layered`), its style, and how thick it is."""

    points: tuple[Point, ...]
    style: str
    thickness: float
    note: str = ""

    def moved(self, x: float, y: float) -> Curve:
        return dataclasses.replace(self, points=tuple((a + x, b + y) for a, b in self.points))


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn, later things over earlier ones, in a plane of this size."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    curves: tuple[Curve, ...]

    def moved(self, x: float, y: float) -> Drawing:
        return dataclasses.replace(
            self,
            shapes=tuple(s.moved(x, y) for s in self.shapes),
            curves=tuple(c.moved(x, y) for c in self.curves),
        )


def draw_tensor(tensor: Tensor, style: str) -> Shape:
    """A tensor outside kernels, with its type and sizes."""
    sizes = show_sizes(tensor.sizes)
    size = show_bytes(tensor.bytes) if tensor.bytes is not None else tensor.open_bytes
    note = f"{style} {tensor.name}: {tensor.dtype} {sizes}, {size}"
    return draw_pill(tensor.name, (tensor.dtype, sizes), style, note)


def draw_pill(tensor: str, about: Sequence[str], style: str, note: str = "") -> Shape:
    """A tensor outside kernels: its name and lines about it."""
    names = wrap_name(tensor, _NAME_LONGEST)
    about = [part for line in about for part in wrap_name(line, _NAME_LONGEST + 4)]
    width = 2 * PAD + max(
        *(measure(name, NAME, bold=True) for name in names),
        *(measure(line, CODE, code=True) for line in about),
    )
    lines = [Line(width / 2, 17 + LINE * at, name, "name middle") for at, name in enumerate(names)]
    y = 18.5 + LINE * (len(names) - 1)
    lines += [
        Line(width / 2, y + 12.5 * at, text, "code muted middle")
        for at, text in enumerate(about, 1)
    ]
    height = 28 + LINE * (len(names) - 1) + 12.5 * len(about)
    return Shape(0, 0, width, height, style, tuple(lines), note)


def draw_tag(transfer: Transfer, kind: str, *, heavy: bool, ends: str = "") -> Shape:
    """A tensor that a kernel reads or writes: its name, its bytes, and where it comes from or goes
    to where no line shows that."""
    names = wrap_name(transfer.tensor, _TAG_LONGEST)
    sizes = wrap_name(transfer.text, _TAG_LONGEST)
    texts = [(name, "small middle") for name in names]
    texts += [(size, "small strong middle") for size in sizes]
    texts += [(part, "small muted middle") for part in wrap_name(ends, _TAG_LONGEST) if ends]
    width = 14 + max(measure(text, SMALL, bold="strong" in style) for text, style in texts)
    lines = [Line(width / 2, 13.5 * at, *text) for at, text in enumerate(texts, 1)]
    verb = "reads" if kind == "read" else "writes"
    note = f"{verb} {transfer.tensor}: {transfer.text}"
    if ends:
        note += f", {ends}"
    style = f"{kind} heavy" if heavy else kind
    height = 13.5 * len(texts) + 6
    return Shape(0, 0, width, height, style, tuple(lines), note)


def draw_copy(name: str) -> Shape:
    """A value's name, above a stage that reads it far from where it is computed."""
    names = wrap_name(name, _TAG_LONGEST)
    width = max(measure(text, SMALL) for text in names) + 14
    lines = tuple(Line(width / 2, 13.5 * at, n, "small middle") for at, n in enumerate(names, 1))
    return Shape(0, 0, width, 5.5 + 13.5 * len(names), "again", lines, key=f"stage {name}")
