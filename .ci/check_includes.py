#!/usr/bin/env python3
"""The dependency rule: who may include whom. Fails naming each include that goes the wrong way."""
import re
import subprocess
import sys

# A room may include itself and the rooms named here; the longest matching prefix is a file's room.
ROOMS = {
    'core/base': [],
    'core/tensor': ['core/base'],
    'core/device': ['core/base', 'core/tensor'],
    'core/device/functors': ['core/base'],
    'core/device/cpu': ['core/base', 'core/tensor', 'core/device'],
    'core/device/cuda': ['core/base', 'core/tensor', 'core/device'],
    'core/device/mpi': ['core/base', 'core/device'],
    'core/graph': ['core/base', 'core/tensor', 'core/device'],
    'core/pipeline': ['core/base', 'core/tensor', 'core/device', 'core/graph'],
    'core/train': ['core/base', 'core/tensor', 'core/device', 'core/graph', 'core/pipeline'],
    'layers': ['core/base', 'core/tensor', 'core/device', 'core/graph'],
    'data': ['core/base', 'core/tensor', 'core/train/dataset.h', 'core/train/tokenizer.h'],
    'app': ['core', 'layers', 'data'],
    'tests': ['core', 'layers', 'data', 'app'],
}
# Vendor and user-interface headers stay where their library belongs.
VENDORS = [
    (r'dnnl|oneapi', ['core/device/cpu']),
    (r'cuda|cudnn|cublas|nccl', ['core/device/cuda']),
    (r'omp\.h', ['core/device/cpu']),
    (r'mpi\.h', ['core/device/mpi']),
    (r'yaml-cpp', ['app']),
    (r'CLI/', ['app']),
    (r'graphviz/', ['app']),
    (r'jpeglib|png\.h', ['data']),
    (r'sentencepiece', ['data']),
]


def room_of(path):
    found = [room for room in ROOMS if path == room or path.startswith(room + '/')]
    return max(found, key=len, default=None)


def allowed(room, target):
    own = room_of(target)
    if own == room or any(target == name or target.startswith(name + '/') for name in [room] + ROOMS[room]):
        # A leaf of the device room is nobody's to name.
        return not (own in ('core/device/cpu', 'core/device/cuda', 'core/device/mpi') and room not in (own, 'tests'))
    return False


def main():
    files = subprocess.check_output(['git', 'ls-files', '*.h', '*.cpp', '*.cu', '*.cuh'], text=True).split()
    faults = []
    for path in files:
        room = room_of(path)
        if room is None:
            faults.append(f'{path}: lies in no room')
            continue
        for number, line in enumerate(open(path, encoding='utf-8'), 1):
            quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if quoted and not allowed(room, quoted[1]):
                faults.append(f'{path}:{number}: {room} may not include {quoted[1]}')
            angled = re.match(r'\s*#\s*include\s+<([^>]+)>', line)
            for pattern, homes in VENDORS:
                if angled and re.match(pattern, angled[1]) and room != 'tests' and not any(path.startswith(home + '/') for home in homes):
                    faults.append(f'{path}:{number}: <{angled[1]}> belongs in {" or ".join(homes)}')
    print('\n'.join(faults) if faults else f'{len(files)} files keep the dependency rule')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
