// BATCH_NORMALIZATION
//   takes %InputTensor: FLOAT32[2, 3, 28, 40]
//   takes %MeanTensor: FLOAT32[1, 3, 1, 1]
//   takes %VarianceTensor: FLOAT32[1, 3, 1, 1]
//   takes %ScaleTensor: FLOAT32[1, 3, 1, 1]
//   takes %BiasTensor: FLOAT32[1, 3, 1, 1]
//   gives %OutputTensor: FLOAT32[2, 3, 28, 40]
func.func @BATCH_NORMALIZATION(%InputTensor: tensor<2x3x28x40xf32>, %MeanTensor: tensor<1x3x1x1xf32>, %VarianceTensor: tensor<1x3x1x1xf32>, %ScaleTensor: tensor<1x3x1x1xf32>, %BiasTensor: tensor<1x3x1x1xf32>) -> (tensor<2x3x28x40xf32>) {
  %f32_1.0e-05 = arith.constant 1.0e-05 : f32

  // %OutputTensor: f32[i0 < 2, i1 < 3, i2 < 28, i3 < 40] = add(mul(mul(%ScaleTensor[0, i1, 0, 0], rsqrt(add(%VarianceTensor[0, i1, 0, 0], 1e-05))), sub(%InputTensor[i0, i1, i2, i3], %MeanTensor[0, i1, 0, 0])), %BiasTensor[0, i1, 0, 0])
  %OutputTensor.empty = tensor.empty() : tensor<2x3x28x40xf32>
  %ScaleTensor.slice = tensor.extract_slice %ScaleTensor[0, 0, 0, 0] [1, 3, 1, 1] [1, 1, 1, 1] : tensor<1x3x1x1xf32> to tensor<3xf32>
  %VarianceTensor.slice = tensor.extract_slice %VarianceTensor[0, 0, 0, 0] [1, 3, 1, 1] [1, 1, 1, 1] : tensor<1x3x1x1xf32> to tensor<3xf32>
  %MeanTensor.slice = tensor.extract_slice %MeanTensor[0, 0, 0, 0] [1, 3, 1, 1] [1, 1, 1, 1] : tensor<1x3x1x1xf32> to tensor<3xf32>
  %BiasTensor.slice = tensor.extract_slice %BiasTensor[0, 0, 0, 0] [1, 3, 1, 1] [1, 1, 1, 1] : tensor<1x3x1x1xf32> to tensor<3xf32>
  %OutputTensor = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%ScaleTensor.slice, %VarianceTensor.slice, %InputTensor, %MeanTensor.slice, %BiasTensor.slice : tensor<3xf32>, tensor<3xf32>, tensor<2x3x28x40xf32>, tensor<3xf32>, tensor<3xf32>) outs(%OutputTensor.empty : tensor<2x3x28x40xf32>) {
  ^bb0(%ScaleTensor.in: f32, %VarianceTensor.in: f32, %InputTensor.in: f32, %MeanTensor.in: f32, %BiasTensor.in: f32, %out: f32):
    %0 = arith.addf %VarianceTensor.in, %f32_1.0e-05 : f32
    %1 = math.rsqrt %0 : f32
    %2 = arith.mulf %ScaleTensor.in, %1 : f32
    %3 = arith.subf %InputTensor.in, %MeanTensor.in : f32
    %4 = arith.mulf %2, %3 : f32
    %5 = arith.addf %4, %BiasTensor.in : f32
    linalg.yield %5 : f32
  } -> tensor<2x3x28x40xf32>

  return %OutputTensor : tensor<2x3x28x40xf32>
}
