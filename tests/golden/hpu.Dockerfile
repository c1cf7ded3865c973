# docker build -f FILE '<context>'
FROM vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0@sha256:b257eaeffdc6ba5e1deaa4ca3aad8ec9ed0d777d00794a0635050e0160f09fd8
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1" \
    PT_HPU_LAZY_MODE="0" \
    HABANA_LOGS="/tmp/habana_logs"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:b257eaeffdc6ba5e1deaa4ca3aad8ec9ed0d777d00794a0635050e0160f09fd8" \
    org.opencontainers.image.base.name="vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0:latest" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="Intel Gaudi, PyTorch" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark hpu" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="Intel's licence for Gaudi software, and the licences of Ubuntu's packages" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="hpu" \
    org.sifmark.devices="/dev/accel,/dev/infiniband" \
    org.sifmark.driver="habanalabs unknown" \
    org.sifmark.framework="pytorch" \
    org.sifmark.framework-version="2.11.0a0" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:a0927284e121aac92c675764c9562ec3e4c5cb315c8d56f6572839f0aa03b4c5" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="hpu" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
