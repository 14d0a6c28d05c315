// The one central difference of all checks of gradients.
#pragma once

namespace gpipe::test {

/// The slope of `loss()`, a double, in `value`, which it reads; `value` is put back. The step is what the type of `value` makes
/// of it.
template <class Number, class Loss>
double central_difference(Number& value, double step, const Loss& loss) {
  const Number before = value;
  const auto above = static_cast<Number>(before + step), below = static_cast<Number>(before - step);
  value = above;
  const double high = loss();
  value = below;
  const double low = loss();
  value = before;
  return (high - low) / (static_cast<double>(above) - static_cast<double>(below));
}

}  // namespace gpipe::test
