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
ENV PATH=/opt/latencyprobe/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENTRYPOINT ["latencyprobe"]

# Dependencies come first, with a package that is still empty, so that a changed source does not install them again.
FROM python AS pip
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-setuptools \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv --without-pip /opt/latencyprobe
ENV PIP="/usr/bin/python3 -m pip --python /opt/latencyprobe/bin/python install --no-compile"
# unchecked-hash: bytecode that is the same in every build and is not compared with its source at each import
ENV COMPILE="python3 -m compileall -q --invalidation-mode unchecked-hash" SITE="/opt/latencyprobe/lib/python3*/site-packages"
WORKDIR /src
COPY pyproject.toml constraints.txt ./
RUN mkdir operator probe-image && touch README.md LICENSE

FROM pip AS source
COPY README.md LICENSE ./
COPY latencyprobe latencyprobe
COPY operator operator
COPY probe-image probe-image
# the wheel's hash stays in the image: it must not tell the time
RUN SOURCE_DATE_EPOCH=0 /usr/bin/python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM pip AS agent-python
RUN $PIP -c constraints.txt '.[agent]' && $COMPILE $SITE
COPY --from=source /wheels /wheels
RUN $PIP --no-deps --force-reinstall /wheels/*.whl && $COMPILE $SITE/latencyprobe*

FROM pip AS operator-python
RUN $PIP -c constraints.txt '.[operator]' && $COMPILE $SITE
COPY --from=source /wheels /wheels
RUN $PIP --no-deps --force-reinstall /wheels/*.whl && $COMPILE $SITE/latencyprobe*

FROM python AS agent
RUN apt-get update && apt-get install -y --no-install-recommends libbpf1 \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache
COPY --from=agent-python /opt/latencyprobe /opt/latencyprobe
COPY --from=bpf /src/build/bpf/*.bpf.o /usr/lib/latencyprobe/bpf/
ENV LATENCYPROBE_BPF_DIR=/usr/lib/latencyprobe/bpf
CMD ["agent"]

FROM python AS operator
COPY --from=operator-python /opt/latencyprobe /opt/latencyprobe
# kopf asks for the user's name, and no passwd file names this one
ENV USER=latencyprobe
USER 65532:65532
CMD ["operator"]
