#!/bin/sh
# Copies each model of MODELS from the volume to where the model server reads, and logs a checksum of every file.
# A model that is missing is said so and left out: its server then never gets ready, and the rollout of pods stops.
set -eu
from=${FROM:-/volume}
to=${TO:-/models}
for model in ${MODELS:?MODELS names the models, divided by spaces}; do
  if [ ! -d "$from/$model" ] || [ -z "$(ls -A "$from/$model")" ]; then
    echo "MISSING $model: nothing in $from/$model; no pod gets ready without it" >&2
    continue
  fi
  mkdir -p "$to/$model"
  # Contents alone: owners and times are the volume's business.
  cp -R "$from/$model/." "$to/$model/"
  (cd "$to" && find "$model" -type f | LC_ALL=C sort | while IFS= read -r file; do sha256sum "$file"; done)
  # One figure for all of it, to be compared between pods.
  echo "$model sha256:$(cd "$to" && find "$model" -type f | LC_ALL=C sort | while IFS= read -r file; do sha256sum "$file"; done | sha256sum | cut -d ' ' -f 1)"
done
