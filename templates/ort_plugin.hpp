// The operators of a plug-in for ONNX Runtime, as data. Each of them is a file beside this one.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace dmlc {

enum class Role
{
    input,
    output,
    scratch,  // memory between kernels
    constant, // values that every run shares
};

// A tensor, and its buffer.
struct Tensor
{
    const char* name;
    Role role;
    int element_type; // ONNXTensorElementDataType
    std::uint32_t element_bytes;
    std::vector<std::uint64_t> sizes;
    std::vector<int> symbols; // for each axis the open size that it is; -1 where it is none alone
    std::uint64_t bytes;      // the least size of the buffer
    const unsigned char* values; // of a constant
    std::size_t value_bytes;
};

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
struct Program
{
    bool (*is_valid)(const std::uint64_t* sizes);
    std::vector<Tensor> (*tensors)(const std::uint64_t* sizes);
    std::vector<Kernel> (*kernels)();
    std::vector<Launch> (*launches)(const std::uint64_t* sizes);
};

struct Operator
{
    const char* name;
    std::vector<const char*> symbols; // the open sizes
    bool is_counted; // the one open size counts the elements of tensors of any shape
    std::vector<const char*> attributes; // compiled in: nodes must not give them
    Program cpu;
    Program gpu;
};

// The operators of this plug-in.
inline std::vector<Operator>& operators()
{
    static std::vector<Operator> list;
    return list;
}

// Puts an operator into the list before the library is used.
struct Registration
{
    explicit Registration(Operator made) { operators().push_back(std::move(made)); }
};

inline bool product_fits(std::initializer_list<std::uint64_t> factors, std::uint64_t most)
{
    for (const std::uint64_t factor : factors) {
        if (factor == 0 || factor > most) {
            return false;
        }
        most /= factor;
    }
    return true;
}

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

// A kernel without groups is a version for other sizes, and is left out.
inline void add_launch(std::vector<Launch>& list, std::size_t kernel, std::uint64_t groups,
    std::vector<std::uint64_t> values)
{
    if (groups > 0) {
        list.push_back({kernel, groups, std::move(values)});
    }
}

} // namespace dmlc
