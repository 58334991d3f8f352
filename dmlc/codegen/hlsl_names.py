"""Reserved names of HLSL: keywords, types and intrinsic functions."""

from __future__ import annotations

_KEYWORDS = """
AppendStructuredBuffer asm asm_fragment auto BlendState bool break Buffer ByteAddressBuffer case
catch cbuffer centroid char class column_major compile compile_fragment CompileShader const
const_cast ComputeShader constexpr ConstantBuffer ConsumeStructuredBuffer continue decltype default
delete DepthStencilState DepthStencilView discard do DomainShader double dword dynamic_cast else
enum explicit export extern false FeedbackTexture2D FeedbackTexture2DArray float for friend fxgroup
GeometryShader globallycoherent goto groupshared half Hullshader HullShader if in indices inline
inout InputPatch int interface line lineadj linear LineStream long main matrix min10float
min12int min16float min16int min16uint mutable namespace new nointerpolation noperspective NULL
nullptr operator out OutputPatch packoffset pass payload PixelFragment pixelfragment PixelShader
point PointStream precise primitives private protected public RasterizerOrderedBuffer
RasterizerState RayDesc RayQuery reinterpret_cast RenderTargetView return register row_major
RootSignature RWBuffer RWByteAddressBuffer RWStructuredBuffer RWTexture1D RWTexture2D RWTexture3D
sample sampler SamplerComparisonState SamplerState shader shared short signed sizeof snorm
stateblock stateblock_state static static_cast string StructuredBuffer struct switch tbuffer
technique technique10 technique11 template texture Texture1D Texture1DArray Texture2D
Texture2DArray Texture2DMS Texture2DMSArray Texture3D TextureBuffer TextureCube TextureCubeArray
this throw triangle triangleadj TriangleStream true try typedef typename uint uniform union unorm
unsigned using vector vertexfragment VertexFragment VertexShader vertices virtual void volatile
while vk numthreads unroll loop branch flatten size_t
"""

_FUNCTIONS = """
abort abs acos all AllMemoryBarrier AllMemoryBarrierWithGroupSync and any asdouble asfloat
asfloat16 asin asint asint16 asuint asuint16 atan atan2 ceil CheckAccessFullyMapped clamp clip cos
cosh countbits cross D3DCOLORtoUBYTE4 ddx ddx_coarse ddx_fine ddy ddy_coarse ddy_fine degrees
determinant DeviceMemoryBarrier DeviceMemoryBarrierWithGroupSync distance dot dot2add
dot4add_i8packed dot4add_u8packed dst errorf exp exp2 f16tof32 f32tof16 faceforward firstbithigh
firstbitlow floor fma fmod frac frexp fwidth GroupMemoryBarrier GroupMemoryBarrierWithGroupSync
isfinite isinf isnan isnormal ldexp length lerp lit log log10 log2 mad max min modf msad4 mul
noise normalize not or pack_clamp_s8 pack_clamp_u8 pack_s8 pack_u8 pow printf radians rcp reflect
refract reversebits round rsqrt saturate select sign sin sincos sinh smoothstep sqrt step tan tanh
tex1D tex2D tex3D texCUBE transpose trunc unpack_s8s16 unpack_s8s32 unpack_u8u16 unpack_u8u32 xor
"""

INTRINSICS: frozenset[str] = frozenset((_KEYWORDS + _FUNCTIONS).split())
"""Single names."""

PATTERN = (
    r"(bool|double|dword|float|half|int|uint|long|min10float|min12int|min16float|min16int"
    r"|min16uint|u?int(8|16|32|64)_t|float(16|32|64)_t)([1-4](x[1-4])?)?$"
    r"|u?int(8|16|32|64)_t\d*_packed$|u?int8_t4_packed$"
    r"|_|Wave|Quad|Interlocked|Process|Evaluate|GetRender|DispatchRays|Trace|SV_|D3D|tex[123]D"
    r"|texCUBE"
)
"""Types with dimensions, and common prefixes of intrinsic functions."""
