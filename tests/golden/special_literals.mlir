// special
//   takes %x: FLOAT32[n]
//   gives %y: FLOAT32[n]
func.func @special(%x: tensor<?xf32>) -> (tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %f32_nan = arith.constant 0x7FC00000 : f32
  %f32_3.4028235e38 = arith.constant 3.4028235e+38 : f32
  %f32_-inf = arith.constant 0xFF800000 : f32
  %f32_1.0e-45 = arith.constant 1.0e-45 : f32
  %n = tensor.dim %x, %c0 : tensor<?xf32>

  // %y: f32[i0 < n] = {
  //   v0 = %x[i0]
  //   select(isnan(v0), nan, select(gt(v0, 3.4028235e+38), -inf, min(v0, mul(v0, 1e-45))))
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
    %0 = arith.cmpf uno, %x.in, %x.in : f32
    %1 = arith.cmpf ogt, %x.in, %f32_3.4028235e38 : f32
    %2 = arith.mulf %x.in, %f32_1.0e-45 : f32
    %3 = arith.cmpf olt, %2, %x.in : f32
    %4 = arith.cmpf uno, %2, %2 : f32
    %5 = arith.ori %3, %4 : i1
    %6 = arith.select %5, %2, %x.in : f32
    %7 = arith.select %1, %f32_-inf, %6 : f32
    %8 = arith.select %0, %f32_nan, %7 : f32
    linalg.yield %8 : f32
  } -> tensor<?xf32>

  return %y : tensor<?xf32>
}
