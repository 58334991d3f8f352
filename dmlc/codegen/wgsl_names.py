"""Reserved names of WGSL: keywords, reserved words, types and built-in functions."""

from __future__ import annotations

_WORDS = """
alias break case const const_assert continue continuing default diagnostic discard else enable
false fn for if let loop override requires return struct switch true var while

NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast
catch class co_await co_return co_yield coherent column_major common compile compile_fragment
concept const_cast consteval constexpr constinit crate debugger decltype delete demote
demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough filter
final finally friend from fxgroup get goto groupshared highp impl implements import inline
instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut mutable
namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null
nullptr of operator package packoffset partial pass patch pixelfragment precise precision premerge
priv protected pub public readonly ref regardless register reinterpret_cast require resource
restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super
target template this thread_local throw trait try type typedef typeid typename typeof union unless
unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield

array atomic bool f16 f32 f64 i32 i64 mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4
ptr sampler sampler_comparison texture_1d texture_2d texture_3d u32 u64 vec2 vec2f vec2h vec2i vec2u
vec3 vec3f vec3h vec3i vec3u vec4 vec4f vec4h vec4i vec4u

abs acos acosh all any arrayLength asin asinh atan atan2 atanh bitcast ceil clamp cos cosh
countLeadingZeros countOneBits countTrailingZeros cross degrees determinant distance dot dpdx dpdy
exp exp2 extractBits faceForward firstLeadingBit firstTrailingBit floor fma fract frexp fwidth
insertBits inverseSqrt ldexp length log log2 max min mix modf normalize pow quantizeToF16 radians
reflect refract reverseBits round saturate select sign sin sinh smoothstep sqrt step storageBarrier
tan tanh textureBarrier transpose trunc workgroupBarrier workgroupUniformLoad

function private read read_write storage uniform workgroup write
"""

WORDS = frozenset(_WORDS.split())
