# Builds the C++ example with the headers that `--host cpp` writes, and runs it on Direct3D 12.
set -e
made=out/host
mkdir -p "$made"
.venv/bin/python -c "
import sys
from pathlib import Path
from examples.d3d12.generate import write
sys.exit(write(Path('$made'), '--shader-model', '6.0'))"
cp "$made"/*/*.dxil "$made"
c++ -std=gnu++17 -Wall -Wextra -Werror -Itests/roots/d3d12 -isystem /usr/include/vkd3d \
    -I"$made/ACTIVATION_RELU_GRAD" -I"$made/relu_bias_backward" \
    -o "$made/example" examples/d3d12/main.cpp -lvkd3d-utils -lvkd3d
"$made/example" "$made"
