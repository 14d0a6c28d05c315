#include "core/pipeline/partition_search.h"

#include "core/base/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace gpipe::pipeline {
namespace {

__extension__ using Wide = __int128;

/// Lists that may be empty, as lists of `size`.
std::vector<int64_t> filled(const std::vector<int64_t>& list, size_t size, int64_t value) {
  if (list.empty()) return std::vector<int64_t>(size, value);
  GP_CHECK_EQ(list.size(), size);
  return list;
}

std::vector<int64_t> prefix_sums(const std::vector<int64_t>& list) {
  std::vector<int64_t> sums(list.size() + 1, 0);
  std::partial_sum(list.begin(), list.end(), sums.begin() + 1);
  return sums;
}

/// One value a boundary: 0 at both ends of the list of nodes.
template <class T>
std::vector<T> at_boundaries(const std::vector<T>& after_node, size_t nodes) {
  std::vector<T> out(nodes + 1, 0);
  for (size_t i = 0; i + 1 < nodes && i < after_node.size(); ++i) out[i + 1] = after_node[i];
  return out;
}

/// Ticks a unit: a power of ten, so that costs with few decimal places stay exactly what they are.
double ticks_for(double largest_sum, size_t nodes) {
  const double room = 0x1p31 - static_cast<double>(4 * nodes + 4);  // less what rounding may add
  if (!(largest_sum > 0)) return 1;
  double ticks = std::pow(10.0, std::min(300.0, std::floor(std::log10(room) - std::log10(largest_sum))));
  if (!std::isfinite(largest_sum) || ticks <= 0)
    throw base::ConfigError("the costs add up to {}: use a unit nearer to 1", largest_sum);
  while (ticks * largest_sum >= room) ticks /= 10;
  return ticks;
}

/// A split by its sum S of loads and its sum Q of their squares. Its variance is (K Q - S^2) / K^2.
struct Point {
  int64_t sum = 0;
  int64_t squares = 0;
  int64_t bytes = 0;
  Boundaries boundaries;
};

Wide spread(const Point& point, int stages) { return Wide{stages} * point.squares - Wide{point.sum} * point.sum; }

Boundaries walk_back(const std::vector<std::vector<int>>& from, int nodes) {
  Boundaries boundaries(from.size() + 1, nodes);
  for (size_t k = from.size(); k-- > 0;) boundaries[k] = from[k][static_cast<size_t>(boundaries[k + 1])];
  return boundaries;
}

/// Least sum over the stages of a L^2 - b L, then the fewest bytes, with loads up to `bound`.
template <class Sum>
Point least(const TickProblem& problem, Sum a, Sum b, int64_t bound) {
  struct Best {
    Sum sum;
    int64_t bytes;
    bool there;
  };
  const auto nodes = static_cast<size_t>(problem.nodes());
  const int stages = problem.stages();
  std::vector<Best> before(nodes + 1, {0, 0, false});
  before[0].there = true;
  std::vector<std::vector<int>> from(static_cast<size_t>(stages), std::vector<int>(nodes + 1, -1));
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Best> now(nodes + 1, {0, 0, false});
    for (int end = stage + 1; end <= problem.nodes() - (stages - 1 - stage); ++end) {
      if (!problem.may_end(stage, end, bound)) continue;
      Best& best = now[static_cast<size_t>(end)];
      problem.each_begin(stage, end, bound, true, [&](int begin, int64_t load, int64_t) {
        const Best& left = before[static_cast<size_t>(begin)];
        if (!left.there) return true;
        const Sum sum = left.sum + (a * load - b) * load;
        const int64_t bytes = left.bytes + problem.bytes(begin);
        if (best.there && (sum > best.sum || (sum == best.sum && bytes >= best.bytes))) return true;
        best = {sum, bytes, true};
        from[static_cast<size_t>(stage)][static_cast<size_t>(end)] = begin;
        return true;
      });
    }
    before = std::move(now);
  }
  GP_CHECK(before[nodes].there);
  Point point{0, 0, before[nodes].bytes, walk_back(from, problem.nodes())};
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int64_t load = problem.load(stage, point.boundaries[at], point.boundaries[at + 1]);
    point.sum += load;
    point.squares += load * load;
  }
  return point;
}

