// A library of custom operators for ONNX Runtime. Tensors are in the host's memory; kernels run on
// the device of dmlc_opencl.cpp or dmlc_d3d12.cpp, whichever is built beside this file.

#include "dmlc_plugin.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#ifdef _WIN32
#define DMLC_CALL __stdcall
#define DMLC_EXPORT extern "C" __declspec(dllexport)
#else
#define DMLC_CALL
#define DMLC_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// ONNX Runtime's C interface ---------------------------------------------------------------------
//
// Its wheels have no headers. The interface is a table of functions that grows at its end alone,
// and a structure of callbacks with a version: here is the part that this library uses. The layout
// is that of version 16 (ONNX Runtime 1.16), which every later release accepts.

extern "C" {
struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
struct OrtApi;

struct OrtApiBase
{
    const OrtApi*(DMLC_CALL* GetApi)(std::uint32_t version);
    const char*(DMLC_CALL* GetVersionString)();
};

struct OrtCustomOp
{
    std::uint32_t version;
    void*(DMLC_CALL* CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
    const char*(DMLC_CALL* GetName)(const OrtCustomOp*);
    const char*(DMLC_CALL* GetExecutionProviderType)(const OrtCustomOp*);
    int(DMLC_CALL* GetInputType)(const OrtCustomOp*, std::size_t);
    std::size_t(DMLC_CALL* GetInputTypeCount)(const OrtCustomOp*);
    int(DMLC_CALL* GetOutputType)(const OrtCustomOp*, std::size_t);
    std::size_t(DMLC_CALL* GetOutputTypeCount)(const OrtCustomOp*);
    void(DMLC_CALL* KernelCompute)(void*, OrtKernelContext*);
    void(DMLC_CALL* KernelDestroy)(void*);
    int(DMLC_CALL* GetInputCharacteristic)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetOutputCharacteristic)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetInputMemoryType)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetVariadicInputMinArity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicInputHomogeneity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicOutputMinArity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicOutputHomogeneity)(const OrtCustomOp*);
    OrtStatus*(DMLC_CALL* CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*,
        void**);
    OrtStatus*(DMLC_CALL* KernelComputeV2)(void*, OrtKernelContext*);
};
}

