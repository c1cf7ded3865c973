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
    org.opencontainers.image.description="CPU, PyTorch" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark cpu" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="PSF-2.0, and the licences of Debian's packages" \
    org.sifmark.base-redistributable="true" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="cpu" \
    org.sifmark.framework="pytorch" \
    org.sifmark.interpreter="/usr/local/bin/python3" \
    org.sifmark.lock="sha256:f6d0d2fcb0ef481f195cfd64873372e7fde3d234e46fe32c6e2989591c02dd95" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.11" \
    org.sifmark.recipe="cpu" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