bool better(const Point& a, const Point& b, int stages) {
  const Wide left = spread(a, stages);
  const Wide right = spread(b, stages);
  return left != right ? left < right : a.bytes < b.bytes;
}

/// No load of a split of variance up to that of `known` can be dearer: one load x above the mean makes the others together
/// x below it, so the squares add up to at least x^2 K / (K - 1).
int64_t load_bound(const TickProblem& problem, const Point& known, int64_t bound) {
  const double k = problem.stages();
  const double mean = static_cast<double>(problem.largest_sum()) / k;
  const double reach = std::sqrt((k - 1) * static_cast<double>(spread(known, problem.stages()))) / k;
  const double most = std::ceil((mean + reach) * (1 + 1e-9)) + 1;
  return most < static_cast<double>(bound) ? static_cast<int64_t>(most) : bound;
}

/// The split of least variance where the sum of loads differs from split to split. K Q - S^2 is concave in (S, Q), so its
/// least value lies on a corner of the lower convex hull of all (S, Q), and each corner is the least of Q - m S for some
/// slope m. The hull is followed from both ends, leaving out parts that a bound rules out.
class Hull {
 public:
  Hull(const TickProblem& problem, int64_t bound) : problem_(problem), bound_(bound) {}

  Point best() {
    best_ = least<Wide>(problem_, 1, 0, std::min(bound_, least_bottleneck(problem_)));
    bound_ = load_bound(problem_, best_, bound_);
    // The best split is the least of Q - m S for m = 2 S / K, which lies between these two.
    const Ray low{least<Wide>(problem_, 1, 0, bound_), 0};
    keep(low.point);
    const int64_t steepest = 2 * problem_.largest_sum() + 2;
    const Ray high{least<Wide>(problem_, problem_.stages(), steepest, bound_),
                   static_cast<long double>(steepest) / problem_.stages()};
    keep(high.point);
    search(low, high);
    return best_;
  }

 private:
  struct Ray {
    Point point;
    long double slope = 0;  // the point is the least of Q - slope S
  };

  void keep(const Point& point) {
    if (better(point, best_, problem_.stages())) best_ = point;
  }

  /// Whether a corner between the two might be as good as the best: the tangents' crossing is below all of them.
  bool may_hold_better(const Ray& low, const Ray& high) const {
    const long double run = static_cast<long double>(high.point.sum - low.point.sum);
    const long double rise = static_cast<long double>(high.point.squares - low.point.squares);
    const long double x = (high.slope * run - rise) / (high.slope - low.slope);
    const long double sum = static_cast<long double>(low.point.sum) + std::clamp(x, 0.0L, run);
    const long double squares =
        static_cast<long double>(low.point.squares) + low.slope * (sum - static_cast<long double>(low.point.sum));
    const long double k = problem_.stages();
    const long double slack = 1e-15L * (k * squares + sum * sum) + 1;
    return k * squares - sum * sum - slack <= static_cast<long double>(spread(best_, problem_.stages()));
  }

  void search(const Ray& low, const Ray& high) {
    if (low.point.sum >= high.point.sum || !may_hold_better(low, high)) return;
    const int64_t run = high.point.sum - low.point.sum;
    const int64_t rise = high.point.squares - low.point.squares;
    const Ray middle{least<Wide>(problem_, run, rise, bound_), static_cast<long double>(rise) / static_cast<long double>(run)};
    const auto height = [&](const Point& p) { return Wide{run} * p.squares - Wide{rise} * p.sum; };
    if (height(middle.point) == height(low.point)) return;  // an edge: nothing lies below it
    keep(middle.point);
    search(low, middle);
    search(middle, high);
  }

  const TickProblem& problem_;
  int64_t bound_;
  Point best_;
};

