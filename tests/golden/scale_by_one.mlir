// SCALE
//   takes %InputTensor: FLOAT32[5, 1000]
//   takes %ScaleTensor: FLOAT32[1, 1]
//   gives %OutputTensor: FLOAT32[5, 1000]
func.func @SCALE(%InputTensor: tensor<5x1000xf32>, %ScaleTensor: tensor<1x1xf32>) -> (tensor<5x1000xf32>) {
  // %OutputTensor: f32[i0 < 5, i1 < 1000] = mul(%InputTensor[i0, i1], exp(neg(%ScaleTensor[0, 0])))
  %OutputTensor.empty = tensor.empty() : tensor<5x1000xf32>
  %ScaleTensor.slice = tensor.extract_slice %ScaleTensor[0, 0] [1, 1] [1, 1] : tensor<1x1xf32> to tensor<f32>
  %OutputTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> ()>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%InputTensor, %ScaleTensor.slice : tensor<5x1000xf32>, tensor<f32>) outs(%OutputTensor.empty : tensor<5x1000xf32>) {
  ^bb0(%InputTensor.in: f32, %ScaleTensor.in: f32, %out: f32):
    %0 = arith.negf %ScaleTensor.in : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %InputTensor.in, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<5x1000xf32>

  return %OutputTensor : tensor<5x1000xf32>
}
