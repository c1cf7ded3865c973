# docker build -f FILE '<context>'
FROM docker.io/intel/intel-extension-for-pytorch:2.8.10-xpu
COPY site /
COPY code /
ENV PYTHONNOUSERSITE="1"
LABEL org.label-schema.build-date="<date>" \
    org.opencontainers.image.base.digest="unresolved" \
    org.opencontainers.image.base.name="docker.io/intel/intel-extension-for-pytorch:2.8.10-xpu" \
    org.opencontainers.image.created="<date>" \
    org.opencontainers.image.description="Intel GPU, PyTorch with Intel's extension" \
    org.opencontainers.image.revision="<revision>" \
    org.opencontainers.image.title="sifmark xpu_ipex" \
    org.opencontainers.image.version="0.3.0" \
    org.sifmark.base-licence="Apache-2.0, and the Intel End User License Agreement for Developer Tools" \
    org.sifmark.base-redistributable="false" \
    org.sifmark.build-key="<build key>" \
    org.sifmark.bytecode="<true where the host has the base's Python>" \
    org.sifmark.compression="<as chosen>" \
    org.sifmark.device="xpu" \
    org.sifmark.devices="/dev/dri" \
    org.sifmark.driver="Intel GPU unknown" \
    org.sifmark.framework="pytorch" \
    org.sifmark.framework-version="2.8.0" \
    org.sifmark.interpreter="/usr/bin/python3" \
    org.sifmark.lock="sha256:11976f030b7329fcf0e57d2f88a097966d513719848020606a9070f54c7a1e6a" \
    org.sifmark.platform="x86_64" \
    org.sifmark.python="3.10" \
    org.sifmark.recipe="xpu_ipex" \
    org.sifmark.stand-in="false" \
    org.sifmark.workloads="all_gather,all_reduce,all_to_all,bert_base,bert_large,bert_large_pretraining_128,bert_large_pretraining_512,checkpoint,deep_voice_3,dit_xl_2,efficientnet_b0,efficientnet_b4,embedding_bag,flux_1,gpt2,gpt2_large,gpt2_medium,gpt2_xl,gpt2_xxl,gpt2_xxxl,gpt_117m,gpt_13b,gpt_175b,gpt_800m,gpt_oss_120b,gpt_oss_20b,host_device,image_compression,llama2_70b_lora,llama_1b,llama_3b,llama_405b,llama_70b,llama_8b,llama_8b_lora,lstm,matmul,mcmc,memory_copy,mobilenet_v3_large,mobilenet_v3_small,olmoe_1b_7b,qwen3_30b_a3b,reduce_scatter,resnet50,resnext101_32x4d,send_receive,vit_l16"
ENTRYPOINT ["/sifmark/run"]
CMD []
