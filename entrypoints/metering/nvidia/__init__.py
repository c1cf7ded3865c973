"""GPUs of NVIDIA, as their driver's management library shows them."""
