"""CUDA C++ kernels: compiled at first use by NVRTC for the GPU at hand, kept in the user's cache folder."""
