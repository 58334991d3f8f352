// The kernels of a plug-in's operators as DXIL, as the headers of `dmlc compile --host cpp` launch
// them.

#pragma once

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#endif

#include "dmlc_plugin.hpp"

#include <d3d12.h>

namespace dmlc_plugin {

// The kernels of an operator, as its header has them.
class D3d12Program
{
public:
    virtual ~D3d12Program() = default;
    virtual Shapes shapes() const = 0;
    // What the kernels need of a device, in words, and whether one has it.
    virtual const char* needs() const = 0;
    virtual bool is_supported(ID3D12Device* device) const = 0;
    virtual HRESULT create_pipelines(ID3D12Device* device) = 0;
    // The state of a buffer before the kernels and after them.
    virtual D3D12_RESOURCE_STATES state(std::size_t slot) const = 0;
    // Records the kernels. `buffers` has a buffer for each tensor.
    virtual HRESULT record(ID3D12GraphicsCommandList* list,
        const std::vector<ID3D12Resource*>& buffers, const std::uint64_t* sizes) const = 0;
};

// The tensors of a header as an operator has them, with the types and the symbols of the operator.
template <class Rows>
std::vector<Tensor> list_tensors(const Rows& rows, std::initializer_list<int> types,
    std::initializer_list<std::vector<int>> symbols)
{
    static_assert(static_cast<int>(decltype(rows[0].role)::constant)
        == static_cast<int>(Role::constant));
    std::vector<Tensor> made;
    for (std::size_t slot = 0; slot < rows.size(); ++slot) {
        const auto& row = rows[slot];
        Tensor tensor = {row.name, static_cast<Role>(row.role), types.begin()[slot],
            row.element_bytes, {row.sizes, row.sizes + row.rank}, symbols.begin()[slot], row.bytes,
            static_cast<const unsigned char*>(row.values), 0};
        if (row.values != nullptr) {
            tensor.value_bytes = row.element_bytes;
            for (const std::uint64_t size : tensor.sizes) {
                tensor.value_bytes *= static_cast<std::size_t>(size);
            }
        }
        made.push_back(std::move(tensor));
    }
    return made;
}

// Opens the device, and makes the pipelines of a program for it.
std::unique_ptr<Runner> run_d3d12(std::unique_ptr<D3d12Program> program);

} // namespace dmlc_plugin
