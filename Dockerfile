# The product: one image for web, workers, beat, trainer and the embedded inference server; the command says which.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends bash git util-linux \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    OMP_NUM_THREADS=1 \
    OPENCOMPOSER_DATA=/data \
    OPENCOMPOSER_HOST=0.0.0.0 \
    OPENCOMPOSER_PORT=8800

WORKDIR /opt/opencomposer

# torch first: it is by far the largest layer and changes least. The default index gives the CUDA build, which also
# runs without a GPU; `--build-arg TORCH_ARGS="--index-url …"` chooses another.
ARG TORCH_ARGS=""
COPY requirements-torch.txt requirements.lock ./
RUN pip install $TORCH_ARGS -r requirements-torch.txt \
    && pip install uv \
    && uv pip install --system --no-cache --compile-bytecode --require-hashes --no-deps -r requirements.lock

COPY manage.py ./
COPY sandbox ./sandbox
COPY trainer ./trainer
COPY composer_web ./composer_web
COPY opencomposer ./opencomposer
COPY templates ./templates
COPY static ./static
COPY policies ./policies
COPY docs ./docs
COPY scripts ./scripts
COPY mkdocs.yml ./

# The command `opencomposer`; what it needs is in the lock.
# Nothing is compiled later: the folders are not the user's to write.
RUN uv pip install --system --no-cache --no-deps ./opencomposer \
    && python -m compileall -q sandbox trainer composer_web opencomposer \
    && useradd --uid 10001 --create-home composer && install -d -o composer -g composer /data
# The help pages. Their reference is made from the code, which reads the settings and needs no service.
RUN OPENCOMPOSER_DATA=/tmp/docs python -m scripts.docs && rm -rf /tmp/docs
USER composer
VOLUME /data
EXPOSE 8800

CMD ["uvicorn", "composer_web.asgi:application", "--host", "0.0.0.0", "--port", "8800", "--no-access-log", "--no-proxy-headers", "--ws-max-size", "16384", "--http", "trainer.inference.transport:JoinedProtocol"]
