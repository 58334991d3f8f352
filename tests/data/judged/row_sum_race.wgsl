// Wrong: no barrier stands between the stores of the parts and the sum over them.
// dmlc: --groups "X.sizes[0]"
struct Sizes { X_size1 : u32 }
@group(0) @binding(0) var<storage, read> X : array<f32>;
@group(0) @binding(1) var<storage, read_write> Y : array<f32>;
@group(0) @binding(2) var<uniform> sizes : Sizes;
var<workgroup> parts : array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3<u32>, @builtin(local_invocation_index) lane : u32) {
  var sum = 0.0;
  for (var j = lane; j < sizes.X_size1; j += 64u) {
    sum += X[group.x * sizes.X_size1 + j];
  }
  parts[lane] = sum;
  if (lane == 0u) {
    var whole = 0.0;
    for (var k = 0u; k < 64u; k += 1u) {
      whole += parts[k];
    }
    Y[group.x] = whole;
  }
}
