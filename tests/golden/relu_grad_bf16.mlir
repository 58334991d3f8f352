// ACTIVATION_RELU_GRAD
//   takes %InputTensor: BFLOAT16[n]
//   takes %InputGradientTensor: BFLOAT16[n]
//   gives %OutputGradientTensor: BFLOAT16[n]
func.func @ACTIVATION_RELU_GRAD(%InputTensor: tensor<?xbf16>, %InputGradientTensor: tensor<?xbf16>) -> (tensor<?xbf16>) {
  %c0 = arith.constant 0 : index
  %f32_0.0 = arith.constant 0.0 : f32
  %n = tensor.dim %InputTensor, %c0 : tensor<?xbf16>

  // %OutputGradientTensor: bf16[i0 < n] = select(gt(%InputTensor[i0], 0.0), %InputGradientTensor[i0], 0.0)
  %OutputGradientTensor.empty = tensor.empty(%n) : tensor<?xbf16>
  %OutputGradientTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%InputTensor, %InputGradientTensor : tensor<?xbf16>, tensor<?xbf16>) outs(%OutputGradientTensor.empty : tensor<?xbf16>) {
  ^bb0(%InputTensor.in: bf16, %InputGradientTensor.in: bf16, %out: bf16):
    %0 = arith.extf %InputTensor.in : bf16 to f32
    %1 = arith.cmpf ogt, %0, %f32_0.0 : f32
    %2 = arith.extf %InputGradientTensor.in : bf16 to f32
    %3 = arith.select %1, %2, %f32_0.0 : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<?xbf16>

  return %OutputGradientTensor : tensor<?xbf16>
}
