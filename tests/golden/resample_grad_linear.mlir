// resample_grad_linear
//   takes %dY: FLOAT32[2, 3, 8, 6]
//   gives %dX: FLOAT32[2, 3, 4, 3]
func.func @resample_grad_linear(%dY: tensor<2x3x8x6xf32>) -> (tensor<2x3x4x3xf32>) {
  %dX_weights = arith.constant dense<"0x0000803E0000403F0000403F0000803E"> : tensor<4xf32>
  %f32_0.0 = arith.constant 0.0 : f32
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  %c7 = arith.constant 7 : index
  %c5 = arith.constant 5 : index

  // %dX: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 3] = sum[r0 < 4, r1 < 4] {
  //   v0 = add(sub(mul(i3, 2), 1), r1)
  //   v1 = add(sub(mul(i2, 2), 1), r0)
  //   where and(and(and(ge(v0, 0), lt(v0, 6)), ge(v1, 0)), lt(v1, 8))
  //   mul(mul(%dX_weights[r0], %dX_weights[r1]), %dY[i0, i1, v1, v0])
  // }
  %dX.empty = tensor.empty() : tensor<2x3x4x3xf32>
  %dX.init = linalg.fill ins(%f32_0.0 : f32) outs(%dX.empty : tensor<2x3x4x3xf32>) -> tensor<2x3x4x3xf32>
  %dX = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%dX_weights, %dX_weights : tensor<4xf32>, tensor<4xf32>) outs(%dX.init : tensor<2x3x4x3xf32>) {
  ^bb0(%dX_weights.in: f32, %dX_weights.in_2: f32, %acc: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %r0 = linalg.index 4 : index
    %r1 = linalg.index 5 : index
    %0 = arith.muli %i3, %c2 : index
    %1 = arith.subi %0, %c1 : index
    %2 = arith.addi %1, %r1 : index
    %3 = arith.cmpi sge, %2, %c0 : index
    %4 = arith.cmpi slt, %2, %c6 : index
    %5 = arith.andi %3, %4 : i1
    %6 = arith.muli %i2, %c2 : index
    %7 = arith.subi %6, %c1 : index
    %8 = arith.addi %7, %r0 : index
    %9 = arith.cmpi sge, %8, %c0 : index
    %10 = arith.andi %5, %9 : i1
    %11 = arith.cmpi slt, %8, %c8 : index
    %12 = arith.andi %10, %11 : i1
    %13 = arith.mulf %dX_weights.in, %dX_weights.in_2 : f32
    %14 = arith.maxsi %8, %c0 : index
    %15 = arith.minsi %14, %c7 : index
    %16 = arith.maxsi %2, %c0 : index
    %17 = arith.minsi %16, %c5 : index
    %18 = tensor.extract %dY[%i0, %i1, %15, %17] : tensor<2x3x8x6xf32>
    %19 = arith.mulf %13, %18 : f32
    %20 = arith.addf %acc, %19 : f32
    %21 = arith.select %12, %20, %acc : f32
    linalg.yield %21 : f32
  } -> tensor<2x3x4x3xf32>

  return %dX : tensor<2x3x4x3xf32>
}
