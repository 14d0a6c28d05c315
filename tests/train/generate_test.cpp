// Generation: the position that is asked for, sampling, continuation and translation by greedy and beam search, through several
// stages. Networks with random weights.
#include "core/graph/init.h"
#include "core/pipeline/engine.h"
#include "core/train/next_token.h"
#include "core/train/translate.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>

using namespace gpipe;
using train::NextToken;

namespace {

const char* const k_language_model = R"(
- embedding: {num_embeddings: 11, embedding_dim: 8}
- positions
- residual:
    body:
    - layer_norm
    - attention: {heads: 2, causal: true}
- residual:
    body:
    - linear: {out_features: 12}
    - gelu
    - linear: {out_features: 8}
- layer_norm
- linear: {out_features: 11, init: {normal: {std: 1}}}
)";

const char* const k_translator = R"(
- embedding: {num_embeddings: 5, embedding_dim: 8}
- positions: {kind: sinusoidal}
  name: source
- attention: {heads: 2, padding: 0}
  inputs: [source, input]
  name: memory
- shift_tokens: {start: 1, padding: 0}
  inputs: target
- embedding: {num_embeddings: 5, embedding_dim: 8}
- positions: {kind: sinusoidal}
- residual:
    body:
    - attention: {heads: 2, causal: true}
  name: decoded
- attention: {heads: 2, padding: 0}
  inputs: [decoded, memory, input]
  name: crossed
- add:
  inputs: [crossed, decoded]
- linear: {out_features: 5, init: {normal: {std: 0.7}}}
)";

struct Model {
  Model(const std::string& yaml, int64_t length, int64_t vocabulary, int64_t batch, int stages, int micro_batches,
        const std::string& schedule = "gpipe")
      : network(test::token_network_of(yaml, length, vocabulary)) {
    pipeline::PipelineOptions options;
    options.partitions = stages;
    options.micro_batches = micro_batches;
    options.schedule = schedule;
    options.bind_threads = false;
    plan = pipeline::make_plan(network, {options, batch, 0, {}});
    engine = std::make_unique<pipeline::Engine>(*plan);
    for (pipeline::StateTensor* tensor : engine->tensors())
      graph::initialise(*tensor->spec, tensor->name, 5,
                        std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements())));
    engine->pack();
    next = std::make_unique<NextToken>(*engine);
  }
  graph::Network network;
  std::unique_ptr<pipeline::Plan> plan;
  std::unique_ptr<pipeline::Engine> engine;
  std::unique_ptr<NextToken> next;
};

std::vector<std::vector<int32_t>> made_sources(size_t count, int64_t longest) {
  const base::Philox random(2, base::Purpose::test);
  std::vector<std::vector<int32_t>> all(count);
  for (size_t i = 0; i < count; ++i)
    for (size_t t = 0; t < 1 + random.below(i, static_cast<uint32_t>(longest)); ++t)
      all[i].push_back(static_cast<int32_t>(1 + random.below(1000 + 64 * i + t, 4)));
  return all;
}

/// log p of each token behind `found`, for one sentence alone in the mini-batch.
std::vector<double> log_probabilities(NextToken& next, const std::vector<int32_t>& source, const std::vector<int32_t>& found) {
  std::fill(std::copy(source.begin(), source.end(), next.input(0).begin()), next.input(0).end(), 0);
  std::fill(std::copy(found.begin(), found.end(), next.target(0).begin()), next.target(0).end(), device::k_ignored_target);
  next.ask(0, static_cast<int64_t>(found.size()));
  next.run();
  std::vector<double> out;
  double sum = 0;
  for (const float x : next.logits(0)) sum += std::exp(static_cast<double>(x));
  for (const float x : next.logits(0)) out.push_back(static_cast<double>(x) - std::log(sum));
  return out;
}

std::vector<std::vector<int32_t>> tokens_of(const std::vector<train::Translation>& all) {
  std::vector<std::vector<int32_t>> tokens;
  for (const train::Translation& t : all) tokens.push_back(t.tokens);
  return tokens;
}

}  // namespace