namespace {

using namespace dmlc_plugin;

constexpr std::uint32_t api_version = 16;

enum Code
{
    fail = 1,
    invalid_argument = 2,
};

// A function of ONNX Runtime's table, by its place.
template <std::size_t Place, class Result, class... Arguments>
struct Function
{
    Result operator()(const OrtApi* api, Arguments... arguments) const
    {
        using Pointer = Result(DMLC_CALL*)(Arguments...);
        Pointer function;
        std::memcpy(&function, reinterpret_cast<const char*>(api) + Place * sizeof function,
            sizeof function);
        return function(arguments...);
    }
};

constexpr Function<0, OrtStatus*, int, const char*> CreateStatus;
constexpr Function<2, const char*, const OrtStatus*> GetErrorMessage;
constexpr Function<26, OrtStatus*, const char*, OrtCustomOpDomain**> CreateCustomOpDomain;
constexpr Function<27, OrtStatus*, OrtCustomOpDomain*, const OrtCustomOp*> CustomOpDomain_Add;
constexpr Function<28, OrtStatus*, OrtSessionOptions*, OrtCustomOpDomain*> AddCustomOpDomain;
constexpr Function<51, OrtStatus*, OrtValue*, void**> GetTensorMutableData;
constexpr Function<60, OrtStatus*, const OrtTensorTypeAndShapeInfo*, int*> GetTensorElementType;
constexpr Function<61, OrtStatus*, const OrtTensorTypeAndShapeInfo*,
    std::size_t*> GetDimensionsCount;
constexpr Function<62, OrtStatus*, const OrtTensorTypeAndShapeInfo*, std::int64_t*,
    std::size_t> GetDimensions;
constexpr Function<65, OrtStatus*, const OrtValue*,
    OrtTensorTypeAndShapeInfo**> GetTensorTypeAndShape;
constexpr Function<85, OrtStatus*, const OrtKernelInfo*, const char*,
    float*> KernelInfoGetAttribute_float;
constexpr Function<86, OrtStatus*, const OrtKernelInfo*, const char*,
    std::int64_t*> KernelInfoGetAttribute_int64;
constexpr Function<87, OrtStatus*, const OrtKernelInfo*, const char*, char*,
    std::size_t*> KernelInfoGetAttribute_string;
constexpr Function<90, OrtStatus*, const OrtKernelContext*, std::size_t,
    const OrtValue**> KernelContext_GetInput;
constexpr Function<91, OrtStatus*, OrtKernelContext*, std::size_t, const std::int64_t*, std::size_t,
    OrtValue**> KernelContext_GetOutput;
constexpr Function<93, void, OrtStatus*> ReleaseStatus;
constexpr Function<99, void, OrtTensorTypeAndShapeInfo*> ReleaseTensorTypeAndShapeInfo;
constexpr Function<162, OrtStatus*, const OrtKernelInfo*, const char*, float*,
    std::size_t*> KernelInfoGetAttributeArray_float;
constexpr Function<163, OrtStatus*, const OrtKernelInfo*, const char*, std::int64_t*,
    std::size_t*> KernelInfoGetAttributeArray_int64;

const OrtApi* api = nullptr;

// What is wrong with a call, for the user of ONNX Runtime.
struct Refusal : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

void check(OrtStatus* status)
{
    if (status != nullptr) {
        const std::string message = GetErrorMessage(api, status);
        ReleaseStatus(api, status);
        throw std::runtime_error(message);
    }
}

// Runs a function, and turns what it throws into a status.
template <class Body>
OrtStatus* guard(const char* name, Body&& body) noexcept
{
    try {
        body();
        return nullptr;
    } catch (const Refusal& refusal) {
        return CreateStatus(api, invalid_argument,
            (std::string(name) + ": " + refusal.what()).c_str());
    } catch (const std::exception& error) {
        return CreateStatus(api, fail, (std::string(name) + ": " + error.what()).c_str());
    }
}

// Operators --------------------------------------------------------------------------------------

std::string spell(const std::vector<std::uint64_t>& sizes)
{
    std::string text = "[";
    for (const std::uint64_t size : sizes) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return text + "]";
}

struct Given
{
    std::vector<std::uint64_t> shape;
    const void* data;
};

Given read_input(const OrtKernelContext* context, std::size_t number)
{
    const OrtValue* value = nullptr;
    check(KernelContext_GetInput(api, context, number, &value));
    OrtTensorTypeAndShapeInfo* found = nullptr;
    check(GetTensorTypeAndShape(api, value, &found));
    struct Release
    {
        void operator()(OrtTensorTypeAndShapeInfo* info) const {
            ReleaseTensorTypeAndShapeInfo(api, info); }
    };
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, Release> info(found);
    std::size_t rank = 0;
    check(GetDimensionsCount(api, info.get(), &rank));
    std::vector<std::int64_t> dimensions(rank);
    check(GetDimensions(api, info.get(), dimensions.data(), rank));
    void* data = nullptr;
    check(GetTensorMutableData(api, const_cast<OrtValue*>(value), &data));
    return {{dimensions.begin(), dimensions.end()}, data};
}

// A node of a model.
class Node
{
public:
    Node(const Operator& own, const OrtKernelInfo* info) : own_(own)
    {
        for (const char* name : own.attributes) {
            if (has_attribute(info, name)) {
                throw Refusal(std::string("the node gives the attribute '") + name
                    + "', whose value is compiled into the kernels: leave it out, or export the "
                      "operator again with that value, or open, as an input");
            }
        }
        runner_ = own.load();
    }

    const char* name() const { return own_.name; }

    void compute(OrtKernelContext* context)
    {
        // A node may run in several threads, and its kernels and buffers are its own.
        const std::lock_guard<std::mutex> lock(mutex_);
        const std::vector<std::uint64_t> zeros(own_.symbols.size(), 0);
        const std::vector<Tensor> unsized = runner_->shapes().tensors(zeros.data());
        std::vector<Given> inputs;
        for (const Tensor& tensor : unsized) {
            if (tensor.role == Role::input) {
                inputs.push_back(read_input(context, inputs.size()));
            }
        }
        const std::vector<std::uint64_t> sizes = learn_sizes(unsized, inputs);
        try {
            if (!has_buffers_ || sizes != sizes_) {
                has_buffers_ = false;
                tensors_ = runner_->shapes().tensors(sizes.data());
                runner_->make_buffers(tensors_, sizes.data());
                sizes_ = sizes;
                has_buffers_ = true;
            }
            write_inputs(inputs);
            runner_->launch(sizes_.data());
            read_outputs(context);
            runner_->finish();
        } catch (...) {
            runner_->abandon(); // Copies from the caller's memory end before it gets it back.
            throw;
        }
    }

private:
    static bool has_attribute(const OrtKernelInfo* info, const char* name)
    {
        float real = 0;
        std::int64_t whole = 0;
        std::size_t size = 0;
        std::size_t reals = 0;
        std::size_t wholes = 0;
        const auto succeeds = [](OrtStatus* status) {
            if (status != nullptr) {
                ReleaseStatus(api, status);
            }
            return status == nullptr;
        };
        return succeeds(KernelInfoGetAttribute_float(api, info, name, &real))
            || succeeds(KernelInfoGetAttribute_int64(api, info, name, &whole))
            || succeeds(KernelInfoGetAttribute_string(api, info, name, nullptr, &size))
            || succeeds(KernelInfoGetAttributeArray_float(api, info, name, nullptr, &reals))
            || succeeds(KernelInfoGetAttributeArray_int64(api, info, name, nullptr, &wholes));
    }

