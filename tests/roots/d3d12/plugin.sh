# Builds custom operators for ONNX Runtime that `--to ort-plugin` writes, for vkd3d's Direct3D 12 and
# for that of Windows, and runs models with the former.
set -e
made=out/plugin
mkdir -p "$made"
cp examples/silu.dml examples/hard_swish_grad.dml "$made"
exported=$(.venv/bin/python -m tests.peers.ort_models)
(
    cd "$made"
    echo "$exported" | while read -r arguments; do
        ../../.venv/bin/python -m dmlc export $arguments --shader-model 6.0 --to ort-plugin -o .
    done
)
strict="-Wall -Wextra -Werror"
cmake -S "$made" -B "$made/build" -DDMLC_ORT_DEVICE=d3d12 \
    -DCMAKE_CXX_FLAGS="$strict -I$PWD/tests/roots/d3d12 -isystem /usr/include/vkd3d"
cmake --build "$made/build"
.venv/bin/python -m tests.peers.ort_models "$made/build/dmlc_ort.so"
cmake -S "$made" -B "$made/windows" -DCMAKE_SYSTEM_NAME=Windows \
    -DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix -DCMAKE_CXX_FLAGS="$strict"
cmake --build "$made/windows"