/// Least value over all splits with loads up to `bound` of the largest `value` of a stage; k_unbounded when there is none.
template <class ValueOf>
int64_t least_largest(const TickProblem& problem, int64_t bound, bool limited, ValueOf value,
                      std::vector<std::vector<int>>* from) {
  const auto nodes = static_cast<size_t>(problem.nodes());
  const int stages = problem.stages();
  std::vector<int64_t> before(nodes + 1, k_unbounded);
  before[0] = -k_unbounded;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int64_t> now(nodes + 1, k_unbounded);
    for (int end = stage + 1; end <= problem.nodes() - (stages - 1 - stage); ++end) {
      if (!problem.may_end(stage, end, bound)) continue;
      int64_t& best = now[static_cast<size_t>(end)];
      problem.each_begin(stage, end, bound, limited, [&](int begin, int64_t load, int64_t bytes) {
        const auto [own, floor] = value(stage, begin, end, load, bytes);
        const int64_t largest = std::max(before[static_cast<size_t>(begin)], own);
        if (before[static_cast<size_t>(begin)] != k_unbounded && largest < best) {
          best = largest;
          if (from != nullptr) (*from)[static_cast<size_t>(stage)][static_cast<size_t>(end)] = begin;
        }
        return floor < best;  // longer stages are worth no less than `floor`
      });
    }
    before = std::move(now);
  }
  return before[nodes];
}

}  // namespace

TickProblem::TickProblem(const PartitionProblem& problem)
    : nodes_(static_cast<int>(problem.costs.size())), stages_(problem.stages) {
  const size_t n = problem.costs.size();
  const auto k = static_cast<size_t>(stages_);
  slowness_.assign(k, 1.0);
  for (size_t s = 0; s < problem.speeds.size(); ++s) slowness_[s] = 1 / problem.speeds[s];
  equal_ = std::all_of(slowness_.begin(), slowness_.end(), [&](double slow) { return slow == slowness_[0]; });
  const double common = equal_ ? slowness_[0] : 1;  // goes into the costs, so that equal devices stay whole numbers
  if (equal_) slowness_.assign(k, 1.0);
  const double slowest = *std::max_element(slowness_.begin(), slowness_.end());
  const double total = std::accumulate(problem.costs.begin(), problem.costs.end(), 0.0) * common;
  std::vector<double> cut_costs = at_boundaries(problem.cut_costs, n);
  std::vector<double> dearest = cut_costs;
  std::sort(dearest.rbegin(), dearest.rend());
  const double cuts = 2 * std::accumulate(dearest.begin(), dearest.begin() + static_cast<std::ptrdiff_t>(k) - 1, 0.0);
  const double ticks = ticks_for(total * slowest + cuts, n);
  prefix_.assign(n + 1, 0);
  for (size_t i = 0; i < n; ++i) prefix_[i + 1] = prefix_[i] + std::llround(problem.costs[i] * common * ticks);
  for (const double cost : cut_costs) cuts_.push_back(std::llround(cost * ticks));
  has_cuts_ = std::any_of(cuts_.begin(), cuts_.end(), [](int64_t cost) { return cost != 0; });
  largest_sum_ =
      equal_ && !has_cuts_ ? prefix_[n] : static_cast<int64_t>(std::ceil((total * slowest + cuts) * ticks)) + 3 * nodes_;
  if (!problem.spared.empty()) {
    GP_CHECK_EQ(problem.spared.size(), n);
    spared_.resize(n + 1);
    for (size_t i = 0; i < n; ++i) {
      int64_t sum = 0;
      for (const Spared& spared : problem.spared[i]) {
        const auto node = static_cast<size_t>(spared.node);
        const int64_t cost = std::min<int64_t>(std::llround(spared.cost * common * ticks), prefix_[node + 1] - prefix_[node]);
        spared_[i + 1].emplace_back(spared.node, cost);
        sum += cost;
      }
      most_spared_ = std::max(most_spared_, sum);
    }
  }
  cut_bytes_ = at_boundaries(problem.cut_bytes, n);
  const MemoryModel& memory = problem.memory;
  fixed_ = prefix_sums(filled(memory.fixed, n, 0));
  kept_ = prefix_sums(filled(memory.kept, n, 0));
  workspace_ = filled(memory.workspace, n, 0);
  live_ = filled(memory.live, k, 1);
  slots_in_ = filled(memory.slots_in, k, 0);
  slots_out_ = filled(memory.slots_out, k, 0);
  limits_ = filled(problem.memory_limits, k, 0);
  fastest_ = *std::min_element(slowness_.begin(), slowness_.end());
  for (const int64_t bytes : workspace_)
    workspace_up_to_.push_back(std::max(bytes, workspace_up_to_.empty() ? 0 : workspace_up_to_.back()));
  std::replace(limits_.begin(), limits_.end(), int64_t{0}, k_unbounded);
}

