// The names of interfaces by which objects are asked for, where a program is no single file.

#pragma once

#include <d3d12.h>
#include <dxguids/dxguids.h>

namespace mock {

template <class Interface>
inline const GUID identity = uuidof<Interface>();

} // namespace mock

// What __uuidof stands for here, where the headers leave it open.
template <typename Interface>
constexpr const GUID& __wsl_stub_uuidof()
{
    return mock::identity<Interface>;
}
