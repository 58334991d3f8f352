"""The helper functions of the WGSL dialect: what WGSL lacks, or leaves to implementations.

They stand in `templates/wgsl/helpers.wgsl`, a blank line before each, below their comments. WGSL's
numbers are of one size, so each function exists once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.codegen.dialect import Helper
from dmlc.resources import read_resource

_NAME = re.compile(r"^fn (\w+)", re.MULTILINE)
_CALL = re.compile(r"(?<!fn )\b(\w+)\(")


def _read(text: str) -> Mapping[str, Helper]:
    blocks = [block.strip() for block in re.split(r"\n\n(?=//)", text)]
    texts = {_NAME.findall(block)[0]: block for block in blocks}
    return MappingProxyType(
        {
            name: Helper(
                text, tuple(dict.fromkeys(n for n in _CALL.findall(text) if n in texts)), False
            )
            for name, text in texts.items()
        }
    )


HELPERS = _read(read_resource("templates/wgsl/helpers.wgsl"))
