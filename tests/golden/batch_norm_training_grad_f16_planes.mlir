// batch_norm_training_grad
//   takes %x: FLOAT16[4, 8, 40, 40]
//   takes %dy: FLOAT16[4, 8, 40, 40]
//   takes %mean: FLOAT16[1, 8, 1, 1]
//   takes %variance: FLOAT16[1, 8, 1, 1]
//   takes %scale: FLOAT16[1, 8, 1, 1]
//   gives %dx: FLOAT16[4, 8, 40, 40]
//   gives %dscale: FLOAT16[1, 8, 1, 1]
//   gives %dbias: FLOAT16[1, 8, 1, 1]
func.func @batch_norm_training_grad(%x: tensor<4x8x40x40xf16>, %dy: tensor<4x8x40x40xf16>, %mean: tensor<1x8x1x1xf16>, %variance: tensor<1x8x1x1xf16>, %scale: tensor<1x8x1x1xf16>) -> (tensor<4x8x40x40xf16>, tensor<1x8x1x1xf16>, tensor<1x8x1x1xf16>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %f32_0.001 = arith.constant 0.001 : f32
  %f32_6400.0 = arith.constant 6400.0 : f32

  // %dy_sum: f32[i0 < 1, i1 < 8, i2 < 1, i3 < 1] = sum[r0 < 4, r2 < 40, r3 < 40] %dy[r0, i1, r2, r3]
  %dy_sum.empty = tensor.empty() : tensor<1x8x1x1xf32>
  %dy_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_sum.empty : tensor<1x8x1x1xf32>) -> tensor<1x8x1x1xf32>
  %dy_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
  } ins(%dy : tensor<4x8x40x40xf16>) outs(%dy_sum.init : tensor<1x8x1x1xf32>) {
  ^bb0(%dy.in: f16, %acc: f32):
    %0 = arith.extf %dy.in : f16 to f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x8x1x1xf32>

  // %dy_centered_sum: f32[i0 < 1, i1 < 8, i2 < 1, i3 < 1] = sum[r0 < 4, r2 < 40, r3 < 40] mul(%dy[r0, i1, r2, r3], sub(%x[r0, i1, r2, r3], %mean[0, i1, 0, 0]))
  %dy_centered_sum.empty = tensor.empty() : tensor<1x8x1x1xf32>
  %dy_centered_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_centered_sum.empty : tensor<1x8x1x1xf32>) -> tensor<1x8x1x1xf32>
  %mean.slice = tensor.extract_slice %mean[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf16> to tensor<8xf16>
  %dy_centered_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
  } ins(%dy, %x, %mean.slice : tensor<4x8x40x40xf16>, tensor<4x8x40x40xf16>, tensor<8xf16>) outs(%dy_centered_sum.init : tensor<1x8x1x1xf32>) {
  ^bb0(%dy.in: f16, %x.in: f16, %mean.in: f16, %acc: f32):
    %0 = arith.extf %dy.in : f16 to f32
    %1 = arith.extf %x.in : f16 to f32
    %2 = arith.extf %mean.in : f16 to f32
    %3 = arith.subf %1, %2 : f32
    %4 = arith.mulf %0, %3 : f32
    %5 = arith.addf %acc, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<1x8x1x1xf32>

  // %inv_std: f32[i0 < 1, i1 < 8, i2 < 1, i3 < 1] = div(1.0, sqrt(add(%variance[0, i1, 0, 0], 0.001)))
  %inv_std.empty = tensor.empty() : tensor<1x8x1x1xf32>
  %variance.slice = tensor.extract_slice %variance[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf16> to tensor<8xf16>
  %inv_std = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%variance.slice : tensor<8xf16>) outs(%inv_std.empty : tensor<1x8x1x1xf32>) {
  ^bb0(%variance.in: f16, %out: f32):
    %0 = arith.extf %variance.in : f16 to f32
    %1 = arith.addf %0, %f32_0.001 : f32
    %2 = math.sqrt %1 : f32
    %3 = arith.divf %f32_1.0, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x8x1x1xf32>

  // %dbias: f16[i0 < 1, i1 < 8, i2 < 1, i3 < 1] = %dy_sum[0, i1, 0, 0]
  %dbias.empty = tensor.empty() : tensor<1x8x1x1xf16>
  %dy_sum.slice = tensor.extract_slice %dy_sum[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf32> to tensor<8xf32>
  %dbias = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%dy_sum.slice : tensor<8xf32>) outs(%dbias.empty : tensor<1x8x1x1xf16>) {
  ^bb0(%dy_sum.in: f32, %out: f16):
    %0 = arith.truncf %dy_sum.in : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x8x1x1xf16>

  // %dscale: f16[i0 < 1, i1 < 8, i2 < 1, i3 < 1] = mul(%dy_centered_sum[0, i1, 0, 0], %inv_std[0, i1, 0, 0])
  %dscale.empty = tensor.empty() : tensor<1x8x1x1xf16>
  %dy_centered_sum.slice = tensor.extract_slice %dy_centered_sum[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf32> to tensor<8xf32>
  %inv_std.slice = tensor.extract_slice %inv_std[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf32> to tensor<8xf32>
  %dscale = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%dy_centered_sum.slice, %inv_std.slice : tensor<8xf32>, tensor<8xf32>) outs(%dscale.empty : tensor<1x8x1x1xf16>) {
  ^bb0(%dy_centered_sum.in: f32, %inv_std.in: f32, %out: f16):
    %0 = arith.mulf %dy_centered_sum.in, %inv_std.in : f32
    %1 = arith.truncf %0 : f32 to f16
    linalg.yield %1 : f16
  } -> tensor<1x8x1x1xf16>

  // %dx: f16[i0 < 4, i1 < 8, i2 < 40, i3 < 40] = mul(mul(%scale[0, i1, 0, 0], %inv_std[0, i1, 0, 0]), sub(sub(%dy[i0, i1, i2, i3], div(%dy_sum[0, i1, 0, 0], 6400.0)), div(mul(sub(%x[i0, i1, i2, i3], %mean[0, i1, 0, 0]), div(%dy_centered_sum[0, i1, 0, 0], 6400.0)), add(%variance[0, i1, 0, 0], 0.001))))
  %dx.empty = tensor.empty() : tensor<4x8x40x40xf16>
  %scale.slice = tensor.extract_slice %scale[0, 0, 0, 0] [1, 8, 1, 1] [1, 1, 1, 1] : tensor<1x8x1x1xf16> to tensor<8xf16>
  %dx = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%scale.slice, %inv_std.slice, %dy, %dy_sum.slice, %x, %mean.slice, %dy_centered_sum.slice, %variance.slice : tensor<8xf16>, tensor<8xf32>, tensor<4x8x40x40xf16>, tensor<8xf32>, tensor<4x8x40x40xf16>, tensor<8xf16>, tensor<8xf32>, tensor<8xf16>) outs(%dx.empty : tensor<4x8x40x40xf16>) {
  ^bb0(%scale.in: f16, %inv_std.in: f32, %dy.in: f16, %dy_sum.in: f32, %x.in: f16, %mean.in: f16, %dy_centered_sum.in: f32, %variance.in: f16, %out: f16):
    %0 = arith.extf %scale.in : f16 to f32
    %1 = arith.mulf %0, %inv_std.in : f32
    %2 = arith.extf %dy.in : f16 to f32
    %3 = arith.divf %dy_sum.in, %f32_6400.0 : f32
    %4 = arith.subf %2, %3 : f32
    %5 = arith.extf %x.in : f16 to f32
    %6 = arith.extf %mean.in : f16 to f32
    %7 = arith.subf %5, %6 : f32
    %8 = arith.divf %dy_centered_sum.in, %f32_6400.0 : f32
    %9 = arith.mulf %7, %8 : f32
    %10 = arith.extf %variance.in : f16 to f32
    %11 = arith.addf %10, %f32_0.001 : f32
    %12 = arith.divf %9, %11 : f32
    %13 = arith.subf %4, %12 : f32
    %14 = arith.mulf %1, %13 : f32
    %15 = arith.truncf %14 : f32 to f16
    linalg.yield %15 : f16
  } -> tensor<4x8x40x40xf16>

  return %dx, %dscale, %dbias : tensor<4x8x40x40xf16>, tensor<1x8x1x1xf16>, tensor<1x8x1x1xf16>
}
