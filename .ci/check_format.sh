#!/usr/bin/env bash
# Fails naming each file that .clang-format would change.
set -u
bad=$(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | while read -r file; do
  clang-format "$file" | cmp -s - "$file" || echo "$file"
done)
[ -z "$bad" ] && exit 0
printf 'clang-format would change:\n%s\nrun: clang-format -i FILE\n' "$bad"
exit 1
