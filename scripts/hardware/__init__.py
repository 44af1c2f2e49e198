"""What scripts/gpu-check and scripts/cluster-check are made of. Runs on a bare machine: the standard library and numpy;
only `pack` needs a built checkout."""
