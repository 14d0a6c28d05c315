#!/usr/bin/env bash
# Builds and runs the tests. tests/run.sh [--preset release|asan|tsan] [ctest arguments, e.g. -L default -R pipeline]
# tests/run.sh --gpu: every node and the pipeline on the GPUs of this machine, then some under compute-sanitizer if it is there,
# then how fast whole networks are, as JSON lines in a file that is named at the end.
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
preset=release
if [ "${1:-}" = --preset ]; then
  preset=$2
  shift 2
fi
install_packages
if [ "${1:-}" = --gpu ]; then
  build gpu gpipe-train test_gpu network_bench
  "$tree/gpipe-train" devices
  ctest --test-dir "$tree" --output-on-failure -L gpu
  if command -v compute-sanitizer >/dev/null; then
    compute-sanitizer --error-exitcode 1 "$tree/tests/test_gpu" --test-case="*second run*"
  fi
  "$tree/tests/bench/network_bench" --device cuda >"$tree/network_bench.jsonl"
  echo "how fast: $tree/network_bench.jsonl"
  exit
fi
targets=all
if [ "$preset" = tsan ]; then  # the tests that run threads of ours
  targets=thread_tests
  set -- -L thread "$@"
fi
build "$preset" $targets
# libgomp, libdnnl and what Graphviz draws with are not built with the sanitizer's run time; what they allocate for good is no
# leak of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} LSAN_OPTIONS=suppressions=$root/tests/support/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$root/tests/support/tsan.supp:halt_on_error=1} UBSAN_OPTIONS=print_stacktrace=1
exec ctest --test-dir "$tree" --output-on-failure -j 2 -LE gpu "$@"
