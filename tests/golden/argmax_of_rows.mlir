// argmax_of_rows
//   takes %X: FLOAT32[60, 200]
//   gives %P: INT32[60]
//   gives %M: FLOAT32[60]
func.func @argmax_of_rows(%X: tensor<60x200xf32>) -> (tensor<60xi32>, tensor<60xf32>) {
  %f32_-inf = arith.constant 0xFF800000 : f32
  %i32_0 = arith.constant 0 : i32

  // %P: s32[i0 < 60] = argmax[r1 < 200] %X[i0, r1]
  %P.best.empty = tensor.empty() : tensor<60xf32>
  %P.best.init = linalg.fill ins(%f32_-inf : f32) outs(%P.best.empty : tensor<60xf32>) -> tensor<60xf32>
  %P.empty = tensor.empty() : tensor<60xi32>
  %P.init = linalg.fill ins(%i32_0 : i32) outs(%P.empty : tensor<60xi32>) -> tensor<60xi32>
  %P.best, %P = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%X : tensor<60x200xf32>) outs(%P.best.init, %P.init : tensor<60xf32>, tensor<60xi32>) {
  ^bb0(%X.in: f32, %best: f32, %place: i32):
    %r1 = linalg.index 1 : index
    %0 = arith.cmpf ugt, %X.in, %best : f32
    %1 = arith.cmpf ord, %best, %best : f32
    %2 = arith.andi %0, %1 : i1
    %3 = arith.index_cast %r1 : index to i32
    %4 = arith.select %2, %X.in, %best : f32
    %5 = arith.select %2, %3, %place : i32
    linalg.yield %4, %5 : f32, i32
  } -> (tensor<60xf32>, tensor<60xi32>)

  // %M: f32[i0 < 60] = max[r1 < 200] %X[i0, r1]
  %M.empty = tensor.empty() : tensor<60xf32>
  %M.init = linalg.fill ins(%f32_-inf : f32) outs(%M.empty : tensor<60xf32>) -> tensor<60xf32>
  %M = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%X : tensor<60x200xf32>) outs(%M.init : tensor<60xf32>) {
  ^bb0(%X.in: f32, %acc: f32):
    %0 = arith.cmpf ogt, %X.in, %acc : f32
    %1 = arith.cmpf uno, %X.in, %X.in : f32
    %2 = arith.ori %0, %1 : i1
    %3 = arith.select %2, %X.in, %acc : f32
    linalg.yield %3 : f32
  } -> tensor<60xf32>

  return %P, %M : tensor<60xi32>, tensor<60xf32>
}
