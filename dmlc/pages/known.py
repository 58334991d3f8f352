"""Facts that a page refers to without stating them, from the library.

A page of DirectML names the enumeration of a field, whose members another page lists, and says that
an activation may be fused, of which a third page lists the permitted ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from dmlc.language.builtins import FUNCTIONS
from dmlc.language.parse import parse, read_source
from dmlc.language.syntax import Enum
from dmlc.library import find
from dmlc.summaries import FOLDER

_OPERATOR_FIELDS = {"FusedActivation": "directml.GEMM", "ActivationDescs": "directml.LSTM"}
"""Fields that name an operator, with a library operator that has them."""


@functools.cache
def find_enums() -> Mapping[str, Mapping[str, int]]:
    """Members of DirectML's enumerations that the library declares."""
    found: dict[str, Mapping[str, int]] = {}
    for path in sorted((FOLDER / "directml").glob("*.dml")):
        if not re.search(r"^enum ", path.read_text("utf-8"), re.MULTILINE):
            continue
        for made in parse(read_source(path)).declarations:
            if isinstance(made, Enum):
                found[made.name.text] = {m.name.text: m.value for m in made.members}
    return found


def find_operators(field: str) -> tuple[str, ...] | None:
    """Operators that a field may name, if the library has such a field."""
    name = _OPERATOR_FIELDS.get(field)
    if name is None:
        return None
    attribute = find(name).operators[name].attribute(field)
    return None if attribute is None else attribute.values


def find_function(name: str) -> str | None:
    """Function of the language for a page's name, in any case."""
    if name in FUNCTIONS:
        return name
    lowered = {"ln": "log", "fabs": "abs", "power": "pow", "tanhf": "tanh"}.get(
        name.lower(), name.lower()
    )
    return lowered if lowered in FUNCTIONS else None
