// Does this processor have what the program was built for? Asked before anything else runs.
#pragma once

namespace gpipe::app {

/// The name of an instruction set that the build uses and the processor lacks; null when there is none.
const char* missing_instruction_set();

}  // namespace gpipe::app
