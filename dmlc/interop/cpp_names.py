"""Names in a C++ header for Direct3D 12: those it declares, and those it must not declare.

The latter are keywords, macros of Windows' headers, and types that the header uses."""

from __future__ import annotations

import re

from dmlc.interop.host_names import Spelling

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
    """Whether a header must not declare this name."""
    return name in _SINGLE or _FAMILIES.fullmatch(name) is not None


_OWN_NAMES = (
    "Sizes", "is_valid", "product_fits", "Role", "Tensor", "tensor_count", "slot", "values",
    "round_up", "tensors", "Buffer", "Buffers", "Kernel", "kernel_count", "kernels", "Release",
    "Owned", "Pipeline", "Pipelines", "Shaders", "Groups", "make_groups", "root_constants",
    "root_view", "is_supported", "create_pipeline", "create_pipelines", "transition",
    "stored_to_read", "read_to_stored", "stored_again", "wait_for", "record",
)  # fmt: skip
"""What the template has beside the namespaces of kernels."""

CPP = Spelling(is_reserved, "sizes.{}", own_names=_OWN_NAMES)
"""C++ as the header for Direct3D 12 has it."""
