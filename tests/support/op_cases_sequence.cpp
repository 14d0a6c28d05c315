// Cases of what works on sequences: embedding, positions, shifted tokens, attention.
#include "tests/support/op_cases.h"

#include <fmt/format.h>

namespace gpipe::test {
namespace {

using Micros = std::vector<int64_t>;

void add_embeddings(std::vector<OpCase>& cases) {
  for (int64_t rows : {1, 2, 5, 17})
    for (int64_t columns : {1, 3, 16, 18})
      for (const Micros& micros : {Micros{2}, Micros{2, 1}})
        cases.push_back({"embedding",
                         fmt::format("{{num_embeddings: {}, embedding_dim: {}}}", rows, columns),
                         {{columns % 4 + 1}},
                         micros,
                         false,
                         {{0, rows}}});
  cases.push_back({"embedding",
                   "{num_embeddings: 5, embedding_dim: 3, padding_idx: 2, scale: 1.7}",
                   {{7}},
                   {2, 1, 1},
                   false,
                   {{0, 5, 2, 0.3}}});
  cases.push_back({"embedding", "{num_embeddings: 300, embedding_dim: 70, scale: 8}", {{65}}, {3, 2}, true, {{0, 300, 7, 0.3}}});
}

void add_positions(std::vector<OpCase>& cases) {
  for (const char* arguments : {"", "{max_length: 9}", "{kind: sinusoidal}"})
    for (const tensor::Shape& shape : {tensor::Shape{1, 1}, tensor::Shape{2, 5}, tensor::Shape{7, 3}, tensor::Shape{9, 16}})
      for (const Micros& micros : {Micros{2}, Micros{2, 1}}) cases.push_back({"positions", arguments, {shape}, micros});
  cases.push_back({"positions", "{max_length: 70}", {{65, 33}}, {3, 2}, true});
}

void add_shifts(std::vector<OpCase>& cases) {
  for (int64_t length : {1, 2, 3, 5, 8, 17, 33})
    for (const Micros& micros : {Micros{1}, Micros{3, 2}, Micros{2, 2}})
      cases.push_back({"shift_tokens", "{start: 2, padding: 1}", {{length}}, micros, false, {{0, 9, -100, 0.3}}});
}

/// Self-attention and cross-attention; odd lengths, head sizes that fill no vector, masks, dropout.
void add_attention(std::vector<OpCase>& cases) {
  for (const char* arguments : {"heads: 1", "heads: 2", "heads: 3, head_dim: 5", "heads: 2, bias: false"})
    for (const char* more : {"", ", causal: true", ", dropout: 0.3", ", causal: true, dropout: 0.2"})
      for (const Micros& micros : {Micros{2}, Micros{2, 1}})
        cases.push_back({"attention", fmt::format("{{{}{}}}", arguments, more), {{5, 6}}, micros});
  for (int64_t length : {1, 2, 3, 17}) cases.push_back({"attention", "{heads: 2, causal: true}", {{length, 4}}, {1, 1}});
  const auto masked = [&](const std::string& arguments, std::vector<tensor::Shape> inputs, const Micros& micros, double share,
                          bool large = false) {
    const size_t last = inputs.size() - 1;
    cases.push_back({"attention", arguments, std::move(inputs), micros, large, {{last, 9, 7, share}}});
  };
  for (const Micros& micros : {Micros{2}, Micros{2, 1}}) {
    masked("{heads: 2, padding: 7}", {{5, 6}, {5}}, micros, 0.4);
    masked("{heads: 2, padding: 7, causal: true, dropout: 0.2}", {{5, 6}, {5}}, micros, 0.4);
    masked("{heads: 1, padding: 7}", {{3, 4}, {3}}, micros, 1);  // nobody sees anything
    masked("{heads: 2, padding: 7}", {{3, 4}, {6, 4}, {6}}, micros, 0.4);
    cases.push_back({"attention", "{heads: 2}", {{4, 6}, {3, 6}}, micros});
    cases.push_back({"attention", "{heads: 3, head_dim: 3, bias: false, dropout: 0.3}", {{2, 6}, {7, 6}}, micros});
  }
  cases.push_back({"attention", "{heads: 2, causal: true}", {{150, 32}}, {2, 1}, true});
  cases.push_back({"attention", "{heads: 3, head_dim: 17, dropout: 0.3}", {{130, 20}, {67, 20}}, {2}, true});
  masked("{heads: 2, head_dim: 64, causal: true, dropout: 0.1, padding: 7}", {{129, 16}, {129}}, {2, 1}, 0.3, true);
  masked("{heads: 2, padding: 7}", {{70, 16}, {200, 16}, {200}}, {2}, 0.6, true);
}

}  // namespace

void add_sequence_cases(std::vector<OpCase>& cases) {
  add_embeddings(cases);
  add_positions(cases);
  add_shifts(cases);
  add_attention(cases);
}

}  // namespace gpipe::test
