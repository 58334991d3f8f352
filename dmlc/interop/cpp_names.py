"""The names in a C++ header for Direct3D 12: those that it gives, and those that it cannot give.
The latter are words of the language, macros of Windows' headers, and types that the header uses."""

from __future__ import annotations

import re

from dmlc.codegen.names import Mangler, free_name, make_identifier
from dmlc.program import Program
from dmlc.sizes import Size

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if import inline int long module mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
final override
"""

_MACROS = """
NULL TRUE FALSE IN OUT OPTIONAL CONST VOID FAR NEAR far near small hyper cdecl pascal interface
min max CALLBACK WINAPI APIENTRY PASCAL CDECL STRICT UNICODE INTERFACE PURE THIS THIS_ INFINITE
INFINITY NAN MAXUINT MAXINT MAXLONG MAXDWORD MAXBYTE MAXWORD MAXFLOAT DELETE SYNCHRONIZE ERROR
NOERROR ABSOLUTE RELATIVE OPAQUE TRANSPARENT ALTERNATE WINDING BLACKNESS WHITENESS SRCCOPY
DIFFERENCE RGB_AND PASSTHROUGH DOMAIN OVERFLOW UNDERFLOW SING PLOSS TLOSS EOF BUFSIZ assert errno
stdin stdout stderr offsetof unix linux i386 MM_TEXT ANSI_CHARSET ASPECTX ASPECTY HORZSIZE VERTSIZE
HORZRES VERTRES BITSPIXEL PLANES NUMBRUSHES NUMPENS NUMMARKERS NUMFONTS NUMCOLORS PDEVICESIZE
SIZEPALETTE NUMRESERVED COLORRES SHADEBLENDCAPS IGNORE CopyMemory MoveMemory FillMemory ZeroMemory
Yield GetObject GetMessage SendMessage CreateWindow LoadImage DrawText DrawState GetClassInfo
"""

_TYPES = """
std dmlc UINT UINT8 UINT16 UINT32 UINT64 INT INT8 INT16 INT32 INT64 FLOAT DOUBLE BOOL BYTE WORD
DWORD LONG ULONG HRESULT HANDLE IUnknown
"""

_SINGLE = frozenset((_KEYWORDS + _MACROS + _TYPES).split())
_FAMILIES = re.compile(
    r"(D3D|DXGI|ID3D|IID|GUID|CLSID|DML|INT|UINT|FLT|DBL|E|S|DXC|ERROR|WM|FILE|REG|KEY|SIZE|STATUS"
    r"|FACILITY|SEVERITY|PAGE|MEM|PROCESS|THREAD|LANG|SUBLANG|SORT|SW|WS|GW|HT|VK|MK|MB|SC|ID)_\w+"
    r"|(D3D12|DXGI|ID3D12)\w*|(chx|cmb|ctl|edt|frm|grp|ico|lst|psh|rad|rct|scr|stc)\d+"
)


def is_reserved(name: str) -> bool:
    """Whether a header cannot have a name of its own that is spelled so."""
    return name in _SINGLE or _FAMILIES.fullmatch(name) is not None


_OWN_NAMES = (
    "Sizes", "is_valid", "product_fits", "Role", "Tensor", "tensor_count", "slot", "values",
    "round_up", "tensors", "Buffer", "Buffers", "Kernel", "kernel_count", "kernels", "Release",
    "Owned", "Pipeline", "Pipelines", "Shaders", "Groups", "make_groups", "root_constants",
    "root_view", "is_supported", "create_pipeline", "create_pipelines", "transition",
    "stored_to_read", "read_to_stored", "stored_again", "wait_for", "record",
)  # fmt: skip
"""What the template has beside the namespaces of kernels."""


class Names:
    """How a header spells what a program names."""

    def __init__(self, program: Program) -> None:
        self.space = free_name(make_identifier(program.name), is_reserved)
        """The program's namespace, in `dmlc`."""
        members = Mangler(is_reserved)
        self.symbols = {symbol: members.spell(symbol) for symbol in program.symbols}
        """The members of `Sizes`."""
        self._homes = program.scratch_homes()
        slots = Mangler(is_reserved)
        slots.take("Slot")
        self.slots = {
            t.name: slots.spell(t.name) for t in program.tensors if self.home(t.name) == t.name
        }
        """The buffers, by the tensors they are named after: the first of those that share one."""
        spaces = Mangler(is_reserved)
        for name in _OWN_NAMES:
            spaces.take(name)
        self.kernels = [spaces.make(kernel.name) for kernel in program.kernels]
        """The namespaces of kernels."""

    def home(self, tensor: str) -> str:
        """The tensor that a tensor's buffer is named after."""
        return self._homes.get(tensor, tensor)

    def find_buffer(self, tensor: str) -> str:
        """The buffer of a tensor, as an expression."""
        return f"buffers[slot::{self.slots[self.home(tensor)]}]"

    def spell_size(self, text: str | int | Size) -> str:
        """A formula with the symbols as members of `sizes`."""
        return re.sub(r"[A-Za-z_]\w*", lambda m: f"sizes.{self.symbols[m[0]]}", str(text))
