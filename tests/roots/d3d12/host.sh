# Builds the C++ example with the headers that `--host cpp` writes, and runs it on Direct3D 12.
set -e
made=out/host
mkdir -p "$made"
compile() {
    .venv/bin/python -m dmlc compile "$@" --target hlsl --shader-model 6.0 --host cpp
}
compile directml.ACTIVATION_RELU_GRAD -o "$made/ACTIVATION_RELU_GRAD"
compile examples/d3d12/relu_bias_backward.dml --dim N=10000 --dim C=48 -o "$made/relu_bias_backward"
cp "$made"/*/*.dxil "$made"
c++ -std=gnu++17 -Wall -Wextra -Werror -Itests/roots/d3d12 -isystem /usr/include/vkd3d \
    -I"$made/ACTIVATION_RELU_GRAD" -I"$made/relu_bias_backward" \
    -o "$made/example" examples/d3d12/main.cpp -lvkd3d-utils -lvkd3d
"$made/example" "$made"
