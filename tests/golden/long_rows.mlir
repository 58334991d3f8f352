// scale_rows
//   takes %x: FLOAT32[3, 70001]
//   takes %scale: FLOAT32[3, 1]
//   gives %y: FLOAT32[3, 70001]
func.func @scale_rows(%x: tensor<3x70001xf32>, %scale: tensor<3x1xf32>) -> (tensor<3x70001xf32>) {
  // %y: f32[i0 < 3, i1 < 70001] = mul(%x[i0, i1], %scale[i0, 0])
  %y.empty = tensor.empty() : tensor<3x70001xf32>
  %scale.slice = tensor.extract_slice %scale[0, 0] [3, 1] [1, 1] : tensor<3x1xf32> to tensor<3xf32>
  %y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%x, %scale.slice : tensor<3x70001xf32>, tensor<3xf32>) outs(%y.empty : tensor<3x70001xf32>) {
  ^bb0(%x.in: f32, %scale.in: f32, %out: f32):
    %0 = arith.mulf %x.in, %scale.in : f32
    linalg.yield %0 : f32
  } -> tensor<3x70001xf32>

  return %y : tensor<3x70001xf32>
}
