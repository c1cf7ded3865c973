# docker build -f FILE '<context>'
FROM docker.io/rocm/tensorflow@sha256:3ed1ade56a3eb3645082933e293ade4c804adb92a206bea85e277b13a6edc5c2
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:3ed1ade56a3eb3645082933e293ade4c804adb92a206bea85e277b13a6edc5c2" \
    org.opencontainers.image.base.name="docker.io/rocm/tensorflow:rocm7.2.4-py3.12-tf2.20-dev" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="AMD GPU, TensorFlow" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark rocm_tf" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="by component: MIT, Apache-2.0, NCSA, BSD and AMD's own for some binaries" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cuda" \
    org.sifmark.devices="/dev/kfd,/dev/dri" \
    org.sifmark.docker-flags="--cap-add=SYS_PTRACE --security-opt=seccomp=unconfined" \
    org.sifmark.driver="amdgpu unknown" \
    org.sifmark.framework="tensorflow" \
    org.sifmark.framework-version="2.20" \
    org.sifmark.lock="sha256:7669f15d55ceef94553cc02002b5c26403ee94aaccd81b9526deb79d64e35290" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="rocm_tf" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,image_compression,lstm,mcmc,resnet50,resnext101_32x4d"
ENTRYPOINT ["/sifmark/run"]
CMD []
