// The one table of settings: what each part of a configuration has, with ranges, units and help. Reading, printing, help,
// the reference and the JSON Schema are all made from it. Any thread.
#pragma once

#include "app/catalog.h"
#include "core/base/fields.h"
#include "core/pipeline/options.h"
#include "core/train/options.h"

#include <string>
#include <vector>

namespace gpipe::app {

/// The top level of a configuration, its parts not read yet.
struct Parts {
  base::Tree network, pipeline, data, train, checkpoint, output;
};

base::FieldSet<Parts> part_fields();
base::FieldSet<pipeline::PipelineOptions> pipeline_fields(const Catalog& catalog);
base::FieldSet<train::DataOptions> data_fields();
base::FieldSet<train::TrainOptions> train_fields();
base::FieldSet<train::CheckpointOptions> checkpoint_fields();
base::FieldSet<train::OutputOptions> output_fields();

/// One part of a configuration for help and schema, in the order in which a file has them.
struct Section {
  std::string name;
  std::string summary;
  base::FieldTable table;
};
std::vector<Section> config_sections(const Catalog& catalog);

/// A field of config_sections by its dotted path, "pipeline.threads"; throws BugError when there is none.
struct FoundField {
  base::FieldInfo info;
  std::string default_text;
};
FoundField find_field(const std::vector<Section>& sections, const std::string& path);

}  // namespace gpipe::app
