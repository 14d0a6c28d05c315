// oneDNN as this leaf uses it: descriptors in, runnable kernels out. The differences between oneDNN 2.6 and 3.x are all
// in this file; 2.6.3 is what the tests run against.
//
// A Kernel is made once and run many times: its memory objects are made with it, and a run only sets their addresses and
// calls the C interface, so that nothing of ours is allocated. It belongs to the thread of one stage.
#pragma once

#include "core/base/error.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>

namespace gpipe::device::cpu {

using Description = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;

inline void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw base::MemoryError("oneDNN ran out of memory in {}", what);
  throw base::BugError("oneDNN failed in {} with status {}", what, static_cast<int>(status));
}

using Type = dnnl::memory::data_type;

inline Description describe(Dims dims, Tag tag, Type type = Type::f32) { return {std::move(dims), type, tag}; }
inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
/// Bytes that a block described so takes in a larger one whose parts all start on 64 bytes.
inline size_t bytes_of(const Description& description) { return aligned(description.get_size()); }

/// All primitives take their scratchpads from the stage's arena.
inline dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

struct ConvolutionShape {
  Description x, weight, bias, y;  // bias: a zero description when there is none
  Dims strides, dilations;         // oneDNN's dilation: PyTorch's less one
  Dims padding_low, padding_high;
};

#if DNNL_VERSION_MAJOR >= 3
inline auto describe_forward(const ConvolutionShape& s, const dnnl::engine& engine) {
  return dnnl::convolution_forward::primitive_desc(engine, dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
                                                   s.x, s.weight, s.bias, s.y, s.strides, s.dilations, s.padding_low,
                                                   s.padding_high, attributes());
}
inline auto describe_backward_input(const ConvolutionShape& s, const dnnl::engine& engine,
                                    const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(engine, dnnl::algorithm::convolution_direct, s.x, s.weight, s.y,
                                                         s.strides, s.dilations, s.padding_low, s.padding_high, hint,
                                                         attributes());
}
inline auto describe_backward_weight(const ConvolutionShape& s, const dnnl::engine& engine,
                                     const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(engine, dnnl::algorithm::convolution_direct, s.x, s.weight, s.bias,
                                                            s.y, s.strides, s.dilations, s.padding_low, s.padding_high, hint,
                                                            attributes());
}
inline auto describe_matmul(const Description& a, const Description& b, const Description& bias, const Description& c,
                            const dnnl::primitive_attr& attributes, const dnnl::engine& engine) {
  return dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes);
}
inline void set_address(dnnl_memory_t memory, void* address) {
  check(dnnl_memory_set_data_handle(memory, address), "dnnl_memory_set_data_handle");
}
#else
inline auto describe_forward(const ConvolutionShape& s, const dnnl::engine& engine) {
  return dnnl::convolution_forward::primitive_desc({dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, s.x,
                                                    s.weight, s.bias, s.y, s.strides, s.dilations, s.padding_low, s.padding_high},
                                                   attributes(), engine);
}
inline auto describe_backward_input(const ConvolutionShape& s, const dnnl::engine& engine,
                                    const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(
      {dnnl::algorithm::convolution_direct, s.x, s.weight, s.y, s.strides, s.dilations, s.padding_low, s.padding_high},
      attributes(), engine, hint);
}
inline auto describe_backward_weight(const ConvolutionShape& s, const dnnl::engine& engine,
                                     const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {dnnl::algorithm::convolution_direct, s.x, s.weight, s.bias, s.y, s.strides, s.dilations, s.padding_low, s.padding_high},
      attributes(), engine, hint);
}
inline auto describe_matmul(const Description& a, const Description& b, const Description& bias, const Description& c,
                            const dnnl::primitive_attr& attributes, const dnnl::engine& engine) {
  return dnnl::matmul::primitive_desc({a, b, bias, c}, attributes, engine);
}
/// 2.x fills the padding of blocked layouts with zeros here, which is why a Kernel sets an address only when it changed.
inline void set_address(dnnl_memory_t memory, void* address) {
  check(dnnl_memory_set_data_handle_v2(memory, address, nullptr), "dnnl_memory_set_data_handle_v2");
}
#endif

/// One planned primitive with its memory objects. `run` takes the addresses in the order of the arguments given here.
class Kernel {
 public:
  struct Argument {
    int index;  // DNNL_ARG_...
    Description description;
  };

  Kernel() = default;
  template <class PrimitiveDescription>
  static Kernel plan(const PrimitiveDescription& description, dnnl::primitive primitive, const dnnl::engine& engine,
                     std::initializer_list<Argument> arguments) {
    Kernel kernel;
    kernel.primitive_ = std::move(primitive);
    for (const Argument& argument : arguments) kernel.add(argument, engine);
    kernel.scratchpad_ = description.scratchpad_desc().get_size();
    if (kernel.scratchpad_ > 0) kernel.add({DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}, engine);
    return kernel;
  }

  explicit operator bool() const { return count_ > 0; }
  size_t scratchpad_bytes() const { return aligned(scratchpad_); }

  void run(const dnnl::stream& stream, std::initializer_list<const void*> addresses, std::byte* scratchpad) {
    size_t i = 0;
    for (const void* address : addresses) place(i++, const_cast<void*>(address));
    if (scratchpad_ > 0) place(i++, scratchpad);
    GP_CHECK_EQ(i, count_);
    std::array<dnnl_exec_arg_t, capacity> arguments;
    for (i = 0; i < count_; ++i) arguments[i] = {slots_[i].index, slots_[i].memory.get()};
    check(dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(count_), arguments.data()),
          "dnnl_primitive_execute");
  }

 private:
  static constexpr size_t capacity = 6;
  struct Slot {
    int index = 0;
    dnnl::memory memory;
    void* address = nullptr;
  };

  void add(const Argument& argument, const dnnl::engine& engine) {
    GP_CHECK(count_ < capacity);
    slots_[count_++] = {argument.index, dnnl::memory(argument.description, engine, nullptr), nullptr};
  }
  void place(size_t i, void* address) {
    if (slots_[i].address == address) return;
    set_address(slots_[i].memory.get(), address);
    slots_[i].address = address;
  }

  dnnl::primitive primitive_;
  std::array<Slot, capacity> slots_;
  size_t count_ = 0;
  size_t scratchpad_ = 0;
};

/// A copy from one layout into another.
inline Kernel plan_reorder(const Description& from, const Description& to, const dnnl::engine& engine) {
  const dnnl::reorder::primitive_desc description(engine, from, engine, to, attributes());
  return Kernel::plan(description, dnnl::reorder(description), engine, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

}  // namespace gpipe::device::cpu
