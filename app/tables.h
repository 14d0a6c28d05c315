// The tables that a person reads before a run: layers, stages, transfers, and the batch arithmetic in words. Pure functions.
#pragma once

#include "app/compose.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace gpipe::app {

std::string layer_table(const graph::Network& network);
std::string stage_table(const pipeline::Plan& plan);
std::string batch_words(const Composition& composition);
/// What crosses the cuts, a line each; empty with one stage.
std::string transfer_words(const pipeline::Plan& plan);
/// The plan as plan.json has it.
nlohmann::json plan_json(const Composition& composition);

}  // namespace gpipe::app
