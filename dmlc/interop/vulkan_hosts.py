"""Host code for Vulkan in Rust and in C#: what `manifest.json` says, as code.

A program is one file, filled from `host_program`: its sizes, tensors, kernels and launches. The
file beside it is the same for all programs in a language: it declares the part of Vulkan's C
interface that it calls (`vulkan_abi`), records launches into a command buffer of the user's own
device, and opens a device for those who have none. Neither needs a package. The templates are
`templates/program.*.j2` and `templates/vulkan.*.j2`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.codegen.names import free_name, make_file_stem
from dmlc.codegen.targets import find_target
from dmlc.files import name_file
from dmlc.interop.cpp_text import break_line
from dmlc.interop.host_names import Names, Spelling
from dmlc.interop.host_program import describe_program
from dmlc.interop.vulkan_abi import FUNCTIONS, STRUCTURES
from dmlc.program import VERSION, Program
from dmlc.source import UnsupportedError
from dmlc.templates import load_template

_RUST = """
Self abstract as async await become box break const continue crate do dyn else enum extern false
final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self
static struct super trait true try type typeof unsafe unsized use virtual where while yield
dmlc_vulkan
"""
_CSHARP = """
abstract as base bool break byte case catch char checked class const continue decimal default
delegate do double else enum event explicit extern false finally fixed float for foreach goto if
implicit in int interface internal is lock long namespace new null object operator out override
params private protected public readonly ref return sbyte sealed short sizeof stackalloc static
string struct switch this throw true try typeof uint ulong unchecked unsafe ushort using virtual
void volatile while
Equals Finalize GetHashCode GetType IsValid Kernels Launches MemberwiseClone Program
ReferenceEquals Sizes Slot Tensors ToString Dmlc DmlcVulkan System
"""
"""Words of the language, and names that each class has or that the templates give."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostLanguage:
    """Language of hosts for Vulkan."""

    title: str
    suffix: str
    spelling: Spelling
    shared: str
    """The file that all programs share, without its suffix."""
    types: Mapping[str, str]
    """The types of `vulkan_abi`, as the language spells them."""


LANGUAGES: Mapping[str, HostLanguage] = MappingProxyType(
    {
        "rust": HostLanguage(
            "Rust",
            ".rs",
            Spelling(
                frozenset(_RUST.split()).__contains__,
                "sizes.{}",
                choice="(if {} {{ {} }} else {{ {} }})",
                list="&[{}]",
            ),
            "dmlc_vulkan",
            {"ptr": "*const c_void"},
        ),
        "csharp": HostLanguage(
            "C#",
            ".cs",
            Spelling(
                frozenset(_CSHARP.split()).__contains__,
                "sizes.{}",
                number="{}UL",
                list="new ulong[] {{ {} }}",
                product_fits="Launch.ProductFits({}, {})",
                round_up="Launch.RoundUp({}, {})",
            ),
            "DmlcVulkan",
            {"ptr": "IntPtr", "u32": "uint", "i32": "int", "u64": "ulong", "usize": "UIntPtr"},
        ),
    }
)
"""By the word that asks for each: `--host rust`."""


def write_hosts(
    program: Program, host: str, files: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, str]:
    """Host code of a program in HLSL, by file name: one file for the program, and one that all
    programs share. Of the SPIR-V among `files`, it accepts no other in its place. `host` is one of
    `LANGUAGES`. Raises `UnsupportedError` for a program in another language than HLSL."""
    language = LANGUAGES[host]
    if host not in find_target(program.target).hosts:
        raise UnsupportedError(
            f"{language.title} for Vulkan runs SPIR-V, which is made of HLSL, and {program.name} "
            f"is compiled to {program.language.title}",
            notes=["compile it for the target hlsl"],
        )
    names = Names(program, language.spelling)
    described = describe_program(program, names, files)
    stem = free_name(make_file_stem(program.name), language.spelling.is_reserved)
    return {
        name_file(stem, language.suffix): _fill(f"program{language.suffix}.j2", **described),
        f"{language.shared}{language.suffix}": _fill(
            f"vulkan{language.suffix}.j2",
            version=VERSION,
            structures=STRUCTURES,
            functions=FUNCTIONS,
            types=language.types,
        ),
    }


def _fill(name: str, **given: object) -> str:
    text = load_template(name).render(**given)
    return "".join(f"{part}\n" for line in text.splitlines() for part in break_line(line))
