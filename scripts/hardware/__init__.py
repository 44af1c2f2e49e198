"""The modules of scripts/gpu-check and scripts/cluster-check. Runs on a bare machine: the standard library and numpy;
only `pack` needs a built checkout."""
