# One image for every process: proxy, monitor, migrations, upkeep, and the development model server.
# Mounts have absolute targets, and nothing here needs more than what docker, podman and buildah share.
# BASE may be a mirror's or an in-house image with Python 3.11, pip and venv. Its digest says what is built on; the tag is for
# people, and `docker buildx imagetools inspect python:3.11-slim-bookworm` says what it stands for today.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE} AS build
# A company's own certificate authority is in the system's store of its base image.
ENV UV_SYSTEM_CERTS=true \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=true
# uv and what builds our wheel, by hash; not from an image of somebody else's.
RUN --mount=type=bind,source=requirements,target=/src/requirements \
    python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes \
        --no-deps -r /src/requirements/uv.txt \
    && /opt/build/bin/uv pip install --quiet --python /opt/build/bin/python --require-hashes \
        -r /src/requirements/build.txt
RUN --mount=type=bind,source=requirements,target=/src/requirements \
    --mount=type=cache,target=/root/.cache/uv \
    /opt/build/bin/uv venv --quiet --python "$(command -v python3)" /opt/understudy \
    && /opt/build/bin/uv pip install --quiet --python /opt/understudy/bin/python --require-hashes \
        -r /src/requirements/image.txt
RUN --mount=type=bind,source=pyproject.toml,target=/src/pyproject.toml \
    --mount=type=bind,source=README.md,target=/src/README.md \
    --mount=type=bind,source=LICENSE,target=/src/LICENSE \
    --mount=type=bind,source=NOTICE,target=/src/NOTICE \
    --mount=type=bind,source=src,target=/src/src \
    /opt/build/bin/python -m pip wheel --quiet --no-cache-dir --disable-pip-version-check --no-deps \
        --no-build-isolation --wheel-dir /opt/wheels /src \
    && /opt/build/bin/uv pip install --quiet --python /opt/understudy/bin/python --no-deps --no-index /opt/wheels/*.whl

FROM ${BASE} AS runtime
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Understudy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Routes each predict call to a champion or a challenger model, and logs every answer." \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 understudy \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/understudy --shell /usr/sbin/nologin understudy \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/understudy
COPY --from=build /opt/understudy /opt/understudy
# The root may be read-only: bytecode is there, and only /var/lib/understudy (spool, policy.json) and /tmp are written.
ENV PATH=/opt/understudy/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    UNDERSTUDY_HOST=0.0.0.0 \
    UNDERSTUDY_METRICS_HOST=0.0.0.0 \
    UNDERSTUDY_STATE_DIR=/var/lib/understudy
# By number, so that a cluster can tell that it is not root.
USER 10001:10001
WORKDIR /var/lib/understudy
# Predict calls, the same by gRPC, the proxy's metrics, the monitor's metrics, the development model server.
EXPOSE 8080 8081 9090 9091 8500
STOPSIGNAL SIGTERM
ENTRYPOINT ["understudy"]
CMD ["serve", "proxy"]
