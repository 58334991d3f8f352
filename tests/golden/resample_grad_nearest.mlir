// resample_grad_nearest
//   takes %dY: FLOAT32[2, 3, 8, 12]
//   gives %dX: FLOAT32[2, 3, 4, 5]
func.func @resample_grad_nearest(%dY: tensor<2x3x8x12xf32>) -> (tensor<2x3x4x5xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %c5 = arith.constant 5 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c7 = arith.constant 7 : index
  %c3 = arith.constant 3 : index
  %c11 = arith.constant 11 : index
  %c0 = arith.constant 0 : index

  // %dX: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 5] = sum[r0 < 2, r1 < 3] {
  //   v0 = add(div(add(mul(i3, 5), 1), 2), r1)
  //   where le(v0, add(div(add(mul(i3, 7), 1), 3), 2))
  //   %dY[i0, i1, add(mul(i2, 2), r0), v0]
  // }
  %dX.empty = tensor.empty() : tensor<2x3x4x5xf32>
  %dX.init = linalg.fill ins(%f32_0.0 : f32) outs(%dX.empty : tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xf32>
  %dX.window = tensor.empty() : tensor<2x3xf32>
  %dX = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%dX.window : tensor<2x3xf32>) outs(%dX.init : tensor<2x3x4x5xf32>) {
  ^bb0(%window: f32, %acc: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %r0 = linalg.index 4 : index
    %r1 = linalg.index 5 : index
    %0 = arith.muli %i3, %c5 : index
    %1 = arith.addi %0, %c1 : index
    %2 = arith.divsi %1, %c2 : index
    %3 = arith.addi %2, %r1 : index
    %4 = arith.muli %i3, %c7 : index
    %5 = arith.addi %4, %c1 : index
    %6 = arith.divsi %5, %c3 : index
    %7 = arith.addi %6, %c2 : index
    %8 = arith.cmpi sle, %3, %7 : index
    %9 = arith.muli %i2, %c2 : index
    %10 = arith.addi %9, %r0 : index
    %11 = arith.maxsi %3, %c0 : index
    %12 = arith.minsi %11, %c11 : index
    %13 = tensor.extract %dY[%i0, %i1, %10, %12] : tensor<2x3x8x12xf32>
    %14 = arith.addf %acc, %13 : f32
    %15 = arith.select %8, %14, %acc : f32
    linalg.yield %15 : f32
  } -> tensor<2x3x4x5xf32>

  return %dX : tensor<2x3x4x5xf32>
}
