// As much of the pointers of Windows' runtime library as the example uses.
#pragma once

#include <utility>

namespace Microsoft::WRL {

template <class Interface>
class ComPtr
{
public:
    ComPtr() = default;
    ComPtr(const ComPtr& other) : object_(other.object_)
    {
        if (object_) {
            object_->AddRef();
        }
    }
    ComPtr(ComPtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    ComPtr& operator=(ComPtr other) noexcept
    {
        std::swap(object_, other.object_);
        return *this;
    }
    ~ComPtr()
    {
        if (object_) {
            object_->Release();
        }
    }

    Interface* Get() const { return object_; }
    Interface* operator->() const { return object_; }
    Interface** operator&() { return &object_; }

private:
    Interface* object_ = nullptr;
};

} // namespace Microsoft::WRL
