// Catalog: every list that a configuration chooses from, as names, summaries and field tables. Made once by main and
// passed on; what reads, explains or describes a configuration walks it, so a new entry of a list needs no line here.
#pragma once

#include "core/base/fields.h"

#include <string>
#include <vector>

namespace gpipe::app {

struct CatalogEntry {
  std::string name;
  std::string summary;
  base::FieldTable fields;
};

/// An empty list means "not known here": a choice from it is then taken as it stands.
struct Catalog {
  std::vector<CatalogEntry> layers;
  std::vector<CatalogEntry> composites;
  std::vector<CatalogEntry> losses;
  std::vector<CatalogEntry> datasets;
  std::vector<CatalogEntry> optimizers;
  std::vector<CatalogEntry> rates;
  std::vector<CatalogEntry> schedules;
};

/// The lists of this program.
Catalog make_catalog();

std::vector<std::string> names_of(const std::vector<CatalogEntry>& entries);

}  // namespace gpipe::app
