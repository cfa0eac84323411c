# Writes requirements/servers-*.txt: what the real model servers of tests/servers need, each in a venv of its own,
# requirements/clients.txt: what tests/clients needs, and requirements/peers-*.txt: the same for the servers that
# `make bench-peers` measures (MLServer is among the former).
set -eu
uv=$1
cd "$(dirname "$0")/.."
compile() { # output; requirements on standard input; arguments…
  out=$1; shift
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
    "$@" - --output-file "requirements/$out"
}
printf '%s\n' mlserver==1.7.1 mlserver-sklearn==1.7.1 | compile servers-mlserver.txt
printf '%s\n' mlflow==3.17.2 | compile servers-mlflow.txt
printf '%s\n' nvidia-pytriton==0.7.0 | compile servers-triton.txt
# tensorflow-cpu takes the place of tensorflow, which tensorflow-serving-api names: the same module, a third of the size.
printf '%s\n' tensorflow-serving-api tensorflow-cpu | compile servers-tensorflow.txt --no-emit-package tensorflow
# torch and what it needs at run time: its wheel on the package index would bring 3 GB of CUDA. The hash is that of the
# CPU wheel for Python 3.11 on Linux x86-64; pip finds it through PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL.
printf '%s\n' torchserve==0.12.0 torch-model-archiver==0.12.0 filelock fsspec jinja2 networkx numpy pyyaml requests \
  'setuptools<82' sympy typing-extensions | compile servers-torchserve.txt
printf '%s\n' 'torch==2.13.0+cpu \' '    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b' >> requirements/servers-torchserve.txt
# Clients that tests/clients calls the proxy with, unmodified.
printf '%s\n' 'tritonclient[http]==2.73.0' kserve==0.21.0 openapi-python-client==0.29.1 | compile clients.txt
printf '%s\n' ovmsclient==2023.1 | compile clients-ovms.txt
printf '%s\n' bentoml==1.4.39 | compile peers-bentoml.txt
printf '%s\n' 'ray[serve]==2.60.0' | compile peers-ray.txt
printf '%s\n' 'litellm[proxy]==1.106.2' | compile peers-litellm.txt
