#!/usr/bin/env bash
# Builds and runs the tests. tests/run.sh [--preset release|asan|tsan] [ctest arguments, e.g. -L default -R pipeline]
# tests/run.sh --gpu: every node and the pipeline on the GPUs of this machine, then some under compute-sanitizer, then how fast
# whole networks are: a table, and JSON lines in a file that is named at the end. Exit code 9: there is no GPU.
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
preset=release
if [ "${1:-}" = --preset ]; then
  preset=${2:?--preset wants release, asan or tsan}
  shift 2
fi

# On the GPUs of this machine. All steps are done, whichever fails; the last line says which did.
run_on_gpus() {
  if ! nvidia-smi -L; then  # it comes with the driver
    echo "tests/run.sh --gpu: nvidia-smi shows no GPU here: run it where there is one, with its driver; without --gpu the same" \
      "tests run on emulated GPUs" >&2
    exit 9
  fi
  install_packages
  build gpu gpipe-train test_gpu network_bench
  "$tree/gpipe-train" devices
  if ! "$tree/gpipe-train" devices | grep -q '^cuda:0:'; then
    echo "tests/run.sh --gpu: CUDA finds no GPU, see the line above" >&2
    exit 9
  fi
  local failed=()
  ctest --test-dir "$tree" --output-on-failure --no-tests=error -L gpu || failed+=("ctest -L gpu")
  PATH=$PATH:/usr/local/cuda/bin
  if command -v compute-sanitizer >/dev/null; then
    sanitize memcheck "*second run*"
    sanitize memcheck "*on one GPU alone*"
    # What these look for is in kernels of ours only; in those of libraries some report what is none.
    sanitize racecheck "every node computes*" --kernel-regex kns=gpipe
    sanitize synccheck "every node computes*" --kernel-regex kns=gpipe
    sanitize initcheck "every node computes*" --kernel-regex kns=gpipe
  else
    failed+=("compute-sanitizer is not there: install the CUDA toolkit's package cuda-sanitizer")
  fi
  "$tree/tests/bench/network_bench" --device cuda >"$tree/network_bench.jsonl" || failed+=("network_bench")
  python3 "$root/tests/bench/network_table.py" "$tree/network_bench.jsonl" || failed+=("network_table.py")
  echo "each node: $tree/network_bench.jsonl"
  [ ${#failed[@]} = 0 ] && return
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
}

# sanitize TOOL CASES [OPTION...]: some cases of test_gpu under that tool of compute-sanitizer.
sanitize() {
  local tool=$1 cases=$2
  shift 2
  echo "compute-sanitizer --tool $tool: $cases"
  compute-sanitizer --tool "$tool" --error-exitcode 1 "$@" "$tree/tests/test_gpu" --test-case="$cases" ||
    failed+=("compute-sanitizer --tool $tool, $cases")
}

if [ "${1:-}" = --gpu ]; then
  run_on_gpus
  exit
fi
install_packages
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
