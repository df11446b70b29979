# docker build -t sliceformer-lab .                                  torch's CPU build
# docker build -t sliceformer-lab --build-arg DEVICE=cuda .          torch with CUDA (3 GB more)
# docker run --rm -v "$PWD/outputs:/work/outputs" sliceformer-lab task=digits attention=csp      (CUDA: add --gpus all)
FROM python:3.12-slim-bookworm
ARG DEVICE=cpu
ARG UID=1000

RUN apt-get update \
  && apt-get install -y --no-install-recommends g++ \
  && rm -rf /var/lib/apt/lists/*
RUN if [ "$DEVICE" = cpu ]; then \
    pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu; fi

COPY pyproject.toml setup.py README.md LICENSE /source/
COPY packages /source/packages
COPY conf /source/conf
COPY tasks /source/tasks
COPY callbacks /source/callbacks
COPY sliceformer_lab /source/sliceformer_lab
RUN pip install --no-cache-dir "/source[graph,points,tensorboard,export]" && rm -rf /source

RUN useradd --create-home --uid "$UID" lab && mkdir -p /work/outputs /work/data && chown -R lab:lab /work
USER lab
WORKDIR /work
# Runs are written to /work/outputs, downloads to /work/data.
VOLUME ["/work/outputs", "/work/data"]
ENTRYPOINT ["python", "-m", "sliceformer_lab"]
