// gated
//   takes %x: FLOAT32[n]
//   takes %gate: FLOAT32[n]
//   takes %dy: FLOAT32[n]
//   gives %dx: FLOAT32[n]
//   gives %dgate: FLOAT32[n]
func.func @gated(%x: tensor<?xf32>, %gate: tensor<?xf32>, %dy: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>

  // %dx: f32[i0 < n] = mul(%dy[i0], tanh(%gate[i0]))
  %dx.empty = tensor.empty(%n) : tensor<?xf32>
  %dx = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%dy, %gate : tensor<?xf32>, tensor<?xf32>) outs(%dx.empty : tensor<?xf32>) {
  ^bb0(%dy.in: f32, %gate.in: f32, %out: f32):
    %0 = math.tanh %gate.in : f32
    %1 = arith.mulf %dy.in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>

  // %dgate: f32[i0 < n] = {
  //   v0 = tanh(%gate[i0])
  //   add(mul(%dy[i0], %x[i0]), add(v0, v0))
  // }
  %dgate.empty = tensor.empty(%n) : tensor<?xf32>
  %dgate = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%dy, %x, %gate : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%dgate.empty : tensor<?xf32>) {
  ^bb0(%dy.in: f32, %x.in: f32, %gate.in: f32, %out: f32):
    %0 = arith.mulf %dy.in, %x.in : f32
    %1 = math.tanh %gate.in : f32
    %2 = arith.addf %1, %1 : f32
    %3 = arith.addf %0, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?xf32>

  return %dx, %dgate : tensor<?xf32>, tensor<?xf32>
}
