// slice
//   takes %Input: FLOAT32[3, 9]
//   gives %Output: FLOAT32[2, 4]
func.func @slice(%Input: tensor<3x9xf32>) -> (tensor<2x4xf32>) {
  // %Output: f32[i0 < 2, i1 < 4] = %Input[add(i0, 1), add(mul(i1, 2), 1)]
  %Output.empty = tensor.empty() : tensor<2x4xf32>
  %Input.slice = tensor.extract_slice %Input[1, 1] [2, 4] [1, 2] : tensor<3x9xf32> to tensor<2x4xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%Input.slice : tensor<2x4xf32>) outs(%Output.empty : tensor<2x4xf32>) {
  ^bb0(%Input.in: f32, %out: f32):
    linalg.yield %Input.in : f32
  } -> tensor<2x4xf32>

  return %Output : tensor<2x4xf32>
}
