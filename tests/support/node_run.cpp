#include "tests/support/node_run.h"

#include "core/base/rng.h"
#include "layers/layer_types.h"
#include "tests/support/device_block.h"

#include <cstring>
#include <numeric>
#include <stdexcept>

namespace gpipe::test {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::TensorView;

Floats random_floats(uint64_t seed, uint64_t stream, int64_t count, float scale = 1) {
  const base::Philox philox(seed, base::Purpose::test, stream);
  Floats values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * (2 * philox.uniform(i) - 1);
  return values;
}

uint64_t seed_of(const OpCase& c) {
  uint64_t hash = 1469598103934665603ULL;
  for (char letter : c.text()) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  return hash;
}

/// Whole numbers from numbers in [0, 1).
void make_ids(const Ids& ids, uint64_t seed, uint64_t stream, Floats& values) {
  const base::Philox philox(seed, base::Purpose::test, stream);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(philox.uniform(2 * i)) < ids.share
                    ? static_cast<float>(ids.special)
                    : static_cast<float>(philox.below(2 * i + 1, static_cast<uint32_t>(ids.count)));
}

/// What the mini-batch's loss is averaged over.
int64_t count_targets(const OpCase& c, const NodeData& data) {
  int64_t count = 0;
  for (size_t micro = 0; micro < c.micro_batches.size(); ++micro)
    count += c.is_loss() && c.ids_of(1) != nullptr
                 ? std::count_if(data.inputs[micro][1].begin(), data.inputs[micro][1].end(), [](float id) { return id >= 0; })
                 : c.micro_batches[micro];
  return std::max<int64_t>(count, 1);
}

double weighted_sum(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Every byte 0xff: NaN.
void poison_bytes(device::Backend& backend, std::byte* data, size_t bytes) {
  const std::vector<unsigned char> all((bytes + 3) / 4 * 4, 0xff);
  write_bytes(backend, all.data(), backend.is_host() ? bytes : bytes / 4 * 4, data);
}

Floats read_floats(device::Backend& backend, const TensorView& view) {
  std::vector<int32_t> words(static_cast<size_t>(view.elements()));
  read_bytes(backend, view.data, view.bytes(), words.data());
  if (view.dtype == DType::i32) return Floats(words.begin(), words.end());
  Floats values(words.size());
  if (!values.empty()) std::memcpy(values.data(), words.data(), view.bytes());
  return values;
}

// A block of the backend's memory with a view in it.
class Block {
 public:
  Block(device::Backend& backend, const Shape& shape, DType type, size_t shift)
      : backend_(&backend),
        memory_(backend.allocate(static_cast<size_t>(shape.elements()) * 4 + shift + 64)),
        view_{memory_->data() + shift, shape, type} {}
  const TensorView& view() const { return view_; }
  void write(const Floats& values) const {
    const std::vector<int32_t> whole(values.begin(), view_.dtype == DType::i32 ? values.end() : values.begin());
    const void* data = values.data();
    if (view_.dtype == DType::i32) data = whole.data();
    write_bytes(*backend_, data, view_.bytes(), view_.data);
  }
  void poison() const { poison_bytes(*backend_, view_.data, view_.bytes()); }
  Floats read() const { return read_floats(*backend_, view_); }

 private:
  device::Backend* backend_;
  std::unique_ptr<device::Memory> memory_;
  TensorView view_;
};

std::vector<TensorView> views_of(const std::vector<Block>& blocks) {
  std::vector<TensorView> views;
  for (const Block& block : blocks) views.push_back(block.view());
  return views;
}

class NodeRun {
 public:
  NodeRun(const OpCase& c, const NodeData& data, const NodeOptions& options)
      : case_(c),
        data_(data),
        options_(options),
        backend_(device::open_backend(options.device, {options.threads, {}, options.precision})),
        layer_(make_layer_of(c)),
        output_shape_(layer_->output_shape(c.inputs)),
        written_(data) {
    backend_->attach_thread();
    device::Batches batches = c.micro_batches;
    std::sort(batches.rbegin(), batches.rend());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    std::array<bool, 64> wanted{};
    for (size_t i = 0; i < c.inputs.size(); ++i)
      wanted[i] = options.input_gradients && !(c.is_loss() && i == 1) && c.ids_of(i) == nullptr;
    operation_ = layer_->plan({*backend_, batches, c.inputs, output_shape_, std::span(wanted.data(), c.inputs.size())});
    wanted_.assign(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(c.inputs.size()));
    make_state();
  }

  /// What has changed in data_ since the last call is written, and only what that changes is computed again.
  double loss() {
    bool packed = !passes_.empty();
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (data_.parameters[i] != written_.parameters[i]) {
        parameters_[i].write(data_.parameters[i]);
        packed = false;
      }
    if (!packed) operation_->pack(state_, workspace_->data());
    sums_.resize(case_.micro_batches.size());
    for (size_t micro = 0; micro < sums_.size(); ++micro) {
      bool computed = packed;
      if (passes_.size() == micro) passes_.push_back(make_blocks(micro));
      MicroBlocks& blocks = passes_[micro];
      for (size_t i = 0; i < blocks.inputs.size(); ++i)
        if (data_.inputs[micro][i] != written_.inputs[micro][i]) {
          blocks.inputs[i].write(data_.inputs[micro][i]);
          computed = false;
        }
      if (computed) continue;
      const std::vector<TensorView> x = views_of(blocks.inputs);
      operation_->forward({blocks.pass, x, blocks.output.view(), blocks.saved->data(), workspace_->data()}, state_);
      sums_[micro] = weighted_sum(blocks.output.read(), data_.dy[micro]);
    }
    written_ = data_;
    return std::accumulate(sums_.begin(), sums_.end(), 0.0);
  }

  NodeResult run() {
    NodeResult result;
    operation_->pack(state_, workspace_->data());
    for (size_t micro = 0; micro < case_.micro_batches.size(); ++micro) result.micros.push_back(run_micro(micro, result));
    if (options_.evaluate) return result;
    operation_->finish_gradients(state_, workspace_->data());
    operation_->finish_mini_batch(state_);
    for (const Block& block : gradients_) result.gradients.push_back(block.read());
    for (const Block& block : buffers_) result.buffers.push_back(block.read());
    return result;
  }

 private:
  void make_state() {
    const std::vector<graph::ParameterSpec> specs = layer_->parameters(case_.inputs);
    for (size_t i = 0; i < specs.size(); ++i) {
      parameters_.emplace_back(*backend_, specs[i].shape, DType::f32, 0);
      parameters_.back().write(data_.parameters[i]);
      gradients_.emplace_back(*backend_, specs[i].shape, DType::f32, 0);
      gradients_.back().poison();
    }
    for (const graph::BufferSpec& spec : layer_->buffers(case_.inputs)) {
      buffers_.emplace_back(*backend_, spec.shape, DType::f32, 0);
      backend_->fill(buffers_.back().view(), spec.initial);
    }
    parameter_views_ = views_of(parameters_);
    gradient_views_ = views_of(gradients_);
    buffer_views_ = views_of(buffers_);
    const auto block = [&](size_t bytes) {
      std::unique_ptr<device::Memory> memory = backend_->allocate(bytes);
      poison_bytes(*backend_, memory->data(), bytes);
      return memory;
    };
    packed_ = block(operation_->packed_weight_bytes());
    packed_gradient_ = block(operation_->packed_gradient_bytes());
    batch_state_ = block(operation_->batch_state_bytes());
    workspace_ = block(operation_->workspace_bytes());
    state_ = {parameter_views_, gradient_views_, buffer_views_, packed_->data(), packed_gradient_->data(), batch_state_->data()};
  }

  /// What a micro-batch's forward pass reads and writes.
  struct MicroBlocks {
    graph::Pass pass;
    std::vector<Block> inputs;
    Block output;
    std::unique_ptr<device::Memory> saved;
  };

  MicroBlocks make_blocks(size_t micro) {
    const int64_t samples = case_.micro_batches[micro];
    MicroBlocks blocks{pass_of(case_, micro),
                       {},
                       {*backend_, output_shape_.with_batch(samples), layer_->output_type(case_.types()), options_.shift},
                       backend_->allocate(operation_->saved_bytes(samples))};
    blocks.pass.training = !options_.evaluate;
    blocks.pass.mini_batch_targets = data_.targets;
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      blocks.inputs.emplace_back(*backend_, case_.inputs[i].with_batch(samples), case_.types()[i], options_.shift);
      blocks.inputs.back().write(data_.inputs[micro][i]);
    }
    blocks.output.poison();
    return blocks;
  }

  MicroResult run_micro(size_t micro, NodeResult& all) {
    auto [pass, inputs, own_output, saved] = make_blocks(micro);
    const graph::Needs needs = operation_->needs();
    const bool over_input = options_.in_place && needs.in_place;
    const TensorView& own = own_output.view();
    const TensorView y{over_input ? inputs[0].view().data : own.data, own.shape, own.dtype};

    const std::vector<TensorView> x = views_of(inputs);
    operation_->forward({pass, x, y, saved->data(), workspace_->data()}, state_);
    MicroResult result;
    const Block& output = over_input ? inputs[0] : own_output;
    result.output = output.read();
    if (options_.evaluate) return result;
    if (options_.recompute) {
      inputs[0].write(data_.inputs[micro][0]);
      own_output.poison();
      poison_bytes(*backend_, saved->data(), saved->bytes());
      pass.recompute = true;
      operation_->forward({pass, x, y, saved->data(), workspace_->data()}, state_);
      all.recompute_differed |= !same_bits(result.output, output.read());
      pass.recompute = false;
    }

    Block dy(*backend_, y.shape, DType::f32, options_.shift);
    dy.write(data_.dy[micro]);
    std::vector<Block> dx;
    std::vector<TensorView> dx_views;
    for (size_t i = 0; i < inputs.size(); ++i) {
      dx.emplace_back(*backend_, inputs[i].view().shape, DType::f32, options_.shift);
      dx.back().poison();
      const bool over_dy = i == 0 && options_.gradient_in_place && needs.gradient_in_place;
      dx_views.push_back({!wanted_[i] ? nullptr : over_dy ? dy.view().data : dx.back().view().data, dx.back().view().shape});
    }
    std::vector<TensorView> readable;
    for (const TensorView& view : x) readable.push_back(needs.inputs || view.dtype == DType::i32 ? view : TensorView{});
    if (case_.is_loss()) readable = x;
    const graph::BackwardCall call{
        pass,     readable,          needs.output ? y : TensorView{}, saved->data(), case_.is_loss() ? TensorView{} : dy.view(),
        dx_views, workspace_->data()};
    // dx over dy destroys what backward_weight reads: a stage never does that to a node that has one.
    operation_->backward_input(call, state_);
    if (operation_->has_backward_weight()) operation_->backward_weight(call, state_);
    for (const TensorView& view : dx_views) result.dx.push_back(view ? read_floats(*backend_, view) : Floats());
    return result;
  }

  const OpCase& case_;
  const NodeData& data_;
  NodeOptions options_;
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<graph::Layer> layer_;
  Shape output_shape_;
  std::unique_ptr<graph::Operation> operation_;
  std::vector<bool> wanted_;
  std::vector<Block> parameters_, gradients_, buffers_;
  std::vector<TensorView> parameter_views_, gradient_views_, buffer_views_;
  std::unique_ptr<device::Memory> packed_, packed_gradient_, batch_state_, workspace_;
  graph::NodeState state_;
  // Of loss(), by micro-batch; and the numbers that they are of.
  std::vector<MicroBlocks> passes_;
  std::vector<double> sums_;
  NodeData written_;
};

}  // namespace

