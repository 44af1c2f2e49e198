"""The modules of scripts/gpu-check and scripts/cluster-check. They need only the standard library and numpy; only `pack` needs a built
checkout."""
