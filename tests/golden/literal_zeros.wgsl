literal_zeros.ir:1:33: error: target 'wgsl' cannot hold tensor 'zero' of type FLOAT64: WGSL has no 64-bit floats [E0901]
    1 | func @literal_zeros(%x: f32[n], %zero: f64[n]) -> (%y, %z) {
      |                                 ^^^^^^^^^^^^^
literal_zeros.ir:3:3: error: target 'wgsl' cannot hold tensor 'z' of type FLOAT64: WGSL has no 64-bit floats [E0901]
    3 |   %z: f64[i0 < n] = div(%zero[i0], 0.0:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
literal_zeros.ir:3:3: error: target 'wgsl' cannot compute with FLOAT64: WGSL has no 64-bit floats [E0901]
    3 |   %z: f64[i0 < n] = div(%zero[i0], 0.0:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
literal_zeros.ir:3:3: error: target 'wgsl' cannot compute 'div' of FLOAT64: WGSL has no 64-bit floats [E0901]
    3 |   %z: f64[i0 < n] = div(%zero[i0], 0.0:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: what can express it all: hlsl, opencl
