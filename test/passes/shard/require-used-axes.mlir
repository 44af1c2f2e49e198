// RUN: gridloom-opt %s --split-input-file --dist-require-used-axes --verify-diagnostics

// A split value and the axis of stages: both are used.
dist.mesh @mesh <["data" = 2, "pipe" = 3]>
func.func @used(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = "user"}) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}

// -----

// expected-error@below {{axis 'data' of 64 devices splits nothing of the model: its longest dimension has 8 elements; use a smaller axis}}
module {
  dist.mesh @mesh <["data" = 64]>
  func.func @short(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = "replicated"}) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
}

// -----

// expected-error@below {{axis 'model' of 2 devices splits nothing of the model: no input or weight has a dimension that the strategy can cut in 2 without gathering it again; use a smaller or another axis, or --shard}}
module {
  dist.mesh @mesh <["model" = 2]>
  func.func @whole(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = "replicated"}) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
}
