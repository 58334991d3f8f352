// max_pool_place
//   takes %Input: FLOAT32[2, 3, 9, 8]
//   gives %Output: FLOAT32[2, 3, 5, 4]
//   gives %Place: UINT32[2, 3, 5, 4]
func.func @max_pool_place(%Input: tensor<2x3x9x8xf32>) -> (tensor<2x3x5x4xf32>, tensor<2x3x5x4xi32>) {
  %f32_-inf = arith.constant 0xFF800000 : f32
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c9 = arith.constant 9 : index
  %c8 = arith.constant 8 : index
  %c7 = arith.constant 7 : index
  %i32_0 = arith.constant 0 : i32
  %false = arith.constant false
  %true = arith.constant true
  %c3 = arith.constant 3 : index

  // %Output: f32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] = max[r0 < 3, r1 < 3] {
  //   v0 = sub(add(mul(i2, 2), r0), 1)
  //   v1 = sub(add(mul(i3, 2), r1), 1)
  //   where and(and(ge(v0, 0), lt(v0, 9)), ge(v1, 0))
  //   %Input[i0, i1, v0, v1]
  // }
  %Output.empty = tensor.empty() : tensor<2x3x5x4xf32>
  %Output.init = linalg.fill ins(%f32_-inf : f32) outs(%Output.empty : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %Output.window = tensor.empty() : tensor<3x3xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%Output.window : tensor<3x3xf32>) outs(%Output.init : tensor<2x3x5x4xf32>) {
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
    %8 = arith.subi %7, %c1 : index
    %9 = arith.cmpi sge, %8, %c0 : index
    %10 = arith.andi %5, %9 : i1
    %11 = arith.maxsi %2, %c0 : index
    %12 = arith.minsi %11, %c8 : index
    %13 = arith.maxsi %8, %c0 : index
    %14 = arith.minsi %13, %c7 : index
    %15 = tensor.extract %Input[%i0, %i1, %12, %14] : tensor<2x3x9x8xf32>
    %16 = arith.cmpf ogt, %15, %acc : f32
    %17 = arith.cmpf uno, %15, %15 : f32
    %18 = arith.ori %16, %17 : i1
    %19 = arith.select %18, %15, %acc : f32
    %20 = arith.select %10, %19, %acc : f32
    linalg.yield %20 : f32
  } -> tensor<2x3x5x4xf32>

  // %Place: u32[i0 < 2, i1 < 3, i2 < 5, i3 < 4] = argmax[r0 < 3, r1 < 3] {
  //   v0 = sub(add(mul(i2, 2), r0), 1)
  //   v1 = sub(add(mul(i3, 2), r1), 1)
  //   where and(and(ge(v0, 0), lt(v0, 9)), ge(v1, 0))
  //   %Input[i0, i1, v0, v1]
  // }
  %Place.best.empty = tensor.empty() : tensor<2x3x5x4xf32>
  %Place.best.init = linalg.fill ins(%f32_-inf : f32) outs(%Place.best.empty : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  %Place.empty = tensor.empty() : tensor<2x3x5x4xi32>
  %Place.init = linalg.fill ins(%i32_0 : i32) outs(%Place.empty : tensor<2x3x5x4xi32>) -> tensor<2x3x5x4xi32>
  %Place.found.empty = tensor.empty() : tensor<2x3x5x4xi1>
  %Place.found.init = linalg.fill ins(%false : i1) outs(%Place.found.empty : tensor<2x3x5x4xi1>) -> tensor<2x3x5x4xi1>
  %Place.window = tensor.empty() : tensor<3x3xf32>
  %Place.best, %Place, %Place.found = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%Place.window : tensor<3x3xf32>) outs(%Place.best.init, %Place.init, %Place.found.init : tensor<2x3x5x4xf32>, tensor<2x3x5x4xi32>, tensor<2x3x5x4xi1>) {
  ^bb0(%window: f32, %best: f32, %place: i32, %found: i1):
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
    %8 = arith.subi %7, %c1 : index
    %9 = arith.cmpi sge, %8, %c0 : index
    %10 = arith.andi %5, %9 : i1
    %11 = arith.maxsi %2, %c0 : index
    %12 = arith.minsi %11, %c8 : index
    %13 = arith.maxsi %8, %c0 : index
    %14 = arith.minsi %13, %c7 : index
    %15 = tensor.extract %Input[%i0, %i1, %12, %14] : tensor<2x3x9x8xf32>
    %16 = arith.cmpf ugt, %15, %best : f32
    %17 = arith.cmpf ord, %best, %best : f32
    %18 = arith.andi %16, %17 : i1
    %19 = arith.xori %found, %true : i1
    %20 = arith.ori %18, %19 : i1
    %21 = arith.andi %10, %20 : i1
    %22 = arith.muli %r0, %c3 : index
    %23 = arith.addi %22, %r1 : index
    %24 = arith.index_cast %23 : index to i32
    %25 = arith.select %21, %15, %best : f32
    %26 = arith.select %21, %24, %place : i32
    %27 = arith.ori %found, %21 : i1
    linalg.yield %25, %26, %27 : f32, i32, i1
  } -> (tensor<2x3x5x4xf32>, tensor<2x3x5x4xi32>, tensor<2x3x5x4xi1>)

  return %Output, %Place : tensor<2x3x5x4xf32>, tensor<2x3x5x4xi32>
}
