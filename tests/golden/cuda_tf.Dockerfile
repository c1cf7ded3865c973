# docker build -f FILE '<context>'
FROM nvcr.io/nvidia/tensorflow@sha256:c83b37d26f19ab00d8a13cf974edd079c3d099918ec3110c304a989d6e2f75d5
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:c83b37d26f19ab00d8a13cf974edd079c3d099918ec3110c304a989d6e2f75d5" \
    org.opencontainers.image.base.name="nvcr.io/nvidia/tensorflow:25.02-tf2-py3" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="NVIDIA GPU, TensorFlow" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark cuda_tf" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="NVIDIA Deep Learning Container License, see /NGC-DL-CONTAINER-LICENSE in the image" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cuda" \
    org.sifmark.devices="/dev/nvidia?,/dev/nvidia1?" \
    org.sifmark.docker-flags="--gpus=all" \
    org.sifmark.driver="NVIDIA 525" \
    org.sifmark.framework="tensorflow" \
    org.sifmark.framework-version="2.17.0" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:d2a13be1069cd173b41193e3f24270a6acbe3d735a042eac663834b9389f6a7e" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="cuda_tf" \
    org.sifmark.run-flags="--nv" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,image_compression,lstm,mcmc,resnet50,resnext101_32x4d"
ENTRYPOINT ["/sifmark/run"]
CMD []
