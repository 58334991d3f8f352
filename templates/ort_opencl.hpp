// The kernels of a plug-in's operators as OpenCL C, and what launches them.

#pragma once

#include "dmlc_plugin.hpp"

#include <array>
#include <utility>

namespace dmlc_plugin {

// A buffer argument.
struct Binding
{
    std::uint32_t argument;
    std::size_t tensor;
};

// A number that a launch gives to its kernel.
struct Scalar
{
    std::uint32_t argument;
    std::uint32_t bits;
};

struct Kernel
{
    const char* entry_point;
    bool needs_double;
    std::array<std::size_t, 3> items; // of a group
    std::vector<Binding> bindings;
    std::vector<Scalar> scalars;
    std::vector<const char*> source;
};

struct Launch
{
    std::size_t kernel;
    std::uint64_t groups;
    std::vector<std::uint64_t> values; // of the kernel's scalars
};

// The kernels of an operator for one kind of device, at any sizes.
struct OpenclProgram
{
    Shapes shapes;
    std::vector<Kernel> (*kernels)();
    std::vector<Launch> (*launches)(const std::uint64_t* sizes);
};

// A kernel without groups is a version for other sizes, and is left out.
inline void add_launch(std::vector<Launch>& list, std::size_t kernel, std::uint64_t groups,
    std::vector<std::uint64_t> values)
{
    if (groups > 0) {
        list.push_back({kernel, groups, std::move(values)});
    }
}

// Opens the device, and builds the kernels that are for it: those for processors, or the others.
std::unique_ptr<Runner> run_opencl(const OpenclProgram& cpu, const OpenclProgram& gpu);

} // namespace dmlc_plugin
