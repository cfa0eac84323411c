# Writes requirements/*.txt: one universal resolution (dev), the smaller sets constrained to it.
set -eu
uv=$1
cd "$(dirname "$0")/.."
compile() { # output, arguments…
  out=$1; shift
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
    "$@" --output-file "requirements/$out"
}
echo "uv==0.13.8" | compile uv.txt -
compile dev.txt --extra demo --extra oidc --extra files --extra archive --extra lake --extra frames --extra otel --extra editable --group dev pyproject.toml
compile demo.txt --constraints requirements/dev.txt --extra demo --extra otel --extra editable pyproject.toml
compile run.txt --constraints requirements/dev.txt --extra proxy --extra monitor --extra console pyproject.toml
compile image.txt --constraints requirements/dev.txt --extra proxy --extra monitor --extra console --extra oidc --extra files --extra archive --extra lake --extra otel --extra modelserver pyproject.toml
echo "hatchling>=1.27" | compile build.txt --constraints requirements/dev.txt -
compile deploy.txt --constraints requirements/dev.txt --group deploy
compile scan.txt --constraints requirements/dev.txt --group scan
compile site.txt --constraints requirements/dev.txt --group site
compile archive.txt --constraints requirements/dev.txt --extra cli --extra archive pyproject.toml
compile train.txt --constraints requirements/dev.txt --group train --extra demo pyproject.toml