TEST_CASE("generation: logits are those of the position that was asked for") {
  Model model(k_translator, 6, 5, 5, 2, 2);
  std::vector<int32_t> input, target;
  const base::Philox random(9, base::Purpose::test);
  for (uint64_t i = 0; i < 30; ++i) {
    input.push_back(static_cast<int32_t>(1 + random.below(i, 4)));
    target.push_back(static_cast<int32_t>(random.below(100 + i, 5)));
  }
  std::vector<float> results(10), all(5 * 6 * 5);
  pipeline::MiniBatch batch;
  batch.input = reinterpret_cast<std::byte*>(input.data());
  batch.target = reinterpret_cast<std::byte*>(target.data());
  batch.results = results.data();
  batch.predictions = all.data();
  model.engine->evaluate(batch);
  const int64_t asked[] = {0, 5, 3, 1, 3};
  for (int64_t row = 0; row < 5; ++row) {
    std::copy_n(input.begin() + 6 * row, 6, model.next->input(row).begin());
    std::copy_n(target.begin() + 6 * row, 6, model.next->target(row).begin());
    model.next->ask(row, asked[row]);
  }
  model.next->run();
  for (int64_t row = 0; row < 5; ++row)
    for (int64_t token = 0; token < 5; ++token)
      CHECK(model.next->logits(row)[static_cast<size_t>(token)] == all[static_cast<size_t>((row * 6 + asked[row]) * 5 + token)]);
}

TEST_CASE("generation: refuses networks that predict no token at each position") {
  const graph::Network network = test::network_of("- linear: {out_features: 3}", {4}, 3);
  const auto plan = pipeline::make_plan(network, {{}, 4, 0, {}});
  pipeline::Engine engine(*plan);
  CHECK_THROWS_WITH_AS(NextToken{engine}, doctest::Contains("token ids [positions], this one takes [4]"), base::ConfigError);
}

TEST_CASE("sampling: greedy takes the first of the likeliest, else as often as the softmax says") {
  const std::vector<float> logits{1, 3, 0, 3, -20};
  CHECK(train::choose_token(logits, {}, 0) == 1);
  CHECK(train::choose_token(logits, {2.0, 1, 8}, 7) == 1);
  const auto shares = [&](const train::Sampling& sampling) {
    std::map<int32_t, double> found;
    for (int64_t i = 0; i < 20000; ++i) found[train::choose_token(logits, sampling, i)] += 1.0 / 20000;
    return found;
  };
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) / temperature);
    auto found = shares({temperature, 0, 4});
    for (size_t i = 0; i < logits.size(); ++i)
      CHECK(found[static_cast<int32_t>(i)] ==
            doctest::Approx(std::exp(static_cast<double>(logits[i]) / temperature) / sum).epsilon(0.02).scale(0.5));
  }
  auto three = shares({1.0, 3, 4});
  CHECK(three.size() == 3);
  CHECK(three.count(2) == 0);
  CHECK(shares({1.0, 0, 4}) == shares({1.0, 0, 4}));
  CHECK(shares({1.0, 0, 4}) != shares({1.0, 0, 5}));
}

TEST_CASE("continuation: the same text through one stage and three, and by any schedule") {
  const std::vector<int32_t> prompt{3, 1, 4};
  for (const train::Sampling& sampling : {train::Sampling{}, train::Sampling{0.9, 6, 2}}) {
    Model one(k_language_model, 7, 11, 2, 1, 1), three(k_language_model, 7, 11, 2, 3, 2, "1f1b");
    const auto text = train::continue_text(*one.next, prompt, 25, sampling);
    REQUIRE(text.size() == 25);
    std::vector<int32_t> heard;
    CHECK(train::continue_text(*three.next, prompt, 25, sampling, [&](int32_t token) { heard.push_back(token); }) == text);
    CHECK(heard == text);
  }
}

