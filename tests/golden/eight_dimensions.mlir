// sub
//   takes %a: FLOAT32[2, 3, 1, 2, 2, 3, 2, 5]
//   takes %b: FLOAT32[2, 3, 1, 2, 2, 3, 2, 5]
//   gives %y: FLOAT32[2, 3, 1, 2, 2, 3, 2, 5]
func.func @sub(%a: tensor<2x3x1x2x2x3x2x5xf32>, %b: tensor<2x3x1x2x2x3x2x5xf32>) -> (tensor<2x3x1x2x2x3x2x5xf32>) {
  // %y: f32[i0 < 2, i1 < 3, i2 < 1, i3 < 2, i4 < 2, i5 < 3, i6 < 2, i7 < 5] = sub(%a[i0, i1, i2, i3, i4, i5, i6, i7], %b[i0, i1, i2, i3, i4, i5, i6, i7])
  %y.empty = tensor.empty() : tensor<2x3x1x2x2x3x2x5xf32>
  %y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d2, d3, d4, d5, d6, d7)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d2, d3, d4, d5, d6, d7)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d2, d3, d4, d5, d6, d7)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]
  } ins(%a, %b : tensor<2x3x1x2x2x3x2x5xf32>, tensor<2x3x1x2x2x3x2x5xf32>) outs(%y.empty : tensor<2x3x1x2x2x3x2x5xf32>) {
  ^bb0(%a.in: f32, %b.in: f32, %out: f32):
    %0 = arith.subf %a.in, %b.in : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x1x2x2x3x2x5xf32>

  return %y : tensor<2x3x1x2x2x3x2x5xf32>
}
