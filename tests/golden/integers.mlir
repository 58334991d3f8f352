// average
//   takes %a: INT32[n]
//   takes %b: INT32[n]
//   takes %count: UINT32[n]
//   gives %quotient: INT32[n]
//   gives %shifted: UINT32[n]
func.func @average(%a: tensor<?xi32>, %b: tensor<?xi32>, %count: tensor<?xi32>) -> (tensor<?xi32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %i32_-2147483648 = arith.constant -2147483648 : i32
  %i32_0 = arith.constant 0 : i32
  %i32_-1 = arith.constant -1 : i32
  %i32_1 = arith.constant 1 : i32
  %i32_31 = arith.constant 31 : i32
  %n = tensor.dim %a, %c0 : tensor<?xi32>

  // %quotient: s32[i0 < n] = {
  //   v0 = %b[i0]
  //   div(add(%a[i0], v0), min(v0, -2147483648:s32))
  // }
  %quotient.empty = tensor.empty(%n) : tensor<?xi32>
  %quotient = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%a, %b : tensor<?xi32>, tensor<?xi32>) outs(%quotient.empty : tensor<?xi32>) {
  ^bb0(%a.in: i32, %b.in: i32, %out: i32):
    %0 = arith.addi %a.in, %b.in : i32
    %1 = arith.minsi %b.in, %i32_-2147483648 : i32
    %2 = arith.cmpi eq, %1, %i32_0 : i32
    %3 = arith.cmpi eq, %1, %i32_-1 : i32
    %4 = arith.ori %2, %3 : i1
    %5 = arith.select %4, %i32_1, %1 : i32
    %6 = arith.divsi %0, %5 : i32
    %7 = arith.subi %i32_0, %0 : i32
    %8 = arith.select %3, %7, %6 : i32
    %9 = arith.select %2, %i32_0, %8 : i32
    linalg.yield %9 : i32
  } -> tensor<?xi32>

  // %shifted: u32[i0 < n] = {
  //   v0 = %count[i0]
  //   shift_left(v0, bit_and(v0, 31:u32))
  // }
  %shifted.empty = tensor.empty(%n) : tensor<?xi32>
  %shifted = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%count : tensor<?xi32>) outs(%shifted.empty : tensor<?xi32>) {
  ^bb0(%count.in: i32, %out: i32):
    %0 = arith.andi %count.in, %i32_31 : i32
    %1 = arith.andi %0, %i32_31 : i32
    %2 = arith.shli %count.in, %1 : i32
    linalg.yield %2 : i32
  } -> tensor<?xi32>

  return %quotient, %shifted : tensor<?xi32>, tensor<?xi32>
}
