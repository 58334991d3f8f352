// ELEMENT_WISE_ADD
//   takes %ATensor: FLOAT32[48, 80]
//   takes %BTensor: FLOAT32[48, 80]
//   gives %OutputTensor: FLOAT32[48, 80]
func.func @ELEMENT_WISE_ADD(%ATensor: tensor<48x80xf32>, %BTensor: tensor<48x80xf32>) -> (tensor<48x80xf32>) {
  // %OutputTensor: f32[i0 < 48, i1 < 80] = add(%ATensor[i0, i1], %BTensor[i0, i1])
  %OutputTensor.empty = tensor.empty() : tensor<48x80xf32>
  %OutputTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%ATensor, %BTensor : tensor<48x80xf32>, tensor<48x80xf32>) outs(%OutputTensor.empty : tensor<48x80xf32>) {
  ^bb0(%ATensor.in: f32, %BTensor.in: f32, %out: f32):
    %0 = arith.addf %ATensor.in, %BTensor.in : f32
    linalg.yield %0 : f32
  } -> tensor<48x80xf32>

  return %OutputTensor : tensor<48x80xf32>
}
