// Direct3D 12 on Linux, as programs for Windows include it: libvkd3d's, of the version that the
// example is written for.
#pragma once

#define VKD3D_UTILS_API_VERSION VKD3D_API_VERSION_1_2
#include <vkd3d_utils.h>

// The standard library has functions of these names.
#undef min
#undef max

#ifndef IID_PPV_ARGS
#define IID_PPV_ARGS(place) __uuidof(**(place)), reinterpret_cast<void**>(place)
#endif
