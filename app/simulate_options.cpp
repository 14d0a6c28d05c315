#include "app/simulate_options.h"

namespace gpipe::app {

base::FieldSet<SimulateOptions> simulate_fields() {
  using Options = SimulateOptions;
  constexpr double most_ms = 1e9;
  base::FieldSet<Options> f{"simulate"};
  f.add("--schedule", &Options::schedules).required().help("schedule to simulate; several, by commas or repeated, are compared");
  f.add("--stages", &Options::stages).range(1, 4096).required().help("number of pipeline stages K, one a device");
  f.add("--micro-batches", &Options::micro_batches).range(1, 65536).required().help("number of micro-batches M");
  f.add("--forward", &Options::forward).range(0, most_ms).unit("ms").help("forward of a micro-batch on a device");
  f.add("--backward-input", &Options::backward_input).range(0, most_ms).unit("ms").help("its backward for the input");
  f.add("--backward-weight", &Options::backward_weight).range(0, most_ms).unit("ms").help("its backward for the weights");
  f.add("--recompute", &Options::recompute).range(0, most_ms).unit("ms").help("its recompute; 0: activations are kept");
  f.add("--transfer", &Options::transfer).range(0, most_ms).unit("ms").help("from a device to the next, or back");
  f.add("--chunks", &Options::chunks).range(2, 256).help("stages a device V, of schedules that leave it open");
  f.add("--memory-limit", &Options::memory_limit)
      .range(0, 1e6)
      .unit("activations")
      .help("that a device may hold at once; 0: the schedule's own choice");
  f.add("--weight-memory-share", &Options::weight_memory_share)
      .range(0, 1)
      .help("part of an activation that stays from the backward for the input to that for the weights");
  f.add("--svg", &Options::svg).help("file to draw the timelines in");
  return f;
}

}  // namespace gpipe::app
