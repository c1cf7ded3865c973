"""GPUs of AMD, as the management libraries of ROCm show them."""
