#include "tests/support/bucket_run.h"

#include "app/yaml_tree.h"
#include "core/base/rng.h"

namespace gpipe::test {
namespace {

constexpr int64_t k_vocabulary = 9;

}  // namespace

BucketNetworks::BucketNetworks(const std::string& yaml) {
  for (const BucketLengths& bucket : k_buckets) all.push_back(token_network_of(yaml, bucket.source, k_vocabulary, bucket.target));
  base::Problems problems;
  for (size_t i = 1; i < all.size(); ++i) graph::share_parameters(all[0], all[i], problems);
  problems.throw_if_any();
}

std::unique_ptr<pipeline::Plan> BucketNetworks::plan(const pipeline::PipelineOptions& options, int slots) const {
  pipeline::PlanRequest request{options, k_bucket_batch, slots, {}};
  for (size_t i = 1; i < all.size(); ++i) request.narrower.push_back({&all[i], {}});
  return pipeline::make_plan(all[0], request);
}

BucketBatch::BucketBatch(int fits, int wide, int64_t at) : bucket(wide), step(at) {
  const base::Philox random(7, base::Purpose::test, static_cast<uint64_t>(at));
  const auto& [source, target_length] = k_buckets[static_cast<size_t>(wide)];
  const auto& [most_source, most_target] = k_buckets[static_cast<size_t>(fits)];
  const auto below = [&](size_t element, int64_t bound) { return random.below(element, static_cast<uint32_t>(bound)); };
  for (size_t n = 0; n < k_bucket_batch; ++n) {
    const int64_t tokens = 1 + below(n, most_source), answers = 1 + below(100 + n, most_target);
    for (int64_t t = 0; t < source; ++t)
      input.push_back(t < tokens ? static_cast<int32_t>(1 + below(1000 * (n + 1) + static_cast<size_t>(t), k_vocabulary - 1))
                                 : 0);
    for (int64_t t = 0; t < target_length; ++t)
      target.push_back(t < answers ? static_cast<int32_t>(below(1000 * (n + 1) + 500 + static_cast<size_t>(t), k_vocabulary))
                                   : device::k_ignored_target);
    if (n < valid) targets += answers;
  }
  results.resize(2 * k_bucket_batch);
}

pipeline::MiniBatch BucketBatch::view() {
  pipeline::MiniBatch batch;
  batch.input = reinterpret_cast<std::byte*>(input.data());
  batch.target = reinterpret_cast<std::byte*>(target.data());
  batch.results = results.data();
  batch.samples = valid;
  batch.targets = targets;
  batch.step = step;
  batch.seed = 3;
  batch.bucket = bucket;
  return batch;
}

BucketBits run_buckets(const BucketNetworks& networks, const pipeline::PipelineOptions& options, int steps) {
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0.9}", "optimizer"), "optimizer", problems);
  const auto plan = networks.plan(options);
  pipeline::Engine engine(*plan);
  initialise(engine, *optimizer, 3);
  BucketBits bits;
  constexpr std::array<int, 5> order{0, 2, 1, 1, 2};
  for (int step = 0; step < steps; ++step) {
    const int bucket = order[static_cast<size_t>(step) % order.size()];
    BucketBatch made(bucket, bucket, step);
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(step, 0.05, true));
    const pipeline::StepResult result = engine.train(made.view(), rules, 1.0);
    bits.numbers.insert(bits.numbers.end(), {result.loss, result.gradient_norm, static_cast<double>(result.hits)});
  }
  for (int bucket = 0; bucket < 3; ++bucket) {
    BucketBatch made(bucket, bucket, 100);
    engine.evaluate(made.view());
    bits.tensors.insert(bits.tensors.end(), made.results.begin(), made.results.end());
  }
  engine.fetch();
  for (const pipeline::StateTensor* tensor : engine.tensors()) {
    bits.tensors.insert(bits.tensors.end(), tensor->value.f32(), tensor->value.f32() + tensor->value.elements());
    for (const auto& slot : tensor->slots) bits.tensors.insert(bits.tensors.end(), slot.f32(), slot.f32() + slot.elements());
  }
  return bits;
}

}  // namespace gpipe::test
