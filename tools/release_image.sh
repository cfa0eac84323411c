#!/bin/sh
# Builds the image of a release, pushes it, and signs what was pushed: the image, where it comes from, and what is in it.
# Called by `make release` in the pipeline of a tag. cosign signs with the pipeline's own identity: there is no key to lose.
# IMAGE_NAME: registry and name without a tag; REGISTRY_USER, REGISTRY_PASSWORD: where the registry asks for them.
set -eu
cd "$(dirname "$0")/.."
name=${IMAGE_NAME:?IMAGE_NAME is the image with its registry, such as registry.example/shop/understudy}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
tag=${GITHUB_REF_NAME:-}
base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
registry=${name%%/*}
python=${PYTHON:-.venv/bin/python}

if [ "$tag" != "v$version" ]; then
  echo "The tag is '$tag', and the version of pyproject.toml is $version: tag the commit v$version." >&2
  exit 2
fi
if [ -n "$(git status --porcelain)" ]; then
  echo "The work tree has changes: a release is of a commit." >&2
  exit 2
fi
for tool in docker cosign; do
  command -v "$tool" >/dev/null 2>&1 || { echo "make release needs $tool." >&2; exit 69; }
done

mkdir -p build
"$python" tools/make_sbom.py requirements/image.txt > build/sbom.json
"$python" tools/make_provenance.py "$name:$version" "$base" > build/provenance.json
if [ -n "${REGISTRY_USER:-}" ]; then
  printf %s "${REGISTRY_PASSWORD:?}" | docker login --username "$REGISTRY_USER" --password-stdin "$registry"
fi
BASE='' BUILDER=docker IMAGE=$name:$version tools/build_image.sh
docker push --quiet "$name:$version"
digest=$(docker inspect --format '{{join .RepoDigests "\n"}}' "$name:$version" | sed -n "s|^$name@\(sha256:[0-9a-f]\{64\}\)$|\1|p")
: "${digest:?the registry said no digest of what was pushed}"

# By digest: a tag may be moved to another image between the push and the signature.
cosign sign --yes "$name@$digest"
cosign attest --yes --type slsaprovenance1 --predicate build/provenance.json "$name@$digest"
cosign attest --yes --type cyclonedx --predicate build/sbom.json "$name@$digest"
echo "$name:$version@$digest"
