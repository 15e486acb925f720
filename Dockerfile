# syntax=docker/dockerfile:1
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/koordsched
ENV PATH=/opt/koordsched/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Dependencies first: they change less often than the code. What develops stays outside.
COPY requirements.lock ./
RUN sed '/^# --- to develop/,$d' requirements.lock > run.lock && pip install --require-hashes -r run.lock
COPY pyproject.toml README.md LICENSE ./
COPY koordsched koordsched
COPY config config
COPY manifests/crds manifests/crds
RUN pip install --no-deps --no-build-isolation . \
    && pip uninstall --yes setuptools pip \
    && /opt/koordsched/bin/python -m compileall -q /opt/koordsched/lib

FROM python:${PYTHON}-slim
COPY --from=build /opt/koordsched /opt/koordsched
ENV PATH=/opt/koordsched/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Nothing is written: run it with a read-only root file system.
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["koordsched"]
CMD ["run"]
