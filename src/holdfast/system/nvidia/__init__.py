"""What NVIDIA's driver says, by its own library (NVML). Reads only; judges nothing."""
