// clamp
//   takes %x: FLOAT64[4, 5, 6]
//   takes %low: FLOAT64[5, 1]
//   gives %y: FLOAT64[4, 5, 6]
func.func @clamp(%x: tensor<4x5x6xf64>, %low: tensor<5x1xf64>) -> (tensor<4x5x6xf64>) {
  %f64_inf = arith.constant 0x7FF0000000000000 : f64

  // %y: f64[i0 < 4, i1 < 5, i2 < 6] = min(max(%x[i0, i1, i2], %low[i1, 0]), inf:f64)
  %y.empty = tensor.empty() : tensor<4x5x6xf64>
  %low.slice = tensor.extract_slice %low[0, 0] [5, 1] [1, 1] : tensor<5x1xf64> to tensor<5xf64>
  %y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
      affine_map<(d0, d1, d2) -> (d1)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    ],
    iterator_types = ["parallel", "parallel", "parallel"]
  } ins(%x, %low.slice : tensor<4x5x6xf64>, tensor<5xf64>) outs(%y.empty : tensor<4x5x6xf64>) {
  ^bb0(%x.in: f64, %low.in: f64, %out: f64):
    %0 = arith.cmpf ogt, %low.in, %x.in : f64
    %1 = arith.cmpf uno, %low.in, %low.in : f64
    %2 = arith.ori %0, %1 : i1
    %3 = arith.select %2, %low.in, %x.in : f64
    %4 = arith.cmpf olt, %f64_inf, %3 : f64
    %5 = arith.select %4, %f64_inf, %3 : f64
    linalg.yield %5 : f64
  } -> tensor<4x5x6xf64>

  return %y : tensor<4x5x6xf64>
}