int64_t TickProblem::base(int stage, int begin, int end) const {
  int64_t cost = prefix_[static_cast<size_t>(end)] - prefix_[static_cast<size_t>(begin)];
  if (!spared_.empty())
    for (const auto& [node, spared] : spared_[static_cast<size_t>(end)])
      if (node >= begin) cost -= spared;
  return equal_ ? cost : std::llround(static_cast<double>(cost) * slowness_[static_cast<size_t>(stage)]);
}

bool TickProblem::may_end(int stage, int end, int64_t bound) const {
  if (stage == stages_ - 1) return end == nodes_;
  const double most = static_cast<double>(bound) * (1 + 1e-9) + 1;  // rounding of loads must not matter here
  const auto spared = static_cast<double>(most_spared_);
  const auto before = static_cast<double>(prefix_[static_cast<size_t>(end)]);
  const double behind = static_cast<double>(prefix_.back()) - before;
  const int stages = stage + 1;
  return (before - stages * spared) * fastest_ <= stages * most &&
         (behind - (stages_ - stages) * spared) * fastest_ <= (stages_ - stages) * most;
}

int64_t TickProblem::least_possible() const {
  int64_t dearest = 0;
  for (size_t i = 0; i + 1 < prefix_.size(); ++i) dearest = std::max(dearest, prefix_[i + 1] - prefix_[i]);
  const double mean = static_cast<double>(prefix_.back()) / stages_;
  const double least = std::max(mean, static_cast<double>(dearest)) - static_cast<double>(most_spared_);
  return static_cast<int64_t>(std::max(0.0, least) * fastest_);
}

int64_t TickProblem::held(int stage, int begin, int end) const {
  const auto [b, e, s] = std::tuple(static_cast<size_t>(begin), static_cast<size_t>(end), static_cast<size_t>(stage));
  return fixed_[e] - fixed_[b] + live_[s] * (kept_[e] - kept_[b]);
}

int64_t TickProblem::held_by_cuts(int stage, int begin, int end) const {
  const auto s = static_cast<size_t>(stage);
  return slots_in_[s] * bytes(begin) + slots_out_[s] * bytes(end);
}

int64_t least_bottleneck(const TickProblem& problem) {
  const auto within = [&](int64_t bound) {
    return least_largest(
        problem, bound, true,
        [&](int stage, int begin, int end, int64_t load, int64_t) { return std::pair(load, problem.base(stage, begin, end)); },
        nullptr);
  };
  // A bound keeps stages short and leaves out most ends; the first one that has a split at all has the best one.
  const int64_t least = problem.least_possible();
  for (int64_t slack = least / 8 + 1; least + slack < problem.largest_sum(); slack *= 4)
    if (const int64_t found = within(least + slack); found != k_unbounded) return found;
  return within(k_unbounded);
}

Boundaries least_variance(const TickProblem& problem, int64_t bound) {
  if (!problem.constant_sum()) return Hull(problem, bound).best().boundaries;
  const int64_t fastest = std::min(bound, least_bottleneck(problem));
  const Point known = least<int64_t>(problem, 1, 0, fastest);
  return least<int64_t>(problem, 1, 0, load_bound(problem, known, bound)).boundaries;
}

Boundaries least_excess(const TickProblem& problem) {
  std::vector<std::vector<int>> from(static_cast<size_t>(problem.stages()),
                                     std::vector<int>(static_cast<size_t>(problem.nodes()) + 1, -1));
  least_largest(
      problem, k_unbounded, false,
      [&](int stage, int begin, int end, int64_t, int64_t bytes) {
        const int64_t limit = problem.limit(stage);
        if (limit == k_unbounded) return std::pair(-k_unbounded, -k_unbounded);
        return std::pair(bytes - limit, problem.held(stage, begin, end) - limit);
      },
      &from);
  return walk_back(from, problem.nodes());
}

}  // namespace gpipe::pipeline
