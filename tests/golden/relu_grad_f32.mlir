// ACTIVATION_RELU_GRAD
//   takes %InputTensor: FLOAT32[n]
//   takes %InputGradientTensor: FLOAT32[n]
//   gives %OutputGradientTensor: FLOAT32[n]
func.func @ACTIVATION_RELU_GRAD(%InputTensor: tensor<?xf32>, %InputGradientTensor: tensor<?xf32>) -> (tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %f32_0.0 = arith.constant 0.0 : f32
  %n = tensor.dim %InputTensor, %c0 : tensor<?xf32>

  // %OutputGradientTensor: f32[i0 < n] = select(gt(%InputTensor[i0], 0.0), %InputGradientTensor[i0], 0.0)
  %OutputGradientTensor.empty = tensor.empty(%n) : tensor<?xf32>
  %OutputGradientTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%InputTensor, %InputGradientTensor : tensor<?xf32>, tensor<?xf32>) outs(%OutputGradientTensor.empty : tensor<?xf32>) {
  ^bb0(%InputTensor.in: f32, %InputGradientTensor.in: f32, %out: f32):
    %0 = arith.cmpf ogt, %InputTensor.in, %f32_0.0 : f32
    %1 = arith.select %0, %InputGradientTensor.in, %f32_0.0 : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>

  return %OutputGradientTensor : tensor<?xf32>
}
