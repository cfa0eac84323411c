#!/bin/sh
# Builds the image with what is here: docker (with its engine), podman or buildah. Called by `make image`.
# IMAGE names it, BASE replaces the base image, BUILDER chooses between several tools.
set -eu
cd "$(dirname "$0")/.."
image=${IMAGE:?IMAGE names the image}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

usable() {
  command -v "$1" >/dev/null 2>&1 || return 1
  [ "$1" != docker ] || docker info >/dev/null 2>&1 # a client without an engine builds nothing
}

builder=${BUILDER:-}
if [ -z "$builder" ]; then
  for tool in docker podman buildah; do
    if usable "$tool"; then builder=$tool; break; fi
  done
fi
case $builder in
  docker | podman | buildah) ;;
  "") echo "make image needs docker with a running engine, podman or buildah; none is here." >&2; exit 69 ;;
  *) echo "BUILDER=$builder is none of docker, podman, buildah." >&2; exit 2 ;;
esac

echo "Building $image with $builder" >&2
set -- build --file Dockerfile --tag "$image" --build-arg "VERSION=$version" --build-arg "REVISION=$revision"
[ -z "${BASE:-}" ] || set -- "$@" --build-arg "BASE=$BASE"
if [ "$builder" = docker ]; then
  DOCKER_BUILDKIT=1 exec docker "$@" .
fi
# Labels and configuration as OCI has them. BUILDAH_LAYERS=true keeps what each step made.
exec "$builder" "$@" --format oci .
