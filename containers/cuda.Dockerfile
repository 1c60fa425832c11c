# The ops on an NVIDIA GPU, vLLM in the process, and the server (CUDA 13; the driver is the machine's):
#     docker build -f containers/cuda.Dockerfile -t pyfast-qa:cuda .
#     docker run --rm --gpus all -v "$PWD:/work" pyfast-qa:cuda doctor
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake g++ make python3-dev python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN CMAKE_ARGS=-DPYFAST_CUDA=on pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/pyfast
ENV PATH=/opt/pyfast/bin:$PATH
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/pyfast_qa-*.whl)[gpu,server]"
RUN useradd --create-home pyfast
USER pyfast
WORKDIR /work
ENTRYPOINT ["pyfast"]
