"""Elements of a drawing: lines of text, rectangles with text, and links; and those for a tensor.
Colours and fonts are the template's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.picture.diagram import Tensor, Transfer
from dmlc.picture.layered import Point
from dmlc.picture.lettering import measure, show_bytes, show_sizes, wrap_name

NAME, SMALL, CODE = 12.5, 11.0, 10.5
"""Font sizes of names, of remarks and of formulas."""

LINE = 14.0
"""Line height."""

PAD = 9.0
"""Padding between a rectangle's side and its text."""

_NAME_LONGEST, _TAG_LONGEST = 30, 22
_CORNERS = {"input": 16.0, "output": 16.0, "constant": 16.0, "again": 9.5, "kernel": 10.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Line of text: the start or middle of its baseline, and its style in the template."""

    x: float
    y: float
    text: str
    style: str

    def moved(self, x: float, y: float) -> Line:
        return dataclasses.replace(self, x=self.x + x, y=self.y + y)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Rectangle with text in it: an input, an output, a stage, a tag or a frame."""

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[Line, ...]
    note: str = ""
    """Tooltip."""
    stripe: str = ""
    """Style of a stripe along its left side; empty for none."""
    key: str = ""
    """Key of its details on a page: `stage NAME` or `kernel LABEL`."""
    home: str = ""
    """Label of the kernel that it is in."""

    @property
    def corner(self) -> float:
        """Radius of its corners."""
        return _CORNERS.get(self.style.split()[0], 5.0)

    def moved(self, x: float, y: float) -> Shape:
        lines = tuple(line.moved(x, y) for line in self.lines)
        return dataclasses.replace(self, x=self.x + x, y=self.y + y, lines=lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """Link: the points of its route (see `layered`), its style, and its line width."""

    points: tuple[Point, ...]
    style: str
    thickness: float
    note: str = ""

    def moved(self, x: float, y: float) -> Curve:
        return dataclasses.replace(self, points=tuple(Point(a + x, b + y) for a, b in self.points))


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes and curves in painting order, in a plane of this size."""

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
    """Tensor outside kernels, with its type and sizes."""
    sizes = show_sizes(tensor.sizes)
    size = show_bytes(tensor.bytes) if tensor.bytes is not None else tensor.open_bytes
    note = f"{style} {tensor.name}: {tensor.dtype} {sizes}, {size}"
    return draw_pill(tensor.name, (tensor.dtype, sizes), style, note)


def draw_pill(tensor: str, about: Sequence[str], style: str, note: str = "") -> Shape:
    """Tensor outside kernels: its name and lines about it."""
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
    """Tensor that a kernel reads or writes: its name, its bytes, and its source or destination if
    no link shows it."""
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
    """Name of a value, above a stage that reads it far from where it is computed."""
    names = wrap_name(name, _TAG_LONGEST)
    width = max(measure(text, SMALL) for text in names) + 14
    lines = tuple(Line(width / 2, 13.5 * at, n, "small middle") for at, n in enumerate(names, 1))
    return Shape(0, 0, width, 5.5 + 13.5 * len(names), "again", lines, key=f"stage {name}")
