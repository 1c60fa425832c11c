// gatv2, forward and backward.
#include "op_calls.hpp"
#include "pyfast/cuda/gatv2.hpp"

namespace {

using namespace driver;
using namespace pyfast::cuda;
using pyfast::bfloat16;

template <class T>
pyfast::Gatv2Layer<T> layer(Arguments& a) {
    pyfast::Gatv2Layer<T> out;
    out.graph.indptr = a.array<const std::int64_t>();
    a.integer() != 0 ? static_cast<void>(out.graph.indices64 = a.array<const std::int64_t>())
                     : static_cast<void>(out.graph.indices32 = a.array<const std::int32_t>());
    out.x_src = a.array<const T>();
    out.x_dst = a.array<const T>();
    out.att = a.array<const T>();
    out.heads = a.integer();
    out.channels = a.integer();
    return out;
}

pyfast::Gatv2Options options(Arguments& a) {
    pyfast::Gatv2Options out;
    out.negative_slope = a.real();
    out.self_loops = a.integer() != 0;
    out.dropout = a.real();
    out.seed = a.integer<std::uint64_t>();
    out.masked = a.integer() != 0;
    out.mask = a.array<const std::uint8_t>();
    return out;
}

template <class T>
pyfast::Gatv2Gradients<T> gradients(Arguments& a) {
    const auto x_src = a.array<T>();
    const auto x_dst = a.array<T>();
    return {x_src, x_dst, a.array<T>()};
}

template <class T>
void forward(Arguments& a) {
    const auto arrays = layer<T>(a);
    const auto settings = options(a);
    const auto y = a.array<T>();
    const auto attention = a.array<float>();
    gatv2(arrays, settings, y, attention, queue(a));
}

template <class T>
void backward_workspace(Arguments& a) {
    const auto arrays = layer<T>(a);
    const auto settings = options(a);
    const auto out = gradients<T>(a);
    give(a, gatv2_backward_workspace(arrays, settings, out));
}

template <class T>
void backward(Arguments& a) {
    const auto arrays = layer<T>(a);
    const auto settings = options(a);
    const auto attention = a.array<const float>();
    const auto grad = a.array<const T>();
    const auto out = gradients<T>(a);
    gatv2_backward(arrays, settings, attention, grad, out, queue(a));
}

}  // namespace

void driver::add_gatv2_calls(Calls& all) {
    all["gatv2_float32"] = forward<float>;
    all["gatv2_bfloat16"] = forward<bfloat16>;
    all["gatv2_backward_float32"] = backward<float>;
    all["gatv2_backward_bfloat16"] = backward<bfloat16>;
    all["gatv2_backward_float32_workspace"] = backward_workspace<float>;
    all["gatv2_backward_bfloat16_workspace"] = backward_workspace<bfloat16>;
}
