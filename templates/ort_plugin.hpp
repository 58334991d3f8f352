// The operators of a plug-in for ONNX Runtime, as data. Each of them is a file beside this one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace dmlc_plugin {

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

// The tensors of an operator's kernels, at any sizes.
struct Shapes
{
    bool (*is_valid)(const std::uint64_t* sizes);
    std::vector<Tensor> (*tensors)(const std::uint64_t* sizes);
};

// The kernels of an operator on the device, with buffers of their own. Its functions throw
// std::runtime_error. One thread uses it at a time.
class Runner
{
public:
    virtual ~Runner() = default;
    virtual const Shapes& shapes() const = 0;
    // Makes a buffer for each of shapes().tensors(sizes), in place of those that there are.
    virtual void make_buffers(const std::vector<Tensor>& tensors, const std::uint64_t* sizes) = 0;
    // Puts a run together, in this order: what is copied into buffers, the kernels, what is copied
    // from buffers. `finish` waits for all of it, and the host's memory lives as long.
    virtual void write(std::size_t slot, const void* data, std::size_t bytes) = 0;
    virtual void launch(const std::uint64_t* sizes) = 0;
    virtual void read(std::size_t slot, void* data, std::size_t bytes) = 0;
    virtual void finish() = 0;
    // Ends a run in which something was thrown.
    virtual void abandon() noexcept = 0;
};

struct Operator
{
    const char* name;
    const char* domain;
    std::vector<const char*> symbols; // the open sizes
    bool is_counted; // the one open size counts the elements of tensors of any shape
    std::vector<const char*> attributes; // compiled in: nodes must not give them
    Shapes shapes; // of any device
    std::unique_ptr<Runner> (*load)(); // opens the device, and builds the kernels for it
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

} // namespace dmlc_plugin
