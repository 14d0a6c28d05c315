// What the program can do: one function a verb, run by main. Each returns the exit code, or throws base::Error.
#pragma once

#include "app/catalog.h"
#include "app/cli.h"

namespace gpipe::app {

int run_train(const Command& command, const Catalog& catalog);
int run_eval(const Command& command, const Catalog& catalog);
int run_predict(const Command& command, const Catalog& catalog);
int run_plan(const Command& command, const Catalog& catalog);
int run_simulate(const Command& command, const Catalog& catalog);
int run_plan_of_costs(const Command& command, const Catalog& catalog);  // plan --costs
int run_bleu(const Command& command, const Catalog& catalog);
int run_tokenize(const Command& command, const Catalog& catalog);
int run_profile(const Command& command, const Catalog& catalog);
int run_verify(const Command& command, const Catalog& catalog);
int run_help(const Command& command, const Catalog& catalog);
int run_describe(const Command& command, const Catalog& catalog);
int run_check(const Command& command, const Catalog& catalog);
int run_config(const Command& command, const Catalog& catalog);
int run_devices(const Command& command, const Catalog& catalog);
int run_version(const Command& command, const Catalog& catalog);
int run_schema(const Command& command, const Catalog& catalog);

}  // namespace gpipe::app
