#!/bin/sh
# Qualifies a device of this machine with dmlc, without a network: see qualify.py.
# ./qualify.sh --device vulkan
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 3
for python in "pythonPYTHON_VERSION" python3 python; do
    if command -v "$python" >/dev/null 2>&1; then
        exec "$python" -I "$here/qualify.py" "$@"
    fi
done
echo "error: there is no Python here, and this needs Python PYTHON_VERSION" >&2
exit 3
