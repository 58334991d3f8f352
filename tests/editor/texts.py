"""Texts with a mark, `@`, where a question is about."""

from __future__ import annotations

from pathlib import Path

from dmlc.editor.complete import Completion, complete
from dmlc.editor.documents import Document, Session

OPERATOR = """\
module m

enum MODE { NEAREST = 0, LINEAR = 1 }

// A tent over the origin.
function hat(x) = max(0, 1 - abs(x))

operator SCALE {
    "Scales and adds."
    attributes {
        | Attribute | Type   | Default | Values   |
        | Mode      | MODE   | LINEAR  |          |
        | Format    | string | "NCX"   | NCX, NXC |
        | Factor    | FLOAT  |         |          |
    }
    tensors {
        | Tensor | Kind           | Dimensions   | Supported data types |
        | A      | Input          | { N, C }     | FLOAT32, FLOAT16     |
        | B      | Optional input | { N, [C] }   | FLOAT32              | // may be left out
        | Out    | Output         | { N, C }     | FLOAT32              |
    }
    constraints {
        A and B must have the same DataType.
        require Factor > 0, "a positive factor"
    }
    compute {
        // What is scaled, in each Format.
        scaled = A * Factor
        weight(i, k) = hat(i - k)
        Out[n, c] = sum[k : N where k != c](scaled[n, c] * weight(n, k)) + (Mode == LINEAR ? 1 : 0)
    }
    example "one" {
        Mode = LINEAR
        Factor = 2
        A = [[1]]
        expect Out = [[0]]
    }
}

graph g[N](x: FLOAT32[N, 4]) {
    t = SCALE(A: x, Factor: 2, Mode: LINEAR)
    output y = t.Out + directml.ACTIVATION_RELU(InputTensor: x)
}
"""


def at(text: str, folder: Path | None = None) -> tuple[Document, int]:
    """A text opened without its mark, and the place of the mark."""
    name = "/nowhere/text.dml" if folder is None else str(folder / "text.dml")
    offset = text.index("@")
    return Session().open(name, text[:offset] + text[offset + 1 :]), offset


def mark(old: str, new: str, text: str = OPERATOR) -> str:
    """The text with one part of it replaced."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)


def completions(text: str, folder: Path | None = None) -> list[Completion]:
    document, offset = at(text, folder)
    return complete(document, offset)


def labels(text: str, folder: Path | None = None) -> list[str]:
    return [completion.label for completion in completions(text, folder)]
