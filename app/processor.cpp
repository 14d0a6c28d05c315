#include "app/processor.h"

namespace gpipe::app {

const char* missing_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#ifdef __AVX2__
  if (__builtin_cpu_supports("avx2") == 0) return "AVX2";
#endif
#ifdef __FMA__
  if (__builtin_cpu_supports("fma") == 0) return "FMA";
#endif
#ifdef __AVX512F__
  if (__builtin_cpu_supports("avx512f") == 0) return "AVX-512F";
#endif
#ifdef __AVX512BW__
  if (__builtin_cpu_supports("avx512bw") == 0) return "AVX-512BW";
#endif
#ifdef __AVX512VL__
  if (__builtin_cpu_supports("avx512vl") == 0) return "AVX-512VL";
#endif
#endif
  return nullptr;
}

}  // namespace gpipe::app
