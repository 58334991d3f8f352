// resample_grad_thirds
//   takes %dY: FLOAT16[2, 2, 24, 48]
//   gives %dX: FLOAT16[2, 2, 16, 32]
func.func @resample_grad_thirds(%dY: tensor<2x2x24x48xf16>) -> (tensor<2x2x16x32xf16>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %c3 = arith.constant 3 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c23 = arith.constant 23 : index
  %c0 = arith.constant 0 : index
  %c47 = arith.constant 47 : index

  // %dX: f16[i0 < 2, i1 < 2, i2 < 16, i3 < 32] = sum[r0 < 2, r1 < 2] {
  //   v0 = mul(i3, 3)
  //   v1 = add(div(add(v0, 1), 2), r1)
  //   v2 = mul(i2, 3)
  //   v3 = add(div(add(v2, 1), 2), r0)
  //   where and(le(v1, add(div(v0, 2), 1)), le(v3, add(div(v2, 2), 1)))
  //   %dY[i0, i1, v3, v1]
  // }
  %dX.empty = tensor.empty() : tensor<2x2x16x32xf32>
  %dX.init = linalg.fill ins(%f32_0.0 : f32) outs(%dX.empty : tensor<2x2x16x32xf32>) -> tensor<2x2x16x32xf32>
  %dX.window = tensor.empty() : tensor<2x2xf32>
  %dX.f32 = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%dX.window : tensor<2x2xf32>) outs(%dX.init : tensor<2x2x16x32xf32>) {
  ^bb0(%window: f32, %acc: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %r0 = linalg.index 4 : index
    %r1 = linalg.index 5 : index
    %0 = arith.muli %i3, %c3 : index
    %1 = arith.addi %0, %c1 : index
    %2 = arith.divsi %1, %c2 : index
    %3 = arith.addi %2, %r1 : index
    %4 = arith.divsi %0, %c2 : index
    %5 = arith.addi %4, %c1 : index
    %6 = arith.cmpi sle, %3, %5 : index
    %7 = arith.muli %i2, %c3 : index
    %8 = arith.addi %7, %c1 : index
    %9 = arith.divsi %8, %c2 : index
    %10 = arith.addi %9, %r0 : index
    %11 = arith.divsi %7, %c2 : index
    %12 = arith.addi %11, %c1 : index
    %13 = arith.cmpi sle, %10, %12 : index
    %14 = arith.andi %6, %13 : i1
    %15 = arith.maxsi %10, %c0 : index
    %16 = arith.minsi %15, %c23 : index
    %17 = arith.maxsi %3, %c0 : index
    %18 = arith.minsi %17, %c47 : index
    %19 = tensor.extract %dY[%i0, %i1, %16, %18] : tensor<2x2x24x48xf16>
    %20 = arith.extf %19 : f16 to f32
    %21 = arith.addf %acc, %20 : f32
    %22 = arith.select %14, %21, %acc : f32
    linalg.yield %22 : f32
  } -> tensor<2x2x16x32xf32>
  %dX.empty_2 = tensor.empty() : tensor<2x2x16x32xf16>
  %dX = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%dX.f32 : tensor<2x2x16x32xf32>) outs(%dX.empty_2 : tensor<2x2x16x32xf16>) {
  ^bb0(%total: f32, %out: f16):
    %0 = arith.truncf %total : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<2x2x16x32xf16>

  return %dX : tensor<2x2x16x32xf16>
}
