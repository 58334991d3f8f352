// sum_of_everything
//   takes %X: FLOAT32[3, 50000]
//   gives %S: FLOAT32[1, 1]
//   gives %Y: FLOAT32[3, 50000]
func.func @sum_of_everything(%X: tensor<3x50000xf32>) -> (tensor<1x1xf32>, tensor<3x50000xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_150000.0 = arith.constant 150000.0 : f32

  // %S: f32[i0 < 1, i1 < 1] = sum[r0 < 3, r1 < 50000] %X[r0, r1]
  %S.empty = tensor.empty() : tensor<1x1xf32>
  %S.init = linalg.fill ins(%f32_0.0 : f32) outs(%S.empty : tensor<1x1xf32>) -> tensor<1x1xf32>
  %S = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  } ins(%X : tensor<3x50000xf32>) outs(%S.init : tensor<1x1xf32>) {
  ^bb0(%X.in: f32, %acc: f32):
    %0 = arith.addf %acc, %X.in : f32
    linalg.yield %0 : f32
  } -> tensor<1x1xf32>

  // %Y: f32[i0 < 3, i1 < 50000] = sub(%X[i0, i1], div(%S[0, 0], 150000.0))
  %Y.empty = tensor.empty() : tensor<3x50000xf32>
  %S.slice = tensor.extract_slice %S[0, 0] [1, 1] [1, 1] : tensor<1x1xf32> to tensor<f32>
  %Y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> ()>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%X, %S.slice : tensor<3x50000xf32>, tensor<f32>) outs(%Y.empty : tensor<3x50000xf32>) {
  ^bb0(%X.in: f32, %S.in: f32, %out: f32):
    %0 = arith.divf %S.in, %f32_150000.0 : f32
    %1 = arith.subf %X.in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x50000xf32>

  return %S, %Y : tensor<1x1xf32>, tensor<3x50000xf32>
}
