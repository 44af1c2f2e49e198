// RUN: gridloom-opt %s --split-input-file --dist-require-used-axes --verify-diagnostics

// A split value and the pipeline axis: both are used.
dist.mesh @mesh <["data" = 2, "pipe" = 3]>
func.func @used(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}

// -----

// expected-error@below {{axis 'data' of 64 devices splits nothing of the model: its longest dimension has 8 elements; use a smaller axis}}
module {
  dist.mesh @mesh <["data" = 64]>
  func.func @short(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"replicated">}) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
}

// -----

// The remark names what stopped a weight's split.
// expected-error@below {{without gathering it again (weight 'w': split by columns over 'model', its product would have to be gathered for 'view'); use a smaller}}
module {
  dist.mesh @mesh <["model" = 2]>
  loom.weight @w : tensor<4x8xf32> from <"", offset = 0, bytes = 128>
  func.func @tried() -> tensor<4x8xf32> {
    %w = loom.get_weight @w {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.origins = [#dist.origin<replicated = "split by columns over 'model', its product would have to be gathered for 'view'" tried "model">]} : tensor<4x8xf32>
    return %w : tensor<4x8xf32>
  }
}

// -----

// A weight that is pinned without the axis comes first, and the batch could be split over it.
// expected-error@below {{(weight 'w' is given as [{data}, {}], without it; 'stored[{data}, {}]' says only how it lies); use a smaller or another axis, --strategy search,}}
module {
  dist.mesh @mesh <["data" = 2, "model" = 2]>
  func.func @given(%w: tensor<4x8xf32> {loom.name = "w", loom.role = "parameter", loom.state = "w", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"data" = "user">}) -> tensor<4x8xf32> {
    return %w : tensor<4x8xf32>
  }
}

// -----

// expected-error@below {{axis 'model' of 2 devices splits nothing of the model: no input or weight has a dimension that the strategy can cut in 2 without gathering it again; use a smaller or another axis, --strategy search, which may leave it idle, or --shard}}
module {
  dist.mesh @mesh <["model" = 2]>
  func.func @whole(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"replicated">}) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
}
