# Sourced by app/run.sh, tests/run.sh and .ci/run: installs what is missing, configures and builds a preset once.
# GPIPE_BUILD_ROOT says where build trees go; by default a folder a checkout in the user's cache.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian packages of cmake/packages.txt that dpkg does not know as installed; a second call asks nothing of the network.
install_packages() {
  local wanted missing sudo=
  wanted=$(sed 's/#.*//' "$root/cmake/packages.txt" | tr -s ' \n' '\n' | grep . || true)
  missing=$(for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
  done)
  [ -z "$missing" ] && return 0
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing: $(echo $missing)" >&2
  $sudo apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >&2
}

# build PRESET TARGET...: sets $tree. Says nothing unless something has to be built.
build() {
  local preset=$1
  shift
  if [ -z "${GPIPE_BUILD_ROOT:-}" ]; then
    GPIPE_BUILD_ROOT=${XDG_CACHE_HOME:-$HOME/.cache}/gpipe-train/$(echo "$root" | cksum | cut -d' ' -f1)
  fi
  GPIPE_BUILD_ROOT=$(realpath -m "$GPIPE_BUILD_ROOT")
  export GPIPE_BUILD_ROOT
  tree=$GPIPE_BUILD_ROOT/$preset
  mkdir -p "$GPIPE_BUILD_ROOT"
  if [ ! -f "$tree/build.ninja" ]; then
    cmake -S "$root" --preset "$preset" >"$GPIPE_BUILD_ROOT/$preset.configure.log" 2>&1 || {
      cat "$GPIPE_BUILD_ROOT/$preset.configure.log" >&2
      return 1
    }
  fi
  [ -f "$tree/.ninja_log" ] || echo "building $preset, some minutes; $GPIPE_BUILD_ROOT/$preset.build.log says what" >&2
  ninja -C "$tree" -j "$(nproc)" "$@" >"$GPIPE_BUILD_ROOT/$preset.build.log" 2>&1 || {
    grep -E 'error|FAILED' "$GPIPE_BUILD_ROOT/$preset.build.log" >&2 || cat "$GPIPE_BUILD_ROOT/$preset.build.log" >&2
    return 1
  }
}
