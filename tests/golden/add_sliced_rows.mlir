// add
//   takes %a: FLOAT16[3, 2, 37]
//   takes %b: FLOAT16[3, 2, 37]
//   gives %sum: FLOAT16[3, 2, 37]
func.func @add(%a: tensor<3x2x37xf16>, %b: tensor<3x2x37xf16>) -> (tensor<3x2x37xf16>) {
  // %sum: f16[i0 < 3, i1 < 2, i2 < 37] = add(%a[i0, i1, i2], %b[i0, i1, i2])
  %sum.empty = tensor.empty() : tensor<3x2x37xf16>
  %sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    ],
    iterator_types = ["parallel", "parallel", "parallel"]
  } ins(%a, %b : tensor<3x2x37xf16>, tensor<3x2x37xf16>) outs(%sum.empty : tensor<3x2x37xf16>) {
  ^bb0(%a.in: f16, %b.in: f16, %out: f16):
    %0 = arith.extf %a.in : f16 to f32
    %1 = arith.extf %b.in : f16 to f32
    %2 = arith.addf %0, %1 : f32
    %3 = arith.truncf %2 : f32 to f16
    linalg.yield %3 : f16
  } -> tensor<3x2x37xf16>

  return %sum : tensor<3x2x37xf16>
}
