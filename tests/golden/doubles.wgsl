doubles.ir:1:13: error: target 'wgsl' cannot hold tensor 'x' of type FLOAT64: WGSL has no 64-bit floats [E0901]
    1 | func @clamp(%x: f64[4, 5, 6], %low: f64[5, 1]) -> (%y) {
      |             ^^^^^^^^^^^^^^^^
doubles.ir:1:31: error: target 'wgsl' cannot hold tensor 'low' of type FLOAT64: WGSL has no 64-bit floats [E0901]
    1 | func @clamp(%x: f64[4, 5, 6], %low: f64[5, 1]) -> (%y) {
      |                               ^^^^^^^^^^^^^^^
doubles.ir:2:3: error: target 'wgsl' cannot hold tensor 'y' of type FLOAT64: WGSL has no 64-bit floats [E0901]
    2 |   %y: f64[i0 < 4, i1 < 5, i2 < 6] = min(max(%x[i0, i1, i2], %low[i1, 0]), inf:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
doubles.ir:2:3: error: target 'wgsl' cannot compute 'max' of FLOAT64: WGSL has no 64-bit floats [E0901]
    2 |   %y: f64[i0 < 4, i1 < 5, i2 < 6] = min(max(%x[i0, i1, i2], %low[i1, 0]), inf:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
doubles.ir:2:3: error: target 'wgsl' cannot compute with FLOAT64: WGSL has no 64-bit floats [E0901]
    2 |   %y: f64[i0 < 4, i1 < 5, i2 < 6] = min(max(%x[i0, i1, i2], %low[i1, 0]), inf:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
doubles.ir:2:3: error: target 'wgsl' cannot compute 'min' of FLOAT64: WGSL has no 64-bit floats [E0901]
    2 |   %y: f64[i0 < 4, i1 < 5, i2 < 6] = min(max(%x[i0, i1, i2], %low[i1, 0]), inf:f64)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: what can express it all: hlsl, opencl