const graph::LayerType& layer_type(const std::string& name) {
  for (const graph::LayerType* type : layers::layer_types())
    if (type->name == name) return *type;
  throw std::runtime_error("no layer " + name);
}

std::unique_ptr<graph::Layer> make_layer_of(const OpCase& c) {
  base::Problems problems;
  std::unique_ptr<graph::Layer> layer = layer_type(c.type).make(c.tree(), c.type, problems);
  problems.throw_if_any();
  return layer;
}

graph::Pass pass_of(const OpCase& c, size_t micro) {
  const auto sum = [&](size_t count) {
    return std::accumulate(c.micro_batches.begin(), c.micro_batches.begin() + static_cast<std::ptrdiff_t>(count), int64_t{0});
  };
  graph::Pass pass;
  pass.seed = 5;
  pass.step = 3;
  pass.micro = static_cast<int>(micro);
  pass.first_sample = sum(micro);
  pass.samples = c.micro_batches[micro];
  pass.mini_batch_samples = sum(c.micro_batches.size());
  pass.mini_batch_targets = pass.mini_batch_samples;
  pass.node = 11;
  pass.progress = 0.75;
  return pass;
}

NodeData make_data(const OpCase& c) {
  const uint64_t seed = seed_of(c);
  const std::unique_ptr<graph::Layer> layer = make_layer_of(c);
  const Shape output = layer->output_shape(c.inputs);
  NodeData data;
  for (const graph::ParameterSpec& spec : layer->parameters(c.inputs))
    data.parameters.push_back(random_floats(seed, 1 + data.parameters.size(), spec.shape.elements()));
  for (size_t micro = 0; micro < c.micro_batches.size(); ++micro) {
    const graph::Pass pass = pass_of(c, micro);
    std::vector<Floats> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      Floats values = random_floats(seed, 100 + 10 * micro + i, pass.samples * c.inputs[i].elements(), 3);
      if (const Ids* ids = c.ids_of(i)) make_ids(*ids, seed, 500 + 10 * micro + i, values);
      inputs.push_back(std::move(values));
    }
    data.inputs.push_back(std::move(inputs));
    data.dy.push_back(random_floats(seed, 1000 + micro, pass.samples * output.elements()));
  }
  data.targets = count_targets(c, data);
  if (c.is_loss())
    for (Floats& dy : data.dy)
      for (size_t i = 0; i < dy.size(); ++i) dy[i] = i % 2 == 0 ? 1.0F / static_cast<float>(data.targets) : 0;
  return data;
}

NodeResult run_node(const OpCase& c, const NodeData& data, const NodeOptions& options) { return NodeRun(c, data, options).run(); }

std::function<double()> make_loss(const OpCase& c, const NodeData& data, const NodeOptions& options) {
  return [run = std::make_shared<NodeRun>(c, data, options)] { return run->loss(); };
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace gpipe::test
