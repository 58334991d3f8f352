// flip_rows
//   takes %Input: FLOAT32[5, 7]
//   gives %Output: FLOAT32[5, 7]
func.func @flip_rows(%Input: tensor<5x7xf32>) -> (tensor<5x7xf32>) {
  %c6 = arith.constant 6 : index

  // %Output: f32[i0 < 5, i1 < 7] = %Input[i0, sub(6, i1)]
  %Output.empty = tensor.empty() : tensor<5x7xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } outs(%Output.empty : tensor<5x7xf32>) {
  ^bb0(%out: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %0 = arith.subi %c6, %i1 : index
    %1 = tensor.extract %Input[%i0, %0] : tensor<5x7xf32>
    linalg.yield %1 : f32
  } -> tensor<5x7xf32>

  return %Output : tensor<5x7xf32>
}
