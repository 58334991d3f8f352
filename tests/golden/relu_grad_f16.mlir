// ACTIVATION_RELU_GRAD
//   takes %InputTensor: FLOAT16[n]
//   takes %InputGradientTensor: FLOAT16[n]
//   gives %OutputGradientTensor: FLOAT16[n]
func.func @ACTIVATION_RELU_GRAD(%InputTensor: tensor<?xf16>, %InputGradientTensor: tensor<?xf16>) -> (tensor<?xf16>) {
  %c0 = arith.constant 0 : index
  %f32_0.0 = arith.constant 0.0 : f32
  %n = tensor.dim %InputTensor, %c0 : tensor<?xf16>

  // %OutputGradientTensor: f16[i0 < n] = select(gt(%InputTensor[i0], 0.0), %InputGradientTensor[i0], 0.0)
  %OutputGradientTensor.empty = tensor.empty(%n) : tensor<?xf16>
  %OutputGradientTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%InputTensor, %InputGradientTensor : tensor<?xf16>, tensor<?xf16>) outs(%OutputGradientTensor.empty : tensor<?xf16>) {
  ^bb0(%InputTensor.in: f16, %InputGradientTensor.in: f16, %out: f16):
    %0 = arith.extf %InputTensor.in : f16 to f32
    %1 = arith.cmpf ogt, %0, %f32_0.0 : f32
    %2 = arith.extf %InputGradientTensor.in : f16 to f32
    %3 = arith.select %1, %2, %f32_0.0 : f32
    %4 = arith.truncf %3 : f32 to f16
    linalg.yield %4 : f16
  } -> tensor<?xf16>

  return %OutputGradientTensor : tensor<?xf16>
}
