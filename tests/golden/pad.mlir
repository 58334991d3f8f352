// pad
//   takes %Input: FLOAT32[4, 5]
//   gives %Output: FLOAT32[7, 8]
func.func @pad(%Input: tensor<4x5xf32>) -> (tensor<7x8xf32>) {
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %c3 = arith.constant 3 : index
  %f32_-1.0 = arith.constant -1.0 : f32

  // %Output: f32[i0 < 7, i1 < 8] = {
  //   v0 = sub(i0, 1)
  //   v1 = sub(i1, 2)
  //   select(and(and(ge(v0, 0), lt(v0, 4)), and(ge(v1, 0), lt(v1, 5))), %Input[min(max(v0, 0), 3), min(max(v1, 0), 4)], -1.0)
  // }
  %Output.empty = tensor.empty() : tensor<7x8xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } outs(%Output.empty : tensor<7x8xf32>) {
  ^bb0(%out: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %0 = arith.subi %i0, %c1 : index
    %1 = arith.cmpi sge, %0, %c0 : index
    %2 = arith.cmpi slt, %0, %c4 : index
    %3 = arith.andi %1, %2 : i1
    %4 = arith.subi %i1, %c2 : index
    %5 = arith.cmpi sge, %4, %c0 : index
    %6 = arith.cmpi slt, %4, %c5 : index
    %7 = arith.andi %5, %6 : i1
    %8 = arith.andi %3, %7 : i1
    %9 = arith.maxsi %0, %c0 : index
    %10 = arith.minsi %9, %c3 : index
    %11 = arith.maxsi %4, %c0 : index
    %12 = arith.minsi %11, %c4 : index
    %13 = tensor.extract %Input[%10, %12] : tensor<4x5xf32>
    %14 = arith.select %8, %13, %f32_-1.0 : f32
    linalg.yield %14 : f32
  } -> tensor<7x8xf32>

  return %Output : tensor<7x8xf32>
}
