# syntax=docker/dockerfile:1
# Two images: `docker build --target cpu .` and `docker build --target cuda .` (the last stage, so the default).

FROM python:3.11-slim-bookworm AS source
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
# The dependencies are a layer of their own that depends on pyproject.toml only: changed code reinstalls nothing.
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; x = p['optional-dependencies']; \
    write = lambda name, what: open(name, 'w').write('\n'.join(what) + '\n'); \
    write('cpu.txt', p['dependencies'] + x['postgres'] + x['documents']); \
    write('cuda.txt', p['dependencies'] + x['postgres'] + x['documents'] + x['vllm'])"


FROM source AS wheel
COPY recovery recovery
COPY evals evals
COPY db db
COPY pipelines pipelines
COPY dashboard dashboard
COPY studies studies
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .


FROM python:3.11-slim-bookworm AS machine
RUN useradd --create-home --uid 1000 recover \
    && python -m venv /opt/recover \
    # A volume takes its owner from the folder it is mounted on.
    # Every folder is listed, as missing parents would belong to root.
    && install -d -o recover -g recover /project /home/recover/.cache /home/recover/.cache/huggingface
ENV PATH=/opt/recover/bin:$PATH PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /project
EXPOSE 7860
# Any HTTP answer counts: a page that asks for a password is up.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", \
    "import http.client as h; c = h.HTTPConnection('127.0.0.1', 7860, timeout=8); c.request('GET', '/'); c.getresponse()"]
ENTRYPOINT ["recover"]
# Reads USER:PASSWORD from RECOVER_AUTH; without it, it refuses an address that other machines can reach.
CMD ["dashboard", "--host", "0.0.0.0", "--port", "7860"]


FROM machine AS cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY --from=source /source/cpu.txt /tmp/
RUN pip install --index-url "$TORCH_INDEX" "$(grep '^torch' /tmp/cpu.txt)"
RUN pip install --requirement /tmp/cpu.txt
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel pip install --no-deps /wheel/*.whl
USER 1000


FROM machine AS cuda
# The CUDA runtime comes with torch's wheels, the driver from the host (NVIDIA Container Toolkit). Triton needs a C
# compiler to build vLLM's kernels.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=source /source/cuda.txt /tmp/
RUN pip install --requirement /tmp/cuda.txt
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel pip install --no-deps /wheel/*.whl
USER 1000
