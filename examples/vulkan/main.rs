//! Runs a program of dmlc on a Vulkan device, from Rust: see docs/how-to/vulkan-hosts.md.

mod dmlc_vulkan;
#[path = "ACTIVATION_RELU_GRAD.rs"]
mod relu_grad;

use std::path::Path;

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|each| each.to_le_bytes()).collect()
}

fn main() -> Result<(), String> {
    let host = dmlc_vulkan::Host::open("")?;
    let program = host.load(&relu_grad::PROGRAM, Path::new("."))?;
    let sizes = relu_grad::Sizes { n: 4 };
    let input = to_bytes(&[-1.0, 0.0, 2.0, 3.0]);
    let gradient = to_bytes(&[5.0, 6.0, 7.0, 8.0]);
    let outputs = program.run(&sizes, &[&input, &gradient])?;
    for value in outputs[0].chunks_exact(4) {
        print!("{} ", f32::from_le_bytes(value.try_into().unwrap()));
    }
    println!("on {}", host.name);
    Ok(())
}
