// Rectified linear unit, one invocation for each element.
// dmlc: --bindings "n = OutputTensor.size"
struct Sizes { n : u32 }
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read_write> y : array<f32>;
@group(0) @binding(2) var<uniform> sizes : Sizes;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id : vec3<u32>) {
  if (id.x >= sizes.n) {
    return;
  }
  y[id.x] = select(x[id.x], 0.0, x[id.x] < 0.0);
}
