// average_pool
//   takes %Input: FLOAT32[2, 3, 9, 8]
//   gives %Output: FLOAT32[2, 3, 5, 4]
func.func @average_pool(%Input: tensor<2x3x9x8xf32>) -> (tensor<2x3x5x4xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c9 = arith.constant 9 : index
  %c8 = arith.constant 8 : index

  // %Output: f32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] = sum[r0 < 3, r1 < 2] {
  //   v0 = sub(add(mul(i2, 2), r0), 1)
  //   where and(ge(v0, 0), lt(v0, 9))
  //   %Input[i0, i1, v0, add(mul(i3, 2), r1)]
  // }
  %Output.empty = tensor.empty() : tensor<2x3x5x4xf32>
  %Output.init = linalg.fill ins(%f32_0.0 : f32) outs(%Output.empty : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %Output.window = tensor.empty() : tensor<3x2xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%Output.window : tensor<3x2xf32>) outs(%Output.init : tensor<2x3x5x4xf32>) {
  ^bb0(%window: f32, %acc: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %r0 = linalg.index 4 : index
    %r1 = linalg.index 5 : index
    %0 = arith.muli %i2, %c2 : index
    %1 = arith.addi %0, %r0 : index
    %2 = arith.subi %1, %c1 : index
    %3 = arith.cmpi sge, %2, %c0 : index
    %4 = arith.cmpi slt, %2, %c9 : index
    %5 = arith.andi %3, %4 : i1
    %6 = arith.muli %i3, %c2 : index
    %7 = arith.addi %6, %r1 : index
    %8 = arith.maxsi %2, %c0 : index
    %9 = arith.minsi %8, %c8 : index
    %10 = tensor.extract %Input[%i0, %i1, %9, %7] : tensor<2x3x9x8xf32>
    %11 = arith.addf %acc, %10 : f32
    %12 = arith.select %5, %11, %acc : f32
    linalg.yield %12 : f32
  } -> tensor<2x3x5x4xf32>

  return %Output : tensor<2x3x5x4xf32>
}
