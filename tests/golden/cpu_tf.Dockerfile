# docker build -f FILE '<context>'
FROM docker.io/library/python@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1" \
    PYTHONPATH="" \
    PYTHONHOME=""
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b" \
    org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="CPU, TensorFlow" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark cpu_tf" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="PSF-2.0, and the licences of Debian's packages" \
    org.sifmark.base-redistributable="true" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cpu" \
    org.sifmark.framework="tensorflow" \
    org.sifmark.interpreter="/usr/local/bin/python3" \
    org.sifmark.lock="sha256:c092e06713e0b0ada376517946b37e866fee87f5bd5da8797361b68c269bd9da" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.11" \
    org.sifmark.recipe="cpu_tf" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,image_compression,lstm,mcmc,resnet50,resnext101_32x4d"
ENTRYPOINT ["/sifmark/run"]
CMD []
