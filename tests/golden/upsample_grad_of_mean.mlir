// upsample_grad_of_mean
//   takes %dY: FLOAT16[6, 10, 16]
//   gives %dX: FLOAT16[6, 20, 32]
func.func @upsample_grad_of_mean(%dY: tensor<6x10x16xf16>) -> (tensor<6x20x32xf16>) {
  %c2 = arith.constant 2 : index
  %f32_4.0 = arith.constant 4.0 : f32

  // %dX: f16[i0 < 6, i1 < 20, i2 < 32] = div(%dY[i0, div(i1, 2), div(i2, 2)], 4.0)
  %dX.empty = tensor.empty() : tensor<6x20x32xf16>
  %dX = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    ],
    iterator_types = ["parallel", "parallel", "parallel"]
  } outs(%dX.empty : tensor<6x20x32xf16>) {
  ^bb0(%out: f16):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %0 = arith.divsi %i1, %c2 : index
    %1 = arith.divsi %i2, %c2 : index
    %2 = tensor.extract %dY[%i0, %0, %1] : tensor<6x10x16xf16>
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.divf %3, %f32_4.0 : f32
    %5 = arith.truncf %4 : f32 to f16
    linalg.yield %5 : f16
  } -> tensor<6x20x32xf16>

  return %dX : tensor<6x20x32xf16>
}
