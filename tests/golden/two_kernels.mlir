// centered
//   takes %x: FLOAT16[64, 40]
//   gives %y: FLOAT32[64, 40]
func.func @centered(%x: tensor<64x40xf16>) -> (tensor<64x40xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %c63 = arith.constant 63 : index

  // %total: f16[i0 < 64] = sum[r1 < 40] %x[i0, r1]
  %total.empty = tensor.empty() : tensor<64xf32>
  %total.init = linalg.fill ins(%f32_0.0 : f32) outs(%total.empty : tensor<64xf32>) -> tensor<64xf32>
  %total.f32 = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%x : tensor<64x40xf16>) outs(%total.init : tensor<64xf32>) {
  ^bb0(%x.in: f16, %acc: f32):
    %0 = arith.extf %x.in : f16 to f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  %total.empty_2 = tensor.empty() : tensor<64xf16>
  %total = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%total.f32 : tensor<64xf32>) outs(%total.empty_2 : tensor<64xf16>) {
  ^bb0(%total_: f32, %out: f16):
    %0 = arith.truncf %total_ : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<64xf16>

  // %y: f32[i0 < 64, i1 < 40] = sub(%x[i0, i1], %total[sub(63, i0)])
  %y.empty = tensor.empty() : tensor<64x40xf32>
  %y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%x : tensor<64x40xf16>) outs(%y.empty : tensor<64x40xf32>) {
  ^bb0(%x.in: f16, %out: f32):
    %i0 = linalg.index 0 : index
    %0 = arith.extf %x.in : f16 to f32
    %1 = arith.subi %c63, %i0 : index
    %2 = tensor.extract %total[%1] : tensor<64xf16>
    %3 = arith.extf %2 : f16 to f32
    %4 = arith.subf %0, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<64x40xf32>

  return %y : tensor<64x40xf32>
}
