# The images of both programs: `--target agent` and `--target operator`.

FROM docker.io/library/debian:trixie-slim AS bpf
RUN apt-get update && apt-get install -y --no-install-recommends clang-19 llvm-19 libbpf-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Makefile ./
COPY bpf bpf
RUN make bpf

FROM docker.io/library/debian:trixie-slim AS python
RUN apt-get update && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache

FROM python AS pip
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-setuptools \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv --without-pip /opt/latencyprobe
ENV PIP="/usr/bin/python3 -m pip --python /opt/latencyprobe/bin/python install --no-compile"
ENV PINNED="--only-binary :all: --require-hashes -r requirements.txt"
# unchecked-hash: bytecode that is the same in every build and is not compared with its source at each import
ENV COMPILE="python3 -m compileall -q --invalidation-mode unchecked-hash" SITE="/opt/latencyprobe/lib/python3*/site-packages"
WORKDIR /src

# Without setup.py: programs come from their own stage, once, and the operator needs none.
FROM pip AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY bpf/LICENSE bpf/
COPY latencyprobe latencyprobe
COPY operator operator
COPY probe-image probe-image
# its hash stays in the image: it must not tell the time
RUN SOURCE_DATE_EPOCH=0 /usr/bin/python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM pip AS agent-python
COPY probe-image/requirements.txt ./
RUN $PIP $PINNED && $COMPILE $SITE
COPY --from=wheel /wheels /wheels
RUN $PIP --no-deps /wheels/*.whl && $COMPILE $SITE/latencyprobe*

FROM pip AS operator-python
COPY operator/requirements.txt ./
RUN $PIP $PINNED && $COMPILE $SITE
COPY --from=wheel /wheels /wheels
RUN $PIP --no-deps /wheels/*.whl && $COMPILE $SITE/latencyprobe*

# What the images start from: Python, libraries and the authorities that Debian trusts (one file), no shell and no other
# program. What dpkg knows of files stays, by which scripts/sbom.py tells what is left.
FROM python AS bare
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libbpf1 \
    && rm -rf /var/lib/apt /var/log/* /var/cache/* /etc/apt /etc/dpkg /etc/ca-certificates* /usr/share/ca-certificates \
        /usr/share/bash-completion /usr/share/debconf /usr/share/perl5 \
        /usr/lib/apt /usr/lib/dpkg /usr/lib/ssl/misc /usr/lib/systemd /usr/lib/*/perl-base /usr/libexec \
    && find /etc/ssl/certs -type l -delete \
    && find /usr/bin /usr/sbin ! -type d ! -name 'python3*' -delete

FROM scratch AS base
COPY --from=bare / /
ENV PATH=/opt/latencyprobe/bin:/usr/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENTRYPOINT ["latencyprobe"]

FROM base AS agent
COPY --from=agent-python /opt/latencyprobe /opt/latencyprobe
COPY --from=bpf /src/build/bpf/*.bpf.o /usr/lib/latencyprobe/bpf/
ENV LATENCYPROBE_BPF_DIR=/usr/lib/latencyprobe/bpf
CMD ["agent"]

FROM base AS operator
COPY --from=operator-python /opt/latencyprobe /opt/latencyprobe
# kopf asks for the user's name, and no passwd file names this one
ENV USER=latencyprobe
USER 65532:65532
CMD ["operator"]
