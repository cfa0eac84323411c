#!/bin/sh
# Prints the Secrets that the manifests name, from a folder that tools/make_secrets.py made:
#   deploy/kubernetes/secrets.sh FOLDER | kubectl apply --namespace understudy-dev --filename -
# Nothing is written, and no secret is an argument of a process.
set -eu
folder=${1:?the folder of the secrets}

secret() {
  name=$1
  shift
  echo "---"
  kubectl create secret generic "$name" "$@" --dry-run=client --output yaml
}

secret understudy-owner --from-file="database-url=$folder/owner_url"
secret understudy-proxy --from-file="database-url=$folder/proxy_url" \
  --from-file="control-database-url=$folder/engineer_url" --from-file="redis-url=$folder/redis_url"
set -- --from-file="database-url=$folder/monitor_url" --from-file="retention-database-url=$folder/retention_url"
# Production alerts somebody; the key is yours to put there.
[ ! -f "$folder/pagerduty_routing_key" ] || set -- "$@" --from-file="pagerduty-routing-key=$folder/pagerduty_routing_key"
secret understudy-monitor "$@"
secret understudy-retention --from-file="database-url=$folder/retention_url"
# Of the Postgres of overlays/dev alone.
set --
for login in postgres owner proxy monitor retention engineer; do
  set -- "$@" --from-file="$folder/${login}_password"
done
secret understudy-postgres "$@"
