"""Direct3D 12 on Linux, in a root of Debian sid: its libvkd3d runs DXIL, those of releases do not.

`d3d12.h` and `wrl/client.h` stand for Windows' own in the C++ example.
"""
