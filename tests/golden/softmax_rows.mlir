// softmax_rows
//   takes %X: FLOAT32[60, 200]
//   gives %Y: FLOAT32[60, 200]
func.func @softmax_rows(%X: tensor<60x200xf32>) -> (tensor<60x200xf32>) {
  %f32_-inf = arith.constant 0xFF800000 : f32
  %f32_0.0 = arith.constant 0.0 : f32

  // %most: f32[i0 < 60, i1 < 1] = max[r1 < 200] %X[i0, r1]
  %most.empty = tensor.empty() : tensor<60x1xf32>
  %most.init = linalg.fill ins(%f32_-inf : f32) outs(%most.empty : tensor<60x1xf32>) -> tensor<60x1xf32>
  %most = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%X : tensor<60x200xf32>) outs(%most.init : tensor<60x1xf32>) {
  ^bb0(%X.in: f32, %acc: f32):
    %0 = arith.cmpf ogt, %X.in, %acc : f32
    %1 = arith.cmpf uno, %X.in, %X.in : f32
    %2 = arith.ori %0, %1 : i1
    %3 = arith.select %2, %X.in, %acc : f32
    linalg.yield %3 : f32
  } -> tensor<60x1xf32>

  // %e: f32[i0 < 60, i1 < 200] = exp(sub(%X[i0, i1], %most[i0, 0]))
  %e.empty = tensor.empty() : tensor<60x200xf32>
  %most.slice = tensor.extract_slice %most[0, 0] [60, 1] [1, 1] : tensor<60x1xf32> to tensor<60xf32>
  %e = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%X, %most.slice : tensor<60x200xf32>, tensor<60xf32>) outs(%e.empty : tensor<60x200xf32>) {
  ^bb0(%X.in: f32, %most.in: f32, %out: f32):
    %0 = arith.subf %X.in, %most.in : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<60x200xf32>

  // %total: f32[i0 < 60, i1 < 1] = sum[r1 < 200] %e[i0, r1]
  %total.empty = tensor.empty() : tensor<60x1xf32>
  %total.init = linalg.fill ins(%f32_0.0 : f32) outs(%total.empty : tensor<60x1xf32>) -> tensor<60x1xf32>
  %total = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%e : tensor<60x200xf32>) outs(%total.init : tensor<60x1xf32>) {
  ^bb0(%e.in: f32, %acc: f32):
    %0 = arith.addf %acc, %e.in : f32
    linalg.yield %0 : f32
  } -> tensor<60x1xf32>

  // %Y: f32[i0 < 60, i1 < 200] = div(%e[i0, i1], %total[i0, 0])
  %Y.empty = tensor.empty() : tensor<60x200xf32>
  %total.slice = tensor.extract_slice %total[0, 0] [60, 1] [1, 1] : tensor<60x1xf32> to tensor<60xf32>
  %Y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%e, %total.slice : tensor<60x200xf32>, tensor<60xf32>) outs(%Y.empty : tensor<60x200xf32>) {
  ^bb0(%e.in: f32, %total.in: f32, %out: f32):
    %0 = arith.divf %e.in, %total.in : f32
    linalg.yield %0 : f32
  } -> tensor<60x200xf32>

  return %Y : tensor<60x200xf32>
}
