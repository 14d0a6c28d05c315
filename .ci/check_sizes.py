#!/usr/bin/env python3
"""The size rule: no file of code above 500 lines, no function above 60 (counted from its opening to its closing brace)."""
import re
import subprocess
import sys

MAX_FILE, MAX_FUNCTION = 500, 60


def long_functions(lines):
    """Bodies that open at the end of an unindented or once indented line with a parameter list, and close at its indent."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            opening = re.match(r'^( {0,2})(?!namespace|class|struct|enum|union|extern|if|for|while|switch|else|\})\S.*\)[^;]*\{$', line)
            if opening:
                start, indent = number, opening[1]
        elif re.match(rf'^{indent}\}}', line):
            if number - start + 1 > MAX_FUNCTION:
                yield start, number - start + 1
            start = None


def main():
    faults = []
    files = subprocess.check_output(['git', 'ls-files', '*.h', '*.cpp', '*.cu', '*.cuh', '*.py', '*.sh'], text=True).split()
    for path in files:
        lines = open(path, encoding='utf-8').read().splitlines()
        if len(lines) > MAX_FILE:
            faults.append(f'{path}: {len(lines)} lines, at most {MAX_FILE}: split it by what it does')
        if path.endswith(('.h', '.cpp', '.cu', '.cuh')) and not path.startswith('tests/'):
            faults += [f'{path}:{at}: a function of {length} lines, at most {MAX_FUNCTION}' for at, length in long_functions(lines)]
    print('\n'.join(faults) if faults else f'{len(files)} files keep the size rule')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
