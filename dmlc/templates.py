"""Jinja2 templates of `templates/` for generated text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import jinja2

from dmlc.resources import resource_path

Filters: TypeAlias = tuple[tuple[str, Callable[..., str]], ...]
"""Functions that templates use, by name."""


@functools.cache
def load_template(name: str, filters: Filters = ()) -> jinja2.Template:
    """Template of a file of `templates/`. Values in pages and pictures are escaped. A missing value
    is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_path("templates")),
        autoescape=name.partition(".")[2] in ("html.j2", "svg.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update({"thousands": "{:,}".format, **dict(filters)})
    return environment.get_template(name)
