// For the files of the schedules: a schedule from its rows.
#pragma once

#include "core/pipeline/schedule.h"

namespace gpipe::pipeline {

using StreamRow = std::unique_ptr<RowStream> (*)(const ScheduleRequest& request, int device);

/// All rows of K devices with `chunks` stages each, going round the devices.
Schedule collect_rows(const ScheduleRequest& request, int chunks, StreamRow stream);

}  // namespace gpipe::pipeline
