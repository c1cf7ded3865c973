# docker build -f FILE '<context>'
FROM nvcr.io/nvidia/pytorch@sha256:6e8ccc607fc2a51e3741667b86316a0889418ba8b78ed0ba96e8d282b648a7a6
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1" \
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="0"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:6e8ccc607fc2a51e3741667b86316a0889418ba8b78ed0ba96e8d282b648a7a6" \
    org.opencontainers.image.base.name="nvcr.io/nvidia/pytorch:26.09-py3" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="NVIDIA GPU, PyTorch" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark cuda" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="NVIDIA Deep Learning Container License, see /NGC-DL-CONTAINER-LICENSE in the image" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cuda" \
    org.sifmark.devices="/dev/nvidia?,/dev/nvidia1?" \
    org.sifmark.docker-flags="--gpus=all" \
    org.sifmark.driver="NVIDIA 580" \
    org.sifmark.framework="pytorch" \
    org.sifmark.framework-version="2.14" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:89e502341df1c65618d46558600e47ca66208c755355edb9b39af7d2de753c77" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="cuda" \
    org.sifmark.run-flags="--nv" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