    // The open sizes, from the shapes of the inputs. Throws Refusal where these do not fit.
    std::vector<std::uint64_t> learn_sizes(const std::vector<Tensor>& tensors,
        const std::vector<Given>& inputs)
    {
        std::vector<std::uint64_t> sizes(own_.symbols.size(), 0);
        std::vector<bool> known(own_.symbols.size(), false);
        if (own_.is_counted) {
            // Some inputs may have sizes of their own, such as attributes that are left open.
            std::size_t place = 0;
            for (const Tensor& tensor : tensors) {
                if (tensor.role == Role::input) {
                    if (is_counted(tensor)) {
                        break;
                    }
                    ++place;
                }
            }
            shape_ = inputs[place].shape;
            sizes[0] = 1;
            for (const std::uint64_t size : shape_) {
                sizes[0] *= size;
            }
            known[0] = true;
        }
        std::size_t number = 0;
        for (const Tensor& tensor : tensors) {
            if (tensor.role != Role::input) {
                continue;
            }
            const std::vector<std::uint64_t>& shape = inputs[number++].shape;
            if (is_counted(tensor)) {
                if (shape != shape_) {
                    throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                        + spell(shape)
                        + ", and others have " + spell(shape_) + ": all must have one shape");
                }
                continue;
            }
            if (shape.size() != tensor.sizes.size()) {
                throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                    + spell(shape) + ", "
                    + std::to_string(shape.size()) + " axes, and the kernels take "
                    + std::to_string(tensor.sizes.size()));
            }
            for (std::size_t axis = 0; axis < shape.size(); ++axis) {
                const int symbol = tensor.symbols[axis];
                if (symbol < 0) {
                    continue;
                }
                const auto place = static_cast<std::size_t>(symbol);
                if (known[place] && sizes[place] != shape[axis]) {
                    throw Refusal(std::string("axis ") + std::to_string(axis) + " of the input "
                        + tensor.name
                        + " has " + std::to_string(shape[axis]) + " elements, and the size "
                        + own_.symbols[place] + " is " + std::to_string(sizes[place])
                            + " elsewhere");
                }
                sizes[place] = shape[axis];
                known[place] = true;
            }
        }
        if (!runner_->shapes().is_valid(sizes.data())) {
            std::string text;
            for (std::size_t place = 0; place < sizes.size(); ++place) {
                text += std::string(place ? ", " : "") + own_.symbols[place] + " = "
                    + std::to_string(sizes[place]);
            }
            throw Refusal("the kernels do not take these sizes: " + text);
        }
        number = 0;
        for (const Tensor& tensor : runner_->shapes().tensors(sizes.data())) {
            if (tensor.role != Role::input) {
                continue;
            }
            const std::vector<std::uint64_t>& shape = inputs[number++].shape;
            if (!is_counted(tensor) && shape != tensor.sizes) {
                throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                    + spell(shape)
                    + ", and the kernels take " + spell(tensor.sizes));
            }
        }
        return sizes;
    }

    // Whether a tensor may have any shape with the counted number of elements.
    bool is_counted(const Tensor& tensor) const
    {
        return own_.is_counted && tensor.symbols.size() == 1 && tensor.symbols[0] == 0;
    }

    std::size_t count_bytes(const Tensor& tensor, const std::vector<std::uint64_t>& shape) const
    {
        std::size_t bytes = tensor.element_bytes;
        for (const std::uint64_t size : shape) {
            bytes *= static_cast<std::size_t>(size);
        }
        return bytes;
    }

    void write_inputs(const std::vector<Given>& inputs)
    {
        std::size_t number = 0;
        for (std::size_t slot = 0; slot < tensors_.size(); ++slot) {
            if (tensors_[slot].role != Role::input) {
                continue;
            }
            const Given& given = inputs[number++];
            const std::size_t bytes = count_bytes(tensors_[slot], given.shape);
            if (bytes > 0) {
                runner_->write(slot, given.data, bytes);
            }
        }
    }

    void read_outputs(OrtKernelContext* context)
    {
        std::size_t number = 0;
        for (std::size_t slot = 0; slot < tensors_.size(); ++slot) {
            const Tensor& tensor = tensors_[slot];
            if (tensor.role != Role::output) {
                continue;
            }
            const std::vector<std::uint64_t>& sizes = is_counted(tensor) ? shape_ : tensor.sizes;
            const std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
            OrtValue* value = nullptr;
            check(KernelContext_GetOutput(api, context, number++, shape.data(), shape.size(),
                &value));
            void* data = nullptr;
            check(GetTensorMutableData(api, value, &data));
            const std::size_t bytes = count_bytes(tensor, sizes);
            if (bytes > 0) {
                runner_->read(slot, data, bytes);
            }
        }
    }

    const Operator& own_;
    std::unique_ptr<Runner> runner_;
    std::mutex mutex_;
    bool has_buffers_ = false;
    std::vector<std::uint64_t> sizes_; // what the buffers are made for
    std::vector<std::uint64_t> shape_; // of counted tensors, in the run at hand
    std::vector<Tensor> tensors_;
};

