# docker build -f FILE '<context>'
FROM docker.io/graphcore/tensorflow-jupyter:2-amd-3.1.0-ubuntu-20.04-20230224
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="unresolved" \
    org.opencontainers.image.base.name="docker.io/graphcore/tensorflow-jupyter:2-amd-3.1.0-ubuntu-20.04-20230224" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="Graphcore IPU, TensorFlow" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark ipu_tf" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="Graphcore Container License Agreement and Graphcore EULA" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="ipu" \
    org.sifmark.devices="/dev/infiniband,/dev/ipu*" \
    org.sifmark.docker-flags="--network=host --cap-add=IPC_LOCK --ulimit=memlock=-1" \
    org.sifmark.driver="V-IPU server and IPU-M firmware unknown" \
    org.sifmark.framework="tensorflow" \
    org.sifmark.framework-version="2.6.3" \
    org.sifmark.lock="sha256:f70e95575a7f7f9fd1ac9a6f6d4e6e8a0ddc8d91b51e8b03db3bda866247f747" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.8" \
    org.sifmark.recipe="ipu_tf" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,image_compression,lstm,mcmc,resnet50,resnext101_32x4d"
ENTRYPOINT ["/sifmark/run"]
CMD []
