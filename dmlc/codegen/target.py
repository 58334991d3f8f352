"""Compilation target: an output language, its dialects, and its runtimes."""

from __future__ import annotations

import dataclasses

from dmlc.codegen.dialect import Dialect
from dmlc.program import Language
from dmlc.source import UnknownNameError, UnsupportedError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Output language with everything that depends on it."""

    dialects: tuple[Dialect, ...]
    """Dialects of the language, the default first."""
    drafts: tuple[Dialect, ...] = dataclasses.field(default=(), kw_only=True)
    """Dialects that are text only, since no compiler supports them yet."""
    runtimes: tuple[str, ...]
    """Modules of `dmlc.runtime` that run its programs, after which devices are named."""
    compiler: str = ""
    """Module of `dmlc.runtime` whose `compile_files` compiles its sources to files of machine code,
    or empty."""
    hosts: tuple[str, ...] = ()
    """Languages of the host code that can be generated for its programs."""
    is_general: bool = True
    """Whether it expresses every operator of the library in some type, and so belongs to `all`."""

    @property
    def language(self) -> Language:
        return self.dialects[0].language

    @property
    def name(self) -> str:
        return self.language.target

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of its device profiles, the default first."""
        return self.dialects[0].profiles

    @property
    def shader_models(self) -> tuple[str, ...]:
        """Shader models that it supports, the default first; empty for languages without them."""
        return tuple(d.shader_model for d in self.dialects if d.shader_model)

    def find_dialect(self, shader_model: str | None = None) -> Dialect:
        """Dialect for a shader model. Raises `UnsupportedError` for a language without shader
        models, and `UnknownNameError`, which names those it has."""
        if shader_model is None:
            return self.dialects[0]
        if not self.shader_models:
            raise UnsupportedError(f"target '{self.name}' has no shader models")
        for dialect in (*self.dialects, *self.drafts):
            if dialect.shader_model == shader_model:
                return dialect
        raise UnknownNameError(unknown_name("shader model", shader_model, self.shader_models))