// An operator as ONNX Runtime knows it.
struct CustomOp : OrtCustomOp
{
    const Operator& own;
    std::vector<int> inputs;
    std::vector<int> outputs;

    explicit CustomOp(const Operator& of) : OrtCustomOp{}, own(of)
    {
        const std::vector<std::uint64_t> zeros(of.symbols.size(), 0);
        for (const Tensor& tensor : of.shapes.tensors(zeros.data())) {
            if (tensor.role == Role::input) {
                inputs.push_back(tensor.element_type);
            } else if (tensor.role == Role::output) {
                outputs.push_back(tensor.element_type);
            }
        }
        version = api_version;
        GetName = [](const OrtCustomOp* op) { return of_(op).own.name; };
        GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
        GetInputType = [](const OrtCustomOp* op, std::size_t number) {
            return of_(op).inputs[number]; };
        GetInputTypeCount = [](const OrtCustomOp* op) { return of_(op).inputs.size(); };
        GetOutputType = [](const OrtCustomOp* op, std::size_t number) {
            return of_(op).outputs[number]; };
        GetOutputTypeCount = [](const OrtCustomOp* op) { return of_(op).outputs.size(); };
        KernelDestroy = [](void* node) { delete static_cast<Node*>(node); };
        GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; }; // required
        GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; };
        GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return 0; }; // the default
        GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
        GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
        GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
        GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
        CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info,
            void** made) {
            const Operator& wanted = of_(op).own;
            return guard(wanted.name, [&] { *made = new Node(wanted, info); });
        };
        KernelComputeV2 = [](void* node, OrtKernelContext* context) {
            Node& one = *static_cast<Node*>(node);
            return guard(one.name(), [&] { one.compute(context); });
        };
    }

private:
    static const CustomOp& of_(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }
};

} // namespace

DMLC_EXPORT OrtStatus* DMLC_CALL RegisterCustomOps(OrtSessionOptions* options,
    const OrtApiBase* base)
{
    api = base->GetApi(api_version);
    if (api == nullptr) {
        // Every release has version 1, and with it what errors are made of.
        return CreateStatus(base->GetApi(1), fail,
            (std::string("dmlc's operators need ONNX Runtime 1.16 or newer, and this is ")
                + base->GetVersionString()).c_str());
    }
    return guard("dmlc", [&] {
        // ONNX Runtime keeps pointers to all of these, for as long as its sessions live.
        static std::vector<std::unique_ptr<CustomOp>>& made = *new
            std::vector<std::unique_ptr<CustomOp>>;
        if (made.empty()) {
            for (const Operator& own : operators()) {
                made.push_back(std::make_unique<CustomOp>(own));
            }
        }
        std::map<std::string, OrtCustomOpDomain*> domains;
        for (const std::unique_ptr<CustomOp>& op : made) {
            OrtCustomOpDomain*& domain = domains[op->own.domain];
            if (domain == nullptr) {
                check(CreateCustomOpDomain(api, op->own.domain, &domain));
            }
            check(CustomOpDomain_Add(api, domain, op.get()));
        }
        for (const auto& [name, domain] : domains) {
            check(AddCustomOpDomain(api, options, domain));
        }
    });
}
