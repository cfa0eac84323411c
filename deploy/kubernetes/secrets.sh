#!/bin/sh
# Prints the Secrets that the manifests name, from a folder that tools/make_secrets.py made:
#   deploy/kubernetes/secrets.sh FOLDER | kubectl apply --namespace understudy --filename -
# With --dev-stores before FOLDER also those of the Postgres and the Redis of overlays/dev, with the passwords of all logins;
# with --agents that of components/agent-sidecar.
# Nothing is written, and no secret is an argument of a process.
set -eu
stores=
agents=
while :; do
  case "${1:-}" in
    --dev-stores) stores=yes ;;
    --agents) agents=yes ;;
    *) break ;;
  esac
  shift
done
if [ "$#" -ne 1 ] || [ ! -d "$1" ]; then
  echo "usage: $0 [--dev-stores] [--agents] FOLDER: the folder that tools/make_secrets.py made" >&2
  exit 2
fi
folder=$1

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
# Production pages on-call; put your own key there.
[ ! -f "$folder/pagerduty_routing_key" ] || set -- "$@" --from-file="pagerduty-routing-key=$folder/pagerduty_routing_key"
secret understudy-monitor "$@"
secret understudy-retention --from-file="database-url=$folder/retention_url"
[ -z "$agents" ] || secret understudy-agent --from-file="database-url=$folder/agent_url"
[ -n "$stores" ] || exit 0
set --
for login in postgres owner proxy monitor retention engineer agent; do
  set -- "$@" --from-file="$folder/${login}_password"
done
secret understudy-postgres "$@"
secret understudy-redis --from-file="acl=$folder/redis_acl" --from-file="password=$folder/redis_password"
