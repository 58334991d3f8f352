// ACTIVATION_GELU
//   takes %InputTensor: FLOAT32[n]
//   gives %OutputTensor: FLOAT32[n]
func.func @ACTIVATION_GELU(%InputTensor: tensor<?xf32>) -> (tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %f32_0.5 = arith.constant 0.5 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %f32_0.70710677 = arith.constant 0.70710677 : f32
  %n = tensor.dim %InputTensor, %c0 : tensor<?xf32>

  // %OutputTensor: f32[i0 < n] = {
  //   v0 = %InputTensor[i0]
  //   mul(mul(0.5, v0), add(1.0, erf(mul(v0, 0.70710677))))
  // }
  %OutputTensor.empty = tensor.empty(%n) : tensor<?xf32>
  %OutputTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%InputTensor : tensor<?xf32>) outs(%OutputTensor.empty : tensor<?xf32>) {
  ^bb0(%InputTensor.in: f32, %out: f32):
    %0 = arith.mulf %f32_0.5, %InputTensor.in : f32
    %1 = arith.mulf %InputTensor.in, %f32_0.70710677 : f32
    %2 = math.erf %1 : f32
    %3 = arith.addf %f32_1.0, %2 : f32
    %4 = arith.mulf %0, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<?xf32>

  return %OutputTensor : tensor<?xf32>
}
