# docker build -f FILE '<context>'
FROM docker.io/intel/deep-learning-essentials@sha256:a0e75ccb976a29cf3afb087487867b9f1f05d037886920ae64dfe63d9acfc698
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1" \
    LD_LIBRARY_PATH="/sifmark-site/lib"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="sha256:a0e75ccb976a29cf3afb087487867b9f1f05d037886920ae64dfe63d9acfc698" \
    org.opencontainers.image.base.name="docker.io/intel/deep-learning-essentials:2026.1.2-devel-ubuntu24.04" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="Intel GPU, PyTorch" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark xpu" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="Intel End User License Agreement for Developer Tools, and the licences of Ubuntu's packages" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="xpu" \
    org.sifmark.devices="/dev/dri" \
    org.sifmark.driver="Intel GPU unknown" \
    org.sifmark.framework="pytorch" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:02305501e6a1b8ad8d3d7721d8565595cc9a22416fcf4b1cad6d3e9629a280a3" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.12" \
    org.sifmark.recipe="xpu" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
