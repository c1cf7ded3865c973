# docker build -f FILE '<context>'
FROM docker.io/vllm/vllm-openai@sha256:8a69ffad015f138d7170c4ddc429e230a3bc1c1719f67e14324749df200a4b90
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1" \
    HF_HUB_OFFLINE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:8a69ffad015f138d7170c4ddc429e230a3bc1c1719f67e14324749df200a4b90" \
    org.opencontainers.image.base.name="docker.io/vllm/vllm-openai:v0.30.0" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="NVIDIA GPU, vLLM" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark cuda_vllm" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="Apache-2.0, and NVIDIA's licences of CUDA" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cuda" \
    org.sifmark.devices="/dev/nvidia?,/dev/nvidia1?" \
    org.sifmark.docker-flags="--gpus=all" \
    org.sifmark.driver="NVIDIA 580" \
    org.sifmark.framework="pytorch" \
    org.sifmark.framework-version="2.13.0" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:870c31e34d62cf659156324eff6a983a0a7a7c7664076a076bef7d7b68291f11" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="cuda_vllm" \
    org.sifmark.run-flags="--nv" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
