// literal_zeros
//   takes %x: FLOAT32[n]
//   takes %zero: FLOAT64[n]
//   gives %y: FLOAT32[n]
//   gives %z: FLOAT64[n]
func.func @literal_zeros(%x: tensor<?xf32>, %zero: tensor<?xf64>) -> (tensor<?xf32>, tensor<?xf64>) {
  %c0 = arith.constant 0 : index
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %f32_-0.0 = arith.constant -0.0 : f32
  %f64_0.0 = arith.constant 0.0 : f64
  %n = tensor.dim %x, %c0 : tensor<?xf32>

  // %y: f32[i0 < n] = {
  //   v0 = %x[i0]
  //   add(mul(v0, 0.0), div(1.0, mul(v0, -0.0)))
  // }
  %y.empty = tensor.empty(%n) : tensor<?xf32>
  %y = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%x : tensor<?xf32>) outs(%y.empty : tensor<?xf32>) {
  ^bb0(%x.in: f32, %out: f32):
    %0 = arith.mulf %x.in, %f32_0.0 : f32
    %1 = arith.mulf %x.in, %f32_-0.0 : f32
    %2 = arith.divf %f32_1.0, %1 : f32
    %3 = arith.addf %0, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?xf32>

  // %z: f64[i0 < n] = div(%zero[i0], 0.0:f64)
  %z.empty = tensor.empty(%n) : tensor<?xf64>
  %z = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%zero : tensor<?xf64>) outs(%z.empty : tensor<?xf64>) {
  ^bb0(%zero.in: f64, %out: f64):
    %0 = arith.divf %zero.in, %f64_0.0 : f64
    linalg.yield %0 : f64
  } -> tensor<?xf64>

  return %y, %z : tensor<?xf32>, tensor<?xf64>
}
