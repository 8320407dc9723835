# Two images for the CPU: `service` serves a bundle, `trainer` makes one.
#   docker build --target service --tag hyper3-service .
#   docker build --target trainer --tag hyper3-trainer .
# Dependencies are installed before the code is copied: a change of code rebuilds the last layers alone.

FROM python:3.11-slim-bookworm AS base
# PYTHONSAFEPATH: a mounted checkout must not stand in for the packages installed here.
# HOME and USER: the user a container is started with (compose: UID, GID) may have neither.
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    HOME=/tmp \
    USER=hyper3
RUN useradd --uid 1000 --home-dir /tmp --no-create-home hyper3
WORKDIR /hyper3

# The lists of requirements, so that the layers below depend on them and not on the rest of pyproject.toml.
FROM base AS requirements
COPY pyproject.toml ./
RUN python -c "import tomllib; \
    project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    own, extra = project['dependencies'], project['optional-dependencies']; \
    write = lambda name, lines: print(*lines, sep='\n', file=open(name, 'w')); \
    write('service.txt', own + extra['service']); \
    write('torch.txt', [line for line in extra['trainer'] if line.startswith('torch')]); \
    write('trainer.txt', own + extra['trainer'] + extra['service'] + extra['demo'] + extra['eval'])"

FROM base AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY trainer trainer
COPY service service
RUN pip wheel --no-deps --wheel-dir /wheel .

FROM base AS service
COPY --from=requirements /hyper3/service.txt /tmp/
RUN pip install --requirement /tmp/service.txt
COPY --from=wheel /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl \
 && mkdir --mode 1777 /items
USER 1000:1000
EXPOSE 8000
VOLUME /items
HEALTHCHECK --start-period=60s --interval=15s --timeout=5s \
  CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8000, timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["hyper3"]
CMD ["serve"]

FROM base AS trainer
# The builds on PyPI bring CUDA: several GB. For the CPU build, a tenth of that:
#   --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG TORCH_INDEX_URL=""
COPY --from=requirements /hyper3/torch.txt /tmp/
RUN pip install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} --requirement /tmp/torch.txt
COPY --from=requirements /hyper3/trainer.txt /tmp/
RUN pip install --requirement /tmp/trainer.txt
COPY --from=wheel /wheel /tmp/wheel
RUN pip install --no-deps /tmp/wheel/*.whl
USER 1000:1000
ENTRYPOINT ["hyper3"]
CMD ["--help"]
