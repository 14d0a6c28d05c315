#!/usr/bin/env bash
# One run for each learning rate, then a table from their result.json files, best first. More arguments go to every run:
# bash configs/sweeps/learning_rate.sh configs/digits.yaml runs/sweep --set train.seed=2
config=$1 folder=$2
shift 2
train=${GPIPE_TRAIN:-bash app/run.sh}
for rate in 0.01 0.03 0.1 0.3; do
  $train train "$config" --quiet --output "$folder/$rate" --set train.learning_rate=$rate "$@" || echo "$rate: exit code $?" >&2
done
python3 - "$folder" <<'PY'
import json, pathlib, sys
runs = [(path.parent.name, json.loads(path.read_text())) for path in pathlib.Path(sys.argv[1]).glob("*/result.json")]
number = lambda run, key: (run.get("validation") or {}).get(key) or 0
print(f"{'rate':>6}  {'status':10}  {'accuracy':>8}  {'loss':>7}  {'seconds':>7}")
for rate, run in sorted(runs, key=lambda named: -number(named[1], "accuracy")):
    print(f"{rate:>6}  {run['status']:10}  {number(run, 'accuracy'):8.4f}  {number(run, 'loss'):7.4f}  {run['seconds']:7.1f}")
PY
