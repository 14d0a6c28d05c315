#!/usr/bin/env python3
"""Side by side in one run: this program and a PyTorch script on the same networks, threads, batch and micro-batches.

  peers.py GPIPE_TRAIN PEER_SCRIPT [--python /usr/bin/python3] [--rounds 3] [--networks cnn,resnet20,mlp]

PEER_SCRIPT takes MODEL --threads --batch --micro-batches --stages --seconds and prints a JSON line with samples_per_second.
The two take turns; each figure is the median of its rounds. One JSON line a network: ours, theirs, ratio; unpiped on two
threads, and on two stages of one thread beside PyTorch unpiped on two threads (and torchgpipe where it can be imported).
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, '..', '..', 'configs')


def ours(program, network, settings, steps):
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, 'run')
        command = [program, 'train', os.path.join(CONFIGS, f'speed_{network}.yaml'), '--quiet', '--output', run, '--set', f'train.steps={steps}',
                   '--set', 'output.log_every=1']
        for setting in settings:
            command += ['--set', setting]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(run, 'metrics.jsonl')) as file:
            return statistics.median([json.loads(line)['samples_per_second'] for line in file][2:])


def theirs(python, script, network, micro_batches, stages, seconds):
    command = [python, script, network, '--threads', '2', '--batch', '64', '--micro-batches', str(micro_batches), '--stages', str(stages), '--seconds',
               str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout)['samples_per_second'] if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('peer')
    parser.add_argument('--python', default='/usr/bin/python3')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--seconds', type=float, default=4)
    parser.add_argument('--networks', default='cnn,resnet20,mlp')
    a = parser.parse_args()
    unpiped = ['pipeline.partitions=1', 'pipeline.threads=2', 'pipeline.micro_batches=1', 'pipeline.rematerialize=none']
    piped = ['pipeline.partitions=2', 'pipeline.threads=1', 'pipeline.micro_batches=8']
    for network in a.networks.split(','):
        rows = dict(unpiped=[], pytorch=[], piped_kept=[], piped_recomputed=[], torchgpipe=[])
        for _ in range(a.rounds):
            rows['unpiped'].append(ours(a.program, network, unpiped, a.steps))
            rows['pytorch'].append(theirs(a.python, a.peer, network, 1, 1, a.seconds))
            rows['piped_kept'].append(ours(a.program, network, piped + ['pipeline.rematerialize=none'], a.steps))
            rows['piped_recomputed'].append(ours(a.program, network, piped + ['pipeline.rematerialize=full'], a.steps))
            rows['torchgpipe'].append(theirs(a.python, a.peer, network, 8, 2, a.seconds))
        medians = {name: statistics.median(values) if None not in values else None for name, values in rows.items()}
        ratios = {'unpiped/pytorch': medians['unpiped'] / medians['pytorch'], 'piped_kept/pytorch': medians['piped_kept'] / medians['pytorch']}
        if medians['torchgpipe']:
            ratios['piped_recomputed/torchgpipe'] = medians['piped_recomputed'] / medians['torchgpipe']
        print(json.dumps(dict(network=network, samples_per_second=medians, ratios={k: round(v, 3) for k, v in ratios.items()})), flush=True)


if __name__ == '__main__':
    main()
