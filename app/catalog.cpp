#include "app/catalog.h"

#include "core/graph/builder.h"
#include "core/pipeline/schedule.h"
#include "core/train/optimizer.h"
#include "core/train/rate.h"
#include "data/dataset_types.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

namespace gpipe::app {
namespace {

/// Every list of types says name, summary and fields in the same words.
template <class Types>
std::vector<CatalogEntry> entries_of(const Types& types) {
  std::vector<CatalogEntry> entries;
  for (const auto* type : types) entries.push_back({type->name, type->summary, type->fields()});
  return entries;
}

}  // namespace

Catalog make_catalog() {
  Catalog catalog;
  for (const graph::LayerType* type : layers::layer_types()) {
    auto& list = type->is_loss ? catalog.losses : catalog.layers;
    list.push_back({type->name, type->summary, type->fields()});
  }
  catalog.composites = entries_of(layers::composite_types());
  catalog.datasets = entries_of(data::dataset_types());
  catalog.optimizers = entries_of(train::optimizer_types());
  catalog.rates = entries_of(train::rate_types());
  for (const pipeline::ScheduleType& type : pipeline::schedule_types()) {
    catalog.schedules.push_back({type.name, type.summary, {type.name, {}, {}}});
  }
  return catalog;
}

std::vector<std::string> names_of(const std::vector<CatalogEntry>& entries) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : entries) names.push_back(entry.name);
  return names;
}

}  // namespace gpipe::app
