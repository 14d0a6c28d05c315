#!/usr/bin/env python3
"""network_table.py FILE: the lines of network_bench as a table. Exit code 1: a network was not measured, or one lacks figures."""
import json
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
networks = [row for row in rows if "network" in row]
bad = [row["error"] for row in rows if "error" in row]
print(f"{'network':36}  {'precision':9}  {'K':>1}  {'samples/s':>9}  {'peak':>6}  nodes' time beside their floor")
for row in networks:
    if "error" in row:
        continue
    beside = ""
    if row["partitions"] == 1:
        parts = [node[part] for node in row["nodes"] for part in ("forward", "backward", "pack", "update")]
        if not all(part["seconds"] >= 0 and part["floor"] >= max(part["operations"], part["bytes"]) for part in parts):
            bad.append(f"{row['network']} in {row['precision']}: nodes without figures")
        beside = f"{sum(part['seconds'] for part in parts) / sum(part['floor'] for part in parts):.1f} x"
    print(f"{row['network']:36}  {row['precision']:9}  {row['partitions']}  {row['samples_per_second']:9.1f}  "
          f"{row['share_of_peak']:6.1%}  {beside}")
kinds = {row["network"] for row in networks}
for precision in sorted({row["precision"] for row in networks}):
    found = {(row["network"], row["partitions"]) for row in networks if row["precision"] == precision}
    if len(kinds) != 3 or len(found) != 6:
        bad.append(f"{precision}: wanted ResNet, AmoebaNet and Transformer with K = 1 and 2, found {sorted(found)}")
if not networks:
    bad.append("no network was measured")
for sentence in bad:
    print("error:", sentence, file=sys.stderr)
sys.exit(1 if bad else 0)
