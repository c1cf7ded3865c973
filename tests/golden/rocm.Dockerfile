# docker build -f FILE '<context>'
FROM docker.io/rocm/pytorch@sha256:3174cb7061d94c427da96c0edef4adea28046fa3f3b2ff3948dc4e995665ff8c
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:3174cb7061d94c427da96c0edef4adea28046fa3f3b2ff3948dc4e995665ff8c" \
    org.opencontainers.image.base.name="docker.io/rocm/pytorch:rocm10.0_ubuntu26.04_py3.14_pytorch_release_2.13.0" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="AMD GPU, PyTorch" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark rocm" \
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
    org.sifmark.framework="pytorch" \
    org.sifmark.framework-version="2.13.0" \
    org.sifmark.interpreter="/opt/venv/bin/python3" \
    org.sifmark.lock="sha256:5a7e8132a6029248d2bba11b9a1d6f03a5a2ab63a5b98d6212ee6fb4c5c31b01" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.14" \
    org.sifmark.recipe="rocm" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
