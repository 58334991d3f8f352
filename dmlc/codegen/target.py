"""What can be compiled for, as one value: an output language, its dialects, and what runs it."""

from __future__ import annotations

import dataclasses

from dmlc.codegen.dialect import Dialect
from dmlc.program import Language
from dmlc.source import UnknownNameError, UnsupportedError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Target:
    """An output language with everything that depends on it."""

    dialects: tuple[Dialect, ...]
    """Of the one language, the default first."""
    drafts: tuple[Dialect, ...] = dataclasses.field(default=(), kw_only=True)
    """Those that are text alone: nothing compiles them yet."""
    runtimes: tuple[str, ...]
    """The modules of `dmlc.runtime` that run its programs. Devices are named by them."""
    compiler: str = ""
    """The module of `dmlc.runtime` whose `compile_files` turns its sources into machine code for
    files of their own, where there is one."""
    hosts: tuple[str, ...] = ()
    """The languages that host code for its programs can be written in."""
    is_general: bool = True
    """Whether it expresses every operator of the library in some type: what `all` stands for."""

    @property
    def language(self) -> Language:
        return self.dialects[0].language

    @property
    def name(self) -> str:
        return self.language.target

    @property
    def profiles(self) -> tuple[str, ...]:
        """The device profiles it has, the default first."""
        return self.dialects[0].profiles

    @property
    def shader_models(self) -> tuple[str, ...]:
        """What it can be written for, the default first; empty where a language has no such."""
        return tuple(d.shader_model for d in self.dialects if d.shader_model)

    def find_dialect(self, shader_model: str | None = None) -> Dialect:
        """The dialect for a shader model. Raises `UnsupportedError` where the language has none,
        and `UnknownNameError`, naming those there are."""
        if shader_model is None:
            return self.dialects[0]
        if not self.shader_models:
            raise UnsupportedError(f"target '{self.name}' has no shader models")
        for dialect in (*self.dialects, *self.drafts):
            if dialect.shader_model == shader_model:
                return dialect
        raise UnknownNameError(unknown_name("shader model", shader_model, self.shader_models))
