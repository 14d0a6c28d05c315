#include "core/train/translate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace gpipe::train {
namespace {

/// A next token of one of the live hypotheses.
struct Candidate {
  size_t parent = 0;
  int32_t token = 0;
  double log_probability = 0;  // of the whole hypothesis
};

/// The better one first; of equals the earlier parent, then the lower token.
bool better(const Candidate& a, const Candidate& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
}

/// The search for one sentence. A hypothesis ends when its end token is among the best `beam` candidates of a step; the search,
/// when `beam` hypotheses have ended or the length is used up. With a beam of 1 that is the greedy choice.
class Search {
 public:
  Search(const BeamOptions& options, int64_t length) : options_(options), length_(length), live_(1) {}

  const std::vector<Translation>& live() const { return live_; }

  /// `logits(i)`: those behind live hypothesis i. False when the search is over.
  template <class Logits>
  bool step(Logits logits) {
    const auto beam = static_cast<size_t>(options_.beam);
    std::vector<Candidate> candidates;
    for (size_t parent = 0; parent < live_.size(); ++parent) extend(parent, logits(parent), candidates);
    const size_t count = std::min(candidates.size(), 2 * beam);  // as many, should half of them be ends
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(), better);
    std::vector<Translation> next;
    for (size_t rank = 0; rank < count && next.size() < beam; ++rank) {
      const Candidate& candidate = candidates[rank];
      Translation made = live_[candidate.parent];
      made.log_probability = candidate.log_probability;
      made.ended = candidate.token == options_.end;
      if (!made.ended) {
        made.tokens.push_back(candidate.token);
        next.push_back(std::move(made));
      } else if (rank < beam) {
        finished_.push_back(std::move(made));
      }
    }
    live_ = std::move(next);
    return static_cast<int64_t>(finished_.size()) < options_.beam && !live_.empty() && ++tokens_ < length_;
  }

  /// The best of the ended hypotheses; when none has, of the live ones.
  Translation best() {
    std::vector<Translation>& from = finished_.empty() ? live_ : finished_;
    const auto first = std::max_element(from.begin(), from.end(),
                                        [&](const Translation& a, const Translation& b) { return score(a) < score(b); });
    return std::move(*first);
  }

 private:
  /// The best 2 * beam tokens behind one hypothesis: all that can matter.
  void extend(size_t parent, std::span<const float> logits, std::vector<Candidate>& candidates) const {
    const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
    const double base = live_[parent].log_probability - top - std::log(sum);
    std::vector<Candidate> own(logits.size());
    for (size_t i = 0; i < own.size(); ++i) own[i] = {parent, static_cast<int32_t>(i), base + static_cast<double>(logits[i])};
    const size_t count = std::min(own.size(), static_cast<size_t>(2 * options_.beam));
    std::partial_sort(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count), own.end(), better);
    candidates.insert(candidates.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count));
  }

  double score(const Translation& t) const {
    const double tokens = static_cast<double>(t.tokens.size()) + (t.ended ? 1 : 0);
    return t.log_probability / std::pow((5 + tokens) / 6, options_.length_penalty);
  }

  const BeamOptions& options_;
  int64_t length_;
  int64_t tokens_ = 0;  // of each live hypothesis
  std::vector<Translation> live_, finished_;
};

/// A place for one sentence: `beam` rows of the mini-batch.
struct Place {
  std::optional<Search> search;
  size_t sentence = 0;
};

class Translator {
 public:
  Translator(NextToken& next, std::span<const std::vector<int32_t>> sources, const BeamOptions& options)
      : next_(next), sources_(sources), options_(options), places_(static_cast<size_t>(next.rows() / options.beam)) {
    length_ = options.length > 0 ? std::min(options.length, next.target_length()) : next.target_length();
  }

  std::vector<Translation> run(const std::function<void(int64_t)>& done) {
    std::vector<Translation> all(sources_.size());
    int64_t finished = 0;
    while (fill() > 0) {
      for (size_t place = 0; place < places_.size(); ++place) write(place);
      next_.run();
      for (size_t place = 0; place < places_.size(); ++place) {
        std::optional<Search>& search = places_[place].search;
        if (!search || search->step([&](size_t i) { return next_.logits(row(place, i)); })) continue;
        all[places_[place].sentence] = search->best();
        search.reset();
        ++finished;
      }
      if (done) done(finished);
    }
    return all;
  }

 private:
  int64_t row(size_t place, size_t hypothesis) const {
    return static_cast<int64_t>(place) * options_.beam + static_cast<int64_t>(hypothesis);
  }

  /// Free places take the next sentences; how many are at work.
  size_t fill() {
    size_t working = 0;
    for (size_t place = 0; place < places_.size(); ++place) {
      if (!places_[place].search && sentence_ < sources_.size()) {
        places_[place].search.emplace(options_, length_);
        places_[place].sentence = sentence_;
        const std::vector<int32_t>& source = sources_[sentence_++];
        for (size_t i = 0; i < static_cast<size_t>(options_.beam); ++i) {
          const std::span<int32_t> to = next_.input(row(place, i));
          std::fill(std::copy(source.begin(), source.end(), to.begin()), to.end(), options_.padding);
        }
      }
      if (places_[place].search) ++working;
    }
    return working;
  }

  void write(size_t place) {
    if (!places_[place].search) return;
    const std::vector<Translation>& live = places_[place].search->live();
    for (size_t i = 0; i < live.size(); ++i) {
      const std::span<int32_t> to = next_.target(row(place, i));
      const std::vector<int32_t>& tokens = live[i].tokens;
      std::fill(std::copy(tokens.begin(), tokens.end(), to.begin()), to.end(), device::k_ignored_target);
      next_.ask(row(place, i), static_cast<int64_t>(tokens.size()));
    }
  }

  NextToken& next_;
  std::span<const std::vector<int32_t>> sources_;
  const BeamOptions& options_;
  std::vector<Place> places_;
  int64_t length_ = 0;
  size_t sentence_ = 0;  // the next one
};

}  // namespace

std::vector<Translation> translate(NextToken& next, std::span<const std::vector<int32_t>> sources, const BeamOptions& options,
                                   const std::function<void(int64_t)>& done) {
  if (options.beam > next.rows())
    throw base::ConfigError("a beam of {} does not fit into mini-batches of {} samples; raise train.batch_size", options.beam,
                            next.rows());
  for (const std::vector<int32_t>& source : sources)
    GP_CHECK(!source.empty() && static_cast<int64_t>(source.size()) <= next.input_length());
  return Translator(next, sources, options).run(done);
}

}  // namespace gpipe::train