TEST_CASE("continuation: a window slides over what is longer than the network") {
  Model model(k_language_model, 7, 11, 1, 1, 1);
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5}, seen(prompt.end() - 7, prompt.end());
  const auto text = train::continue_text(*model.next, prompt, 12, {});
  CHECK(train::continue_text(*model.next, seen, 12, {}) == text);
  // Token by token, the last seven alone.
  std::vector<int32_t> all = prompt;
  for (const int32_t token : text) {
    const std::vector<int32_t> last(all.end() - 7, all.end());
    CHECK(train::continue_text(*model.next, last, 1, {}).front() == token);
    all.push_back(token);
  }
}

TEST_CASE("translation: greedy takes the likeliest token each time; stages and places make no difference") {
  const auto sources = made_sources(13, 6);
  Model one(k_translator, 6, 5, 4, 1, 2), three(k_translator, 6, 5, 4, 3, 2, "zb_h1");
  train::BeamOptions options;
  options.end = 2;
  int64_t done = 0;
  const auto found = train::translate(*one.next, sources, options, [&](int64_t finished) { done = finished; });
  REQUIRE(found.size() == 13);
  CHECK(done == 13);
  CHECK(tokens_of(train::translate(*three.next, sources, options)) == tokens_of(found));
  size_t ended = 0;
  Model alone(k_translator, 6, 5, 1, 1, 1);
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<int32_t> tokens;
    bool end = false;
    double log_probability = 0;
    while (!end && tokens.size() < 6) {
      const auto p = log_probabilities(*alone.next, sources[i], tokens);
      const auto best = std::max_element(p.begin(), p.end());
      log_probability += *best;
      end = best - p.begin() == 2;
      if (!end) tokens.push_back(static_cast<int32_t>(best - p.begin()));
    }
    CHECK(found[i].tokens == tokens);
    CHECK(found[i].ended == end);
    CHECK(found[i].log_probability == doctest::Approx(log_probability));
    ended += end ? 1 : 0;
  }
  CHECK(ended > 0);
  CHECK(ended < 13);  // both ways to stop were seen
}

TEST_CASE("translation: a beam gives the same through any stages, and rarely worse than greedy") {
  const auto sources = made_sources(9, 6);
  Model one(k_translator, 6, 5, 8, 1, 2), three(k_translator, 6, 5, 8, 3, 4);
  train::BeamOptions options{3, 0.6, 0, 2, 0};
  const auto found = train::translate(*one.next, sources, options);
  CHECK(tokens_of(train::translate(*three.next, sources, options)) == tokens_of(found));
  options.beam = 9;
  CHECK_THROWS_WITH_AS(train::translate(*one.next, sources, options), doctest::Contains("train.batch_size"), base::ConfigError);
}

TEST_CASE("translation: a beam as wide as the tree finds the best of all sentences") {
  const auto sources = made_sources(4, 6);
  Model model(k_translator, 6, 5, 70, 1, 1);
  for (const double penalty : {0.0, 0.6, 2.0}) {
    const train::BeamOptions options{70, penalty, 3, 2, 0};
    const auto found = train::translate(*model.next, sources, options);
    for (size_t i = 0; i < sources.size(); ++i) {
      std::vector<int32_t> best;
      double best_score = -1e300;
      const std::function<void(std::vector<int32_t>, double)> visit = [&](std::vector<int32_t> tokens, double sum) {
        const auto p = log_probabilities(*model.next, sources[i], tokens);
        const double score = (sum + p[2]) / std::pow((6 + static_cast<double>(tokens.size())) / 6, penalty);
        if (score > best_score) {
          best_score = score;
          best = tokens;
        }
        if (tokens.size() == 2) return;
        for (int32_t token = 0; token < 5; ++token) {
          if (token == 2) continue;
          auto longer = tokens;
          longer.push_back(token);
          visit(longer, sum + p[static_cast<size_t>(token)]);
        }
      };
      visit({}, 0);
      CHECK(found[i].tokens == best);
      CHECK(found[i].ended);
    }
  }
}
